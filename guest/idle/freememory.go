package idle

import (
	"fmt"
	"os"
	"runtime/debug"
	"strings"

	"golang.org/x/sys/unix"
)

// freeMemory frees what is not in use, and lets go of the program's own pages: the kernel may drop those that no guest
// uses, and shows them again at the next call that needs them.
func freeMemory() {
	debug.FreeOSMemory()
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return
	}
	for line := range strings.Lines(string(maps)) {
		if from, size, ok := programPages(line); ok {
			_, _, _ = unix.Syscall(unix.SYS_MADVISE, from, size, unix.MADV_DONTNEED) // a kernel that will not keeps them
		}
	}
}

// programPages tells whether a line of /proc/self/maps is of a file that this process cannot write to: the program's
// code and constants.
func programPages(line string) (from, size uintptr, ok bool) {
	var to, offset uintptr
	var rights, device string
	var inode uint64
	_, err := fmt.Sscanf(line, "%x-%x %s %x %s %d", &from, &to, &rights, &offset, &device, &inode)
	return from, to - from, err == nil && inode != 0 && strings.HasPrefix(rights, "r-")
}
