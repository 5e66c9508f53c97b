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

// keeperProcess is a descriptor of a keeper that lived when it was opened. It never stands for another process.
type keeperProcess struct{ *os.File }

// openKeeper answers nil where no keeper lives. One that has not said yet who it is will in a moment.
func openKeeper(ctx context.Context, b box) (*keeperProcess, error) {
	for {
		pid, alive := shim.Alive(b.dir)
		if !alive {
			return nil, nil //nolint:nilnil // there is none
		}
		if pid > 0 {
			k, err := openProcess(pid)
			if err != nil && !errors.Is(err, unix.ESRCH) {
				return nil, fmt.Errorf("open the keeper's process: %w", err)
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
			return nil, fmt.Errorf("wait for the keeper: %w", ctx.Err())
		}
	}
}

func openProcess(pid int) (*keeperProcess, error) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return nil, err
	}
	if err := unix.SetNonblock(fd, true); err != nil { // so that Go's poller takes it
		return nil, errors.Join(err, unix.Close(fd))
	}
	return &keeperProcess{os.NewFile(uintptr(fd), "keeper")}, nil
}

// endLook is how often a wait for the end of a keeper looks whether it is still wanted.
const endLook = 50 * time.Millisecond

// ended waits until the process has ended; it answers false once ctx has.
func (k *keeperProcess) ended(ctx context.Context) bool {
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
func (k *keeperProcess) kill() {
	if raw, err := k.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { _ = unix.PidfdSendSignal(int(fd), unix.SIGKILL, nil, 0) })
	}
}
