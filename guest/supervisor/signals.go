package supervisor

import (
	"syscall"
	"unsafe"
)

// The real-time signals, with those that C libraries keep for themselves.
const firstRealTime, lastRealTime = 32, 64

// Handlers that the kernel provides, as in its asm-generic/signal-defs.h.
const handlerDefault, handlerIgnore = 0, 1

// action is the kernel's struct sigaction of 64-bit machines.
type action struct {
	handler, flags, restorer uintptr
	mask                     uint64
}

// IgnoreRealTime makes the kernel drop every real-time signal to this process. Caught ones would queue up, tens of
// thousands of them, and the runtime does not catch 32 and 34. It takes the runtime's handlers away: number 33 is what
// AllThreadsSyscall needs, which must not be called afterwards.
//
// Of its children those that call Run are not affected. For others 32 and 34 stay ignored.
func IgnoreRealTime() error {
	for n := firstRealTime; n <= lastRealTime; n++ {
		if err := handle(n, handlerIgnore); err != nil {
			return err
		}
	}
	return nil
}

// defaultRealTime undoes what this process has inherited of IgnoreRealTime, so that commands do not. The runtime
// handles the other ones itself: it catches them, and forks children with their defaults.
func defaultRealTime() {
	for _, n := range []int{32, 34} {
		_ = handle(n, handlerDefault)
	}
}

func handle(n int, handler uintptr) error {
	a := action{handler: handler}
	_, _, errno := syscall.RawSyscall6(
		syscall.SYS_RT_SIGACTION,
		uintptr(n),
		uintptr(unsafe.Pointer(&a)),
		0,
		unsafe.Sizeof(a.mask),
		0,
		0,
	)
	if errno != 0 {
		return errno
	}
	return nil
}
