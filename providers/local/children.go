package local

import (
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// children are the shims that this process started. They end on their own; what remains to do is to take note of it,
// or their numbers would stay taken until this process ends.
type children struct {
	mu   sync.Mutex
	pids map[int]struct{}
}

// adopt takes over a started process.
func (c *children) adopt(p *os.Process) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pids == nil {
		c.pids = make(map[int]struct{})
	}
	c.pids[p.Pid] = struct{}{}
	_ = p.Release()
}

// reap takes note of all that have ended.
func (c *children) reap() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for pid := range c.pids {
		if found, err := unix.Wait4(pid, nil, unix.WNOHANG, nil); found == pid || err != nil {
			delete(c.pids, pid)
		}
	}
}
