# Starts the command, or attaches to it, and says how it ended. Before it stand: max, the bytes kept of each output;
# limit and patience, of the command and of this script, in hundredths of a second (limit 0 = none); wait, 1 = for the
# command's end; hold, 1 = for however long that takes if this script has started it; keep, the keeper's script; and the
# functions deliver, which writes the command, and discard.
mkdir "$sy_dir" 2>/dev/null
if [ ! -d "$sy_run" ]; then
	deliver "$sy_dir" || { answer refused space; exit 0; }
	if [ "$sy_hold" = 1 ]; then
		setsid sh -c "$sy_keep" sandyard-keeper "$sy_dir" "$sy_max" "${sy_run#"$sy_dir/"}" </dev/null >/dev/null 2>&1
	else
		setsid sh -c "$sy_keep" sandyard-keeper "$sy_dir" "$sy_max" "${sy_run#"$sy_dir/"}" </dev/null >/dev/null 2>&1 &
	fi
fi
discard
now
sy_called=$sy_now sy_naps=0 sy_odd=0
while ! ended; do
	if [ -e "$sy_run/unbegun" ]; then
		answer refused process
		exit 0
	elif keeper; then
		sy_odd=0 sy_unsaid="running 0" # it needs no other process, and is asked for again
		now
		if [ "$sy_limit" -gt 0 ] && [ $((sy_now - sy_begun)) -ge "$sy_limit" ]; then
			endtree timeout
			break
		fi
		if { [ "$sy_wait" = 0 ] && [ -e "$sy_run/leader" ]; } || [ $((sy_now - sy_called)) -ge "$sy_patience" ]; then
			answer "running $((sy_now - sy_begun))"
			exit 0
		fi
	elif [ "$sy_odd" -lt 20 ]; then # it may be about to begin, or to have ended
		sy_odd=$((sy_odd + 1)) sy_unsaid="refused process"
	elif [ ! -d "$sy_run" ]; then # whoever comes next starts it
		answer refused process
		exit 0
	else
		endtree lost
		break
	fi
	nap
done
sy_unsaid="refused process"
show
