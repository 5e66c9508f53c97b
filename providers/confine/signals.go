package confine

import (
	"math"

	"github.com/moby/profiles/seccomp"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// fcntlSetSig is F_SETSIG: which signal announces that a file is ready.
const fcntlSetSig = 10

// signals are the calls by which a program can send a signal that looks like one of the kernel's own. A program in Go, as the
// guest is, takes such a SIGSEGV for a fault of its own and ends, whatever it catches. So no call may send the signals of
// faults with information of the sender's choice: sigqueue has those that programs queue, a pidfd sends none with it, and
// fcntl chooses no signal. Plain kill, tgkill and pidfd_send_signal send all signals.
func signals() []*seccomp.Syscall {
	all := []*seccomp.Syscall{allowArg("pidfd_send_signal", 2, 0)}
	for index, call := range []string{1: "rt_sigqueueinfo", 2: "rt_tgsigqueueinfo"} {
		if call == "" {
			continue
		}
		for _, signal := range queued() {
			all = append(all, allowArg(call, uint(index), uint64(signal)))
		}
		all = append(all, allowMasked(call, uint(index), except(31), 32), allowArg(call, uint(index), 64)) // the real-time signals
	}
	// All commands from 0 to 31 but one, and those of Linux from 1024 on.
	for command := uint64(8); command < 12; command++ {
		if command != fcntlSetSig {
			all = append(all, allowArg("fcntl", 1, command))
		}
	}
	return append(all,
		allowMasked("fcntl", 1, except(7), 0), allowMasked("fcntl", 1, except(3), 12), allowMasked("fcntl", 1, except(15), 16),
		allowMasked("fcntl", 1, except(31), 32), allowMasked("fcntl", 1, except(1023), 1024))
}

// queued are the signals below the real-time ones that programs queue.
func queued() []unix.Signal {
	return []unix.Signal{
		unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGUSR1, unix.SIGUSR2, unix.SIGALRM, unix.SIGTERM, unix.SIGCHLD, unix.SIGCONT,
		unix.SIGIO,
	}
}

// except is a mask of all bits but these. It holds the upper half of an argument, too, of which the kernel reads the lower one.
func except(bits uint64) uint64 { return math.MaxUint64 &^ bits }

func allowMasked(name string, index uint, mask, value uint64) *seccomp.Syscall {
	return &seccomp.Syscall{LinuxSyscall: specs.LinuxSyscall{
		Names: []string{name}, Action: specs.ActAllow,
		Args: []specs.LinuxSeccompArg{{Index: index, Value: mask, ValueTwo: value, Op: specs.OpMaskedEqual}},
	}}
}
