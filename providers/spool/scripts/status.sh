# Says whether the command runs, and starts nothing.
if [ -e "$sy_run/leader" ] || ended; then answer running 0; else answer none; fi
