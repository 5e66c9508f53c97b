# Says whether the command runs, and starts nothing.
if [ -e "$sy_dir/run/leader" ] || [ -e "$sy_dir/run/rc" ]; then echo "spool1 running 0"; else echo "spool1 none"; fi
