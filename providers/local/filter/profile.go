package filter

import (
	"runtime"
	"slices"

	"github.com/moby/profiles/seccomp"
	"github.com/opencontainers/runtime-spec/specs-go"

	"sandyard/providers/confine"
)

// rules are those of the list of system calls that are for a program without any capability on this machine.
func rules() []specs.LinuxSyscall {
	var all []specs.LinuxSyscall
	for _, call := range confine.Calls().Syscalls {
		if applies(call) {
			all = append(all, call.LinuxSyscall)
		}
	}
	return all
}

// applies leaves out what the list gives to other machines or to holders of capabilities. The kernels it has
// conditions on are older than any that could run this.
func applies(call *seccomp.Syscall) bool {
	if in := call.Includes; in != nil {
		if len(in.Caps) > 0 || len(in.Arches) > 0 && !slices.Contains(in.Arches, runtime.GOARCH) {
			return false
		}
	}
	return call.Excludes == nil || !slices.Contains(call.Excludes.Arches, runtime.GOARCH)
}
