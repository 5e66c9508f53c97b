# Drops what is kept of a command that has ended; its name stays taken.
rm -f "/tmp/.sandyard-in-$sy_name-"*
if [ -d "$sy_dir" ]; then
	if [ -d "$sy_run" ] && ! ended; then
		if keeper; then
			answer running 0
			exit 0
		fi
		endtree lost
	fi
	mkdir -p "$sy_run"
	: >"$sy_run/forgotten"
	ended || echo "137 lost 0 0 0" >"$sy_run/rc"
	rm -f "$sy_dir/out" "$sy_dir/err" "$sy_dir/cmd" "$sy_dir/in" "$sy_dir"/run/*.pipe "$sy_run"/*.pipe
	answer done
	exit 0
fi
for sy_other in "$sy_top"/.sandyard-*/"$sy_name"; do
	[ -d "$sy_other" ] || continue
	sy_owner=$(stat -c %U "$sy_other" 2>/dev/null)
	answer "owner ${sy_owner:-root}"
	exit 0
done
answer done
