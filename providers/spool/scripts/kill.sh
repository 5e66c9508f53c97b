# Ends the command with all that it has started. Before it stand: why, and least: how long it may run in any case, in
# hundredths of a second.
if [ -d "$sy_dir" ]; then
	if [ "$sy_least" -gt 0 ] && [ ! -e "$sy_run/leader" ] && ! ended; then
		answer early
		exit 0
	fi
	while [ "$sy_least" -gt 0 ] && ! ended && keeper; do
		now
		[ $((sy_now - sy_begun)) -lt "$sy_least" ] || break
		nap
	done
	if [ -d "$sy_run" ] && ! ended; then endtree "$sy_why"; fi
	answer done
	exit 0
fi
for sy_other in "$sy_top"/.sandyard-*/"$sy_name"; do
	[ -d "$sy_other" ] || continue
	sy_owner=$(stat -c %U "$sy_other" 2>/dev/null)
	answer "owner ${sy_owner:-root}"
	exit 0
done
if [ "$sy_least" -gt 0 ]; then answer early; else answer done; fi
