package process

import (
	"os"
	"time"
)

// Where the kernel lets nobody but process 1 adopt orphans, as gVisor's of 2022 does, what a command has detached is a
// stray like those whose supervisor was killed. Which command's it was cannot be told any more, only whose not: what
// was a stray before a command began is spared when that one is killed.

// expectOrphans notes that the kernel is such a one.
func (h *Host) expectOrphans() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.orphans = true
}

func (h *Host) expectsOrphans() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.orphans
}

// walkPatience is how long a walk over all processes may take.
func (h *Host) walkPatience() time.Duration { return h.patience(walkPatience) }

// deathPatience is how long processes that were killed may take to be gone.
func (h *Host) deathPatience() time.Duration { return h.patience(deathPatience) }

// patience is longer on such a kernel, where everything takes a few times longer.
func (h *Host) patience(elsewhere time.Duration) time.Duration {
	if h.expectsOrphans() {
		return 4 * elsewhere
	}
	return elsewhere
}

// straysNow returns the strays that there are, with all below them, where a command's orphans become such.
func (h *Host) straysNow() map[int]bool {
	if !h.expectsOrphans() {
		return nil
	}
	now := map[int]bool{}
	for _, pid := range h.tree(nobody()) {
		now[pid] = true
	}
	return now
}

// destroyStrays kills the strays that are not spared, where a command's orphans become such.
func (h *Host) destroyStrays(spared map[int]bool) {
	if !h.expectsOrphans() {
		return
	}
	s := nobody()
	s.spared = spared
	if len(h.tree(s)) > 0 {
		h.destroy(s, s.gone)
	}
}

// nobody is a supervisor that has never been, below whom there is nothing: only strays are its.
func nobody() *supervisorProcess {
	gone := make(chan struct{})
	close(gone)
	return &supervisorProcess{pid: -os.Getpid(), gone: gone}
}
