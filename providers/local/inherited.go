package local

import (
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// keepInherited keeps what this process got open from its parent, such as a shell's lock, from shims and so from the
// programs of sandboxes. What Go opens stays here anyway.
func keepInherited() error {
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return err
	}
	for _, one := range open {
		if fd, err := strconv.Atoi(one.Name()); err == nil && fd > 2 {
			unix.CloseOnExec(fd)
		}
	}
	return nil
}
