# What every script of the spool begins with. Before it stand the command's name and top, where the spool is. All
# variables begin with sy_: one that the sandbox's environment has, too, would reach the command with another value.
umask 077

# answer WORDS: the first line of what the script prints, which says all; only output follows it.
answer() {
	trap - EXIT
	echo "spool1 $*"
}

# A shell that cannot fork ends, and has not answered. A new one does, as one of bash waits for the keeper after a
# failed fork.
sy_unsaid="refused process"
trap 'exec sh -c "echo spool1 $sy_unsaid"' EXIT

sy_uid=
while read -r sy_key _ sy_uid _ && [ "$sy_key" != Uid: ]; do sy_uid=; done </proc/self/status
sy_base=$sy_top/.sandyard-${sy_uid:-$(id -u)}
[ -d "$sy_base" ] || mkdir -m 711 "$sy_base" 2>/dev/null
if [ -L "$sy_base" ] || [ ! -O "$sy_base" ]; then
	answer refused base
	exit 0
fi
sy_dir=$sy_base/$sy_name
# The last try to start the command. Those before have ended before it began, and said so.
sy_run=$sy_dir/run
while [ -e "$sy_run/unbegun" ]; do sy_run=$sy_run/again; done

# born PID: when the process started, in ticks; fails if there is none, or only what is left of one.
born() {
	sy_stat=
	{ read -r sy_stat <"/proc/$1/stat"; } 2>/dev/null
	[ -n "$sy_stat" ] || return 1
	set -- ${sy_stat##*) }
	case $1 in Z | X) return 1 ;; esac
	shift 19
	sy_born=$1
}

# nap: a moment that grows with the number of naps.
nap() {
	sy_naps=$((sy_naps + 1))
	case $sy_naps in
	[1-5]) sleep 0.02 ;;
	[6-9] | 1?) sleep 0.05 ;;
	2?) sleep 0.1 ;;
	*) sleep 0.3 ;;
	esac 2>/dev/null || sleep 1
}

# size FILE: its bytes; 0 where there is none.
size() {
	sy_size=0
	[ ! -f "$1" ] || sy_size=$(($(wc -c <"$1")))
}

# ended: reads how the command ended; fails if it has not.
ended() {
	sy_end=
	{ read -r sy_end <"$sy_run/rc"; } 2>/dev/null
	set -- $sy_end
	[ $# = 5 ]
}

# keeper: reads who keeps the command; fails if nobody does any more.
keeper() {
	sy_keeper= sy_start= sy_begun=
	{ read -r sy_keeper sy_start sy_begun <"$sy_run/keeper"; } 2>/dev/null
	[ -n "$sy_begun" ] && born "$sy_keeper" && [ "$sy_born" = "$sy_start" ]
}

# marked: the processes that carry the command's mark. Busybox's grep sees nothing behind a NUL.
marked() {
	case $(grep --version 2>/dev/null) in
	*GNU*) grep -lF "SANDYARD_SPOOL=$sy_dir/" /proc/[0-9]*/environ | sed 's/^/M /' ;;
	*)
		for sy_at in /proc/[0-9]*; do
			tr '\0' '\n' <"$sy_at/environ" | grep -qF "SANDYARD_SPOOL=$sy_dir/" && echo "M $sy_at/"
		done
		;;
	esac
}

# tree: the processes of the command: those that carry its mark or have its output open, those of its session, and all
# that these have started. The keeper and its readers are a session of their own. Of processes that vanish while they are
# read cat goes on with the next one; GNU's sed would end.
tree() {
	sy_leader=
	{ read -r sy_leader <"$sy_run/leader"; } 2>/dev/null
	sy_kept=none
	if keeper; then sy_kept=$sy_keeper; fi
	{
		marked
		ls -l /proc/[0-9]*/fd | awk -v dir="-> $sy_dir/run/" '
			/^\/proc\// { at = $1 }
			index($0, dir) && /\/(out|err)\.pipe$/ { print "M", at }'
		cat /proc/[0-9]*/stat | sed 's/^/S /'
	} 2>/dev/null | awk -v leader="$sy_leader" -v kept="$sy_kept" -v self="$$" '
		$1 == "M" { split($2, part, "/"); mark[part[3]] = 1 }
		$1 == "S" {
			pid = $2; line = $0; sub(/^.*\) /, "", line); split(line, f, " ")
			if (pid ~ /^[1-9][0-9]*$/ && pid != 1 && f[1] != "Z" && f[1] != "X") { parent[pid] = f[2]; session[pid] = f[4] }
		}
		END {
			for (p in parent) if (p in mark || p == leader || session[p] == leader) hit[p] = 1
			do {
				more = 0
				for (p in parent) if (!(p in hit) && (parent[p] in hit || session[p] in hit)) { hit[p] = 1; more = 1 }
			} while (more)
			for (p in hit) if (session[p] != kept && p != self) print p
		}'
}

