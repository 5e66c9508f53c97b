package filter

import (
	"runtime"
	"slices"

	"github.com/moby/profiles/seccomp"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// rules are the profile's for a program without any capability on this machine, with our own changes.
func rules() []specs.LinuxSyscall {
	var all []specs.LinuxSyscall
	for _, call := range seccomp.DefaultProfile().Syscalls {
		if !applies(call) {
			continue
		}
		rule := call.LinuxSyscall
		rule.Names = slices.DeleteFunc(slices.Clone(rule.Names), func(name string) bool { return slices.Contains(withheld(), name) })
		all = append(all, rule)
	}
	all = append(all, allowWhen("prlimit64", 0))
	for _, family := range []uint64{unix.AF_UNIX, unix.AF_INET, unix.AF_INET6, unix.AF_NETLINK} {
		all = append(all, allowWhen("socket", family))
	}
	return all
}

// applies leaves out what the profile gives to other machines or to holders of capabilities. The kernels it has
// conditions on are older than any that could run this.
func applies(call *seccomp.Syscall) bool {
	if in := call.Includes; in != nil {
		if len(in.Caps) > 0 || len(in.Arches) > 0 && !slices.Contains(in.Arches, runtime.GOARCH) {
			return false
		}
	}
	return call.Excludes == nil || !slices.Contains(call.Excludes.Arches, runtime.GOARCH)
}

// withheld are calls of the profile that a sandbox does not get, or gets back for some arguments only: limits of other
// processes would let a program starve the guest, tracing reaches into it, and io_uring goes around the filter.
func withheld() []string {
	return []string{
		"prlimit64", "ptrace", "process_vm_readv", "process_vm_writev", "pidfd_getfd", "kcmp", "process_madvise",
		"socket", "socketcall", "io_uring_setup", "io_uring_enter", "io_uring_register",
	}
}

func allowWhen(name string, first uint64) specs.LinuxSyscall {
	return specs.LinuxSyscall{
		Names:  []string{name},
		Action: specs.ActAllow,
		Args:   []specs.LinuxSeccompArg{{Index: 0, Value: first, Op: specs.OpEqualTo}},
	}
}
