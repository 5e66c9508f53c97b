# Writes a line for each process: pid, parent, state, threads, resident KiB and command line, with tabs between them.
tab=$(printf '\t')
for dir in /proc/[0-9]*; do
	[ -r "$dir/status" ] || continue
	name= parent= state= threads= rss=0
	while read -r key value rest; do
		case $key in
		Name:) name=$value ;;
		PPid:) parent=$value ;;
		State:) state=$value ;;
		Threads:) threads=$value ;;
		VmRSS:) rss=$value ;;
		esac
	done <"$dir/status" 2>/dev/null
	[ -n "$parent" ] || continue
	command=$(tr '\0\n\t' '   ' <"$dir/cmdline" 2>/dev/null | cut -c1-200)
	[ "${dir#/proc/}" = $$ ] || echo "${dir#/proc/}$tab$parent$tab$state$tab$threads$tab$rss$tab${command:-[$name]}"
done
