package local

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"sandyard/providers/local/shim"
)

// shimProcess is a descriptor of a shim that lived when it was opened. It never stands for another process.
type shimProcess struct{ *os.File }

// openShim answers nil where no shim lives. One that has not said yet who it is will in a moment.
func openShim(ctx context.Context, b box) (*shimProcess, error) {
	for {
		pid, alive := shim.Alive(b.dir)
		if !alive {
			return nil, nil //nolint:nilnil // there is none
		}
		if pid > 0 {
			k, err := openProcess(pid)
			if err != nil && !errors.Is(err, unix.ESRCH) {
				return nil, fmt.Errorf("open the shim's process: %w", err)
			}
			// The number may have become another's between the two.
			if again, alive := shim.Alive(b.dir); err == nil && alive && again == pid {
				return k, nil
			}
			if err == nil {
				_ = k.Close()
			}
		}
		select {
		case <-time.After(endPoll):
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for the shim: %w", ctx.Err())
		}
	}
}

func openProcess(pid int) (*shimProcess, error) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return nil, err
	}
	if err := unix.SetNonblock(fd, true); err != nil { // so that Go's poller takes it
		return nil, errors.Join(err, unix.Close(fd))
	}
	return &shimProcess{os.NewFile(uintptr(fd), "shim")}, nil
}

// endLook is how often a wait for the end of a shim looks whether it is still wanted.
const endLook = 50 * time.Millisecond

// ended waits until the process has ended; it answers false once ctx has.
func (k *shimProcess) ended(ctx context.Context) bool {
	raw, err := k.SyscallConn()
	for ended := false; err == nil && !ended; {
		if ctx.Err() != nil {
			return false
		}
		_ = k.SetReadDeadline(time.Now().Add(endLook))
		_ = raw.Read(func(fd uintptr) bool {
			ready := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
			n, err := unix.Poll(ready, 0)
			ended = err == nil && n > 0
			return ended
		})
	}
	return err == nil
}

// kill does nothing to a process that has ended.
func (k *shimProcess) kill() {
	if raw, err := k.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { _ = unix.PidfdSendSignal(int(fd), unix.SIGKILL, nil, 0) })
	}
}
