package confine

import (
	"slices"

	"github.com/moby/profiles/seccomp"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// Calls is the list of system calls that a sandbox may make: the current default profile of Docker, made narrower. An
// engine's built-in one may be years old (that of 20.10 lets AF_VSOCK and io_uring through), and a sandbox needs less
// than a service does.
func Calls() *seccomp.Seccomp {
	profile := seccomp.DefaultProfile()
	for i := range profile.ArchMap {
		// 32-bit calls would pass every rule on arguments below by the back door of socketcall.
		profile.ArchMap[i].SubArches = nil
	}
	without := withheld()
	for _, call := range profile.Syscalls {
		call.Names = slices.DeleteFunc(call.Names, func(name string) bool { return slices.Contains(without, name) })
	}
	profile.Syscalls = slices.DeleteFunc(profile.Syscalls, func(s *seccomp.Syscall) bool { return len(s.Names) == 0 })
	profile.Syscalls = append(profile.Syscalls, allowWhen("prlimit64", 0))
	for _, family := range []uint64{unix.AF_UNIX, unix.AF_INET, unix.AF_INET6, unix.AF_NETLINK} {
		profile.Syscalls = append(profile.Syscalls, allowWhen("socket", family))
	}
	profile.Syscalls = append(profile.Syscalls, signals()...)
	return profile
}

// withheld are calls of the default profile that a sandbox does not get, or gets back for some arguments only: limits
// of other processes would let a program starve the guest, tracing reaches into it, and io_uring goes around the list.
func withheld() []string {
	return []string{
		"prlimit64", "ptrace", "process_vm_readv", "process_vm_writev", "pidfd_getfd", "kcmp", "process_madvise",
		"socket", "socketcall", "io_uring_setup", "io_uring_enter", "io_uring_register",
		"rt_sigqueueinfo", "rt_tgsigqueueinfo", "pidfd_send_signal", "fcntl", "fcntl64",
	}
}

// allowWhen allows a call whose first argument is value.
func allowWhen(name string, value uint64) *seccomp.Syscall { return allowArg(name, 0, value) }

// allowArg allows a call whose argument at index is value.
func allowArg(name string, index uint, value uint64) *seccomp.Syscall {
	return &seccomp.Syscall{LinuxSyscall: specs.LinuxSyscall{
		Names:  []string{name},
		Action: specs.ActAllow,
		Args:   []specs.LinuxSeccompArg{{Index: index, Value: value, Op: specs.OpEqualTo}},
	}}
}
