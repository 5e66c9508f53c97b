package process

import "golang.org/x/sys/unix"

// limits are those without which the guest is of no use. Where the kernel obeys no list of calls, as gVisor's, code in
// the sandbox may lower them for good.
type limits [3]uint64

func limitsNow() limits {
	var l limits
	for i, which := range []int{unix.RLIMIT_NOFILE, unix.RLIMIT_FSIZE, unix.RLIMIT_NPROC} {
		var r unix.Rlimit
		if unix.Getrlimit(which, &r) == nil {
			l[i] = r.Cur
		}
	}
	return l
}

// Lowered says that a limit of this process is lower than when it was taken over.
func (h *Host) Lowered() bool {
	for i, now := range limitsNow() {
		if now < h.limits[i] {
			return true
		}
	}
	return false
}
