package filter

import (
	_ "embed"
	"fmt"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

//go:generate sh calls.sh

//go:embed calls_amd64.txt
var amd64Calls string

//go:embed calls_arm64.txt
var arm64Calls string

// machine is what a filter must know of the processor: the kernel's name for it, and the numbers of its calls.
type machine struct {
	audit uint32
	calls map[string]uint32
}

func thisMachine() (machine, error) {
	switch runtime.GOARCH {
	case "amd64":
		return machine{unix.AUDIT_ARCH_X86_64, numbers(amd64Calls)}, nil
	case "arm64":
		return machine{unix.AUDIT_ARCH_AARCH64, numbers(arm64Calls)}, nil
	default:
		return machine{}, fmt.Errorf("no table of system calls for %s", runtime.GOARCH)
	}
}

func numbers(table string) map[string]uint32 {
	calls := map[string]uint32{}
	for line := range strings.Lines(table) {
		var name string
		var number uint32
		if _, err := fmt.Sscan(line, &name, &number); err == nil {
			calls[name] = number
		}
	}
	return calls
}
