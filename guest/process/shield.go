package process

import (
	"os"
	"os/signal"
	"syscall"

	"sandyard/guest/supervisor"
)

// shield keeps every signal away by which code in the sandbox could end, stop or delay the guest. Linux protects
// process 1 from SIGKILL, SIGSTOP and what it leaves at the default action; gVisor does not.
//
// Commands would inherit an ignored signal, so those that do not queue are caught, and supervisors set back the others.
func shield() (stop func(), err error) {
	if err := supervisor.IgnoreRealTime(); err != nil {
		return nil, os.NewSyscallError("rt_sigaction", err)
	}
	caught := make(chan os.Signal, 1) // nobody reads it
	signal.Notify(
		caught, syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGILL, syscall.SIGTRAP, syscall.SIGABRT,
		syscall.SIGBUS, syscall.SIGFPE, syscall.SIGUSR1, syscall.SIGSEGV, syscall.SIGUSR2, syscall.SIGPIPE,
		syscall.SIGALRM, syscall.SIGTERM, syscall.SIGSTKFLT, syscall.SIGTSTP, syscall.SIGTTIN, syscall.SIGTTOU,
		syscall.SIGXCPU, syscall.SIGXFSZ, syscall.SIGVTALRM, syscall.SIGPROF, syscall.SIGIO, syscall.SIGPWR, syscall.SIGSYS,
	)
	return func() { signal.Stop(caught) }, nil
}
