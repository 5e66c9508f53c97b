package procs

import (
	"os"
	"os/signal"
	"syscall"
)

// shield catches every signal that code in the sandbox could end the guest with. The kernel keeps SIGKILL and
// SIGSTOP from process 1 by itself. Caught rather than ignored: commands would inherit an ignored signal.
func shield() (stop func()) {
	caught := make(chan os.Signal, 1) // nobody reads it
	signal.Notify(
		caught, syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGILL, syscall.SIGTRAP, syscall.SIGABRT,
		syscall.SIGBUS, syscall.SIGFPE, syscall.SIGUSR1, syscall.SIGSEGV, syscall.SIGUSR2, syscall.SIGPIPE,
		syscall.SIGALRM, syscall.SIGTERM, syscall.SIGSTKFLT, syscall.SIGXCPU, syscall.SIGXFSZ, syscall.SIGVTALRM,
		syscall.SIGPROF, syscall.SIGIO, syscall.SIGPWR, syscall.SIGSYS,
	)
	return func() { signal.Stop(caught) }
}
