# What the scripts and the keeper share.

# now: hundredths of a second since the machine's start.
now() {
	read -r sy_up _ </proc/uptime
	sy_now=$((${sy_up%.*} * 100 + 1${sy_up#*.} - 100))
}

# life: what is another after a restart of the machine, or of the sandbox's first process, which ends all others.
life() {
	sy_boot= sy_stat=
	{
		read -r sy_boot </proc/sys/kernel/random/boot_id
		read -r sy_stat </proc/1/stat
	} 2>/dev/null
	set -- ${sy_stat##*) }
	sy_life="$sy_boot ${20}"
}

# again LINE: runs it, and for five seconds again where there is no room for its processes. Dash and busybox end a
# script that cannot fork, with status 2, unless `command` runs it; bash waits by itself before it ends. Nothing sleeps
# between two tries, because a sleep is a process, too.
again() {
	now
	sy_until=$((sy_now + 500))
	while :; do
		command eval "$1" 2>/dev/null
		sy_status=$?
		[ "$sy_status" = 2 ] || return "$sy_status"
		now
		[ "$sy_now" -lt "$sy_until" ] || return 2
		sy_next=$((sy_now + 5))
		while [ "$sy_now" -lt "$sy_next" ]; do now; done
	done
}
