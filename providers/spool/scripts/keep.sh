# The keeper of one command: it has the lock, reads the output and writes how the command ended. Arguments: the
# directory, how much of each output is kept, and the directory of this try in there. It is a session of its own, so
# that it outlives whoever started it. A shell that cannot fork ends: what it leaves then says how far it has come.
cd "$1" || exit 1
sy_max=$2 sy_run=$3 sy_out= sy_err= sy_code= sy_took=
mkdir "$sy_run" 2>/dev/null || exit 0

# The keeper's last words: that output is lost, or that the command has not begun and will not, because this takes
# leader first: then another try may begin. A new shell says them, as one of bash waits for the readers after a failed
# fork.
sy_last='
if [ -n "$3" ]; then
	[ -s "$1/rc" ] || echo "$4 output $3 0 0" >"$1/rc"
	exit 0
fi
set -C
{ :; } >"$1/leader" || exit 0
set +C
kill -KILL $2
: >"$1/unbegun"
'
trap 'exec sh -c "$sy_last" sandyard-keeper "$sy_run" "$sy_out $sy_err" "$sy_took" "$sy_code"' EXIT

read -r sy_stat <"/proc/$$/stat"
set -- ${sy_stat##*) }
shift 19
life
echo "$sy_life" >"$sy_run/life"
now
sy_begun=$sy_now
echo "$$ $1 $sy_begun" >"$sy_run/keeper" || exit 1

# take FILE: appends what comes at 3 to its output, which is the file, until that holds enough, and counts the rest.
# What one read brings is written at once: a child of the command may hold the pipe open long after the command has
# ended. Kept is empty while nobody reads. A reader that cannot go on leaves it so, and reads for nothing: the command
# must not feel that.
take() {
	sy_file=$1 sy_had=0
	sy_kept=$sy_run/$1.kept
	trap '' USR1
	trap 'exec cat <&3 >/dev/null' EXIT
	while [ "$sy_had" -lt "$sy_max" ]; do
		again 'dd bs=65536 count=$(((sy_max - sy_had + 65535) / 65536)) <&3 &' || exit 1
		echo whole >"$sy_kept"
		if ! wait "$!"; then
			: >"$sy_kept"
			exit 1
		fi
		[ ! -e "$sy_run/forgotten" ] || break
		: >"$sy_kept"
		again 'sy_has=$(wc -c "$sy_file")' || exit 1
		if [ "${sy_has%% *}" -le "$sy_had" ]; then
			trap - EXIT
			echo whole >"$sy_kept"
			exit 0
		fi
		sy_had=${sy_has%% *}
	done
	echo whole >"$sy_kept"
	again 'sy_dd=$(dd --version)'
	case $sy_dd in
	*coreutils*) exec env LC_ALL=C dd bs=65536 of=/dev/null <&3 2>"$sy_run/$1.rest" ;;
	*) exec wc -c <&3 >"$sy_run/$1.rest" ;; # which counts as well, but says nothing before the end
	esac
}

# rest FILE: what its reader has counted, which it says at its end and when it is asked.
rest() {
	sy_rest=0
	[ -s "$sy_run/$1.rest" ] || return 0
	sy_rest=$(awk '/^ *[0-9]+( byte|$)/ { n = $1 } END { print n ? n : 0 }' "$sy_run/$1.rest")
}

# reads PID: whether a reader goes on. One that counts is asked how far it has come.
reads() {
	sy_stat=
	{ read -r sy_stat <"/proc/$1/stat"; } 2>/dev/null
	case ${sy_stat##*) } in '' | Z* | X*) return 1 ;; esac
	[ ! -e "$sy_run/$2.rest" ] || kill -USR1 "$1" 2>/dev/null
}

# drain: waits for the readers, unless somebody still holds a pipe open and nothing more comes, or it does not end.
drain() {
	sy_still=0 sy_seen= sy_turn=0 sy_whole=
	while { reads "$sy_out" out || reads "$sy_err" err; } && [ "$sy_still" -lt 12 ] &&
		{ [ "$sy_turn" -lt 400 ] || { [ -z "$sy_whole" ] && [ "$sy_turn" -lt 600 ]; }; }; do
		sy_turn=$((sy_turn + 1))
		if [ "$sy_turn" -lt 6 ]; then sleep 0.01; else sleep 0.03; fi 2>/dev/null || sleep 1
		[ "$sy_turn" -ge 6 ] || continue
		rest out
		sy_sum="$(wc -c out err) $sy_rest"
		rest err
		sy_sum="$sy_sum $sy_rest" sy_whole=
		if [ -s "$sy_run/out.kept" ] && [ -s "$sy_run/err.kept" ]; then sy_whole=1; fi
		if [ "$sy_sum" = "$sy_seen" ] && [ -n "$sy_whole" ]; then sy_still=$((sy_still + 1)); else sy_still=0; fi
		sy_seen=$sy_sum
	done
}

# whole FILE PID: whether the reader has kept all that came, as far as drain has waited for it.
whole() {
	if reads "$2" "$1"; then
		[ -n "$sy_whole" ]
	else
		wait "$2" && [ -s "$sy_run/$1.kept" ]
	fi
}

: >out
: >err
mkfifo "$sy_run/out.pipe" "$sy_run/err.pipe"
[ -p "$sy_run/out.pipe" ] && [ -p "$sy_run/err.pipe" ] || exit 1
: >"$sy_run/out.kept"
: >"$sy_run/err.kept"
take out 3<"$sy_run/out.pipe" >>out &
sy_out=$!
take err 3<"$sy_run/err.pipe" >>err &
sy_err=$!
[ -e in ] || : >in
setsid sh ./cmd "$sy_run" <in >"$sy_run/out.pipe" 2>"$sy_run/err.pipe"
sy_code=$?
[ -e "$sy_run/leader" ] || [ -e "$sy_run/refused" ] || [ -e "$sy_run/why" ] || exit 1
now
sy_took=$((sy_now - sy_begun))
again drain || exit 1
sy_why=-
[ ! -e "$sy_run/refused" ] || read -r sy_why <"$sy_run/refused"
[ ! -e "$sy_run/why" ] || read -r sy_why <"$sy_run/why"
whole out "$sy_out" && whole err "$sy_err" || sy_why=output
again 'sy_sizes=$(wc -c out err)' && again 'rest out' || exit 1
set -- $sy_sizes
sy_outs=$(($1 + sy_rest))
again 'rest err' || exit 1
sy_errs=$(($3 + sy_rest))
[ ! -s in ] || again 'rm -f in'
echo "$sy_code $sy_why $sy_took $sy_outs $sy_errs" >"$sy_run/rc"
trap - EXIT