# endtree WHY: TERM for all of the command, two seconds to end, then KILL until nothing is left. Where it has left no
# room for that, its own group is killed, which needs no process: the next call finds more room.
endtree() {
	[ -e "$sy_run/why" ] || echo "$1" >"$sy_run/why"
	sy_leader=
	{ read -r sy_leader <"$sy_run/leader"; } 2>/dev/null
	if [ -n "$sy_leader" ] && keeper; then # who still waits for the leader, so that no other group has its number
		trap 'exec sh -c '\''kill -s KILL -- "-$1"; echo "spool1 $2"'\'' sh "$sy_leader" "$sy_unsaid" 2>/dev/null' EXIT
	fi
	sy_turn=0 sy_naps=0
	while [ "$sy_turn" -lt 100 ]; do
		sy_pids=$(tree)
		[ -n "$sy_pids" ] || break
		if [ "$sy_turn" = 0 ]; then
			kill -TERM $sy_pids
			kill -CONT $sy_pids
			now
			sy_soft=$((sy_now + 200))
		else
			now
			[ "$sy_now" -lt "$sy_soft" ] || kill -KILL $sy_pids
		fi 2>/dev/null
		sy_turn=$((sy_turn + 1))
		nap
	done
	settle
}

# settle: the keeper writes how the command ended. One that was stopped is woken, and one that is gone or does not come
# to itself is stood in for: what it has not said is lost, or gone with all processes in a restart.
settle() {
	sy_turn=0 sy_naps=0
	while ! ended && keeper && [ "$sy_turn" -lt 40 ]; do
		[ "$sy_turn" != 20 ] || kill -CONT "$sy_keeper" 2>/dev/null
		sy_turn=$((sy_turn + 1))
		nap
	done
	! ended || return 0
	if keeper; then kill -KILL "$sy_keeper" 2>/dev/null; fi
	sy_why=lost
	{ read -r sy_why <"$sy_run/why"; } 2>/dev/null
	sy_then=
	{ read -r sy_then <"$sy_run/life"; } 2>/dev/null
	life
	# Where it has not written its life, either, it may yet begin, on a busy machine.
	if [ "$sy_why" = lost ] && [ -n "$sy_then" ] && [ "$sy_then" != "$sy_life" ]; then sy_why=restart; fi
	size "$sy_dir/out"
	sy_out=$sy_size
	size "$sy_dir/err"
	now
	sy_took=$((sy_now - ${sy_begun:-$sy_now}))
	[ "$sy_took" -ge 0 ] || sy_took=0 # it ran before the machine's start
	echo "137 $sy_why $sy_took $sy_out $sy_size" >"$sy_run/rc.$$"
	mv -f "$sy_run/rc.$$" "$sy_run/rc"
}

# show: how the command ended, and the first bytes of its output.
show() {
	if ! ended; then
		answer refused space
		exit 0
	fi
	set -- $sy_end
	again 'size "$sy_dir/out"' || exit 0
	sy_out=$sy_size
	[ "$sy_out" -le "$4" ] || sy_out=$4
	[ "$sy_out" -le "$sy_max" ] || sy_out=$sy_max
	again 'size "$sy_dir/err"' || exit 0
	sy_err=$sy_size
	[ "$sy_err" -le "$5" ] || sy_err=$5
	[ "$sy_err" -le "$sy_max" ] || sy_err=$sy_max
	answer "ended $sy_end $sy_out $sy_err"
	[ "$sy_out" = 0 ] || again 'head -c "$sy_out" "$sy_dir/out"'
	[ "$sy_err" = 0 ] || again 'head -c "$sy_err" "$sy_dir/err"'
	exit 0
}
