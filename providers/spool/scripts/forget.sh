# Drops what is kept of a command that has ended; its name stays taken.
rm -f "/tmp/.sandyard-in-$sy_name-"*
if [ -d "$sy_dir" ]; then
	if [ -d "$sy_dir/run" ] && [ ! -e "$sy_dir/run/rc" ]; then
		if keeper; then
			echo "spool1 running 0"
			exit 0
		fi
		endtree lost
	fi
	mkdir -p "$sy_dir/run"
	: >"$sy_dir/run/forgotten"
	[ -e "$sy_dir/run/rc" ] || echo "137 lost 0 0 0" >"$sy_dir/run/rc"
	rm -f "$sy_dir/out" "$sy_dir/err" "$sy_dir/cmd" "$sy_dir/in" "$sy_dir/out.pipe" "$sy_dir/err.pipe"
	echo "spool1 done"
	exit 0
fi
for sy_other in "$sy_top"/.sandyard-*/"$sy_name"; do
	[ -d "$sy_other" ] || continue
	sy_owner=$(stat -c %U "$sy_other" 2>/dev/null)
	echo "spool1 owner ${sy_owner:-root}"
	exit 0
done
echo "spool1 done"
