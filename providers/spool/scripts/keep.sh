# The keeper of one command: it has the lock, reads the output and writes how the command ended. Arguments: the
# directory, and how much of each output is kept. It is a session of its own, so that it outlives whoever started it.
cd "$1" || exit 1
sy_max=$2
mkdir run 2>/dev/null || exit 0

now() {
	read -r sy_up _ </proc/uptime
	sy_now=$((${sy_up%.*} * 100 + 1${sy_up#*.} - 100))
}

read -r sy_stat <"/proc/$$/stat"
set -- ${sy_stat##*) }
shift 19
now
sy_begun=$sy_now
echo "$$ $1 $sy_begun" >run/keeper.new && mv run/keeper.new run/keeper

# take FILE: appends what comes to the file until that holds enough, and counts the rest. What one read brings is
# written at once: a child of the command may hold the pipe open long after the command has ended.
take() {
	trap '' USR1
	sy_had=0
	while [ "$sy_had" -lt "$sy_max" ]; do
		dd bs=65536 count=1 >>"$1" 2>/dev/null
		[ ! -e run/forgotten ] || break
		sy_has=$(($(wc -c <"$1")))
		[ "$sy_has" -gt "$sy_had" ] || exit 0
		sy_had=$sy_has
	done
	case $(dd --version 2>/dev/null) in
	*coreutils*) exec env LC_ALL=C dd bs=65536 of=/dev/null 2>"run/$1.rest" ;;
	*) exec wc -c >"run/$1.rest" ;; # which counts as well, but says nothing before the end
	esac
}

# rest FILE: what its reader has counted, which it says at its end and when it is asked.
rest() {
	sy_rest=0
	[ ! -s "run/$1.rest" ] || sy_rest=$(awk '/^ *[0-9]+( byte|$)/ { n = $1 } END { print n ? n : 0 }' "run/$1.rest")
}

# reads PID: whether a reader goes on. One that counts is asked how far it has come.
reads() {
	sy_stat=
	{ read -r sy_stat <"/proc/$1/stat"; } 2>/dev/null
	case ${sy_stat##*) } in '' | Z* | X*) return 1 ;; esac
	[ ! -e "run/$2.rest" ] || kill -USR1 "$1" 2>/dev/null
}

# drain: waits for the readers, unless somebody still holds a pipe open and nothing more comes.
drain() {
	sy_still=0 sy_seen= sy_turn=0
	while { reads "$sy_out" out || reads "$sy_err" err; } && [ "$sy_still" -lt 12 ] && [ "$sy_turn" -lt 400 ]; do
		sy_turn=$((sy_turn + 1))
		if [ "$sy_turn" -lt 6 ]; then sleep 0.01; else sleep 0.03; fi 2>/dev/null || sleep 1
		[ "$sy_turn" -ge 6 ] || continue
		rest out
		sy_sum="$(wc -c out err) $sy_rest"
		rest err
		sy_sum="$sy_sum $sy_rest"
		if [ "$sy_sum" = "$sy_seen" ]; then sy_still=$((sy_still + 1)); else sy_still=0; fi
		sy_seen=$sy_sum
	done
}

: >out
: >err
mkfifo out.pipe err.pipe
take out <out.pipe &
sy_out=$!
take err <err.pipe &
sy_err=$!
[ -e in ] || : >in
setsid sh ./cmd <in >out.pipe 2>err.pipe
sy_code=$?
now
sy_took=$((sy_now - sy_begun))
drain
rm -f in
sy_why=-
[ ! -e run/refused ] || read -r sy_why <run/refused
[ ! -e run/why ] || read -r sy_why <run/why
rest out
sy_outs=$(($(wc -c <out) + sy_rest))
rest err
sy_errs=$(($(wc -c <err) + sy_rest))
echo "$sy_code $sy_why $sy_took $sy_outs $sy_errs" >run/rc.new
mv run/rc.new run/rc
