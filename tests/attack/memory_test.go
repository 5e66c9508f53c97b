//go:build attack

package attack

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	maxMemory = 512 // MB that the API may hold
	deadly    = 900 // MB at which a process is ended, for the machine's sake
)

// watch measures the processes while an attack is played, and ends one that takes the machine's memory.
type watch struct {
	stage *stage
	stop  chan struct{}
	done  sync.WaitGroup
	mu    sync.Mutex
	peaks map[string]int
}

func (r *rig) watch(s *stage) *watch {
	w := &watch{stage: s, stop: make(chan struct{}), peaks: map[string]int{}}
	for program, p := range r.processes {
		_ = os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", p.PID()), []byte("5"), 0) // the peak begins here
		w.done.Go(func() { w.follow(program, p.PID(), p.Done()) })
	}
	return w
}

func (w *watch) follow(program string, pid int, ended <-chan struct{}) {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		w.note(program, pid)
		select {
		case <-tick.C:
		case <-ended:
			return
		case <-w.stop:
			w.note(program, pid)
			return
		}
	}
}

func (w *watch) note(program string, pid int) {
	peak, now := memoryOf(pid)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.peaks[program] = max(w.peaks[program], peak)
	if now > deadly {
		_ = syscall.Kill(pid, syscall.SIGKILL)
		w.stage.breach("%s held more than %d MB and was ended", program, deadly)
	}
}

// end returns the peaks. The API is started again where it holds more than it may, so that the next attack is measured
// for itself.
func (w *watch) end() map[string]int {
	close(w.stop)
	w.done.Wait()
	api := w.stage.processes["api"]
	switch {
	case w.peaks["api"] > maxMemory:
		w.stage.breach("the API held %d MB, at most %d are right", w.peaks["api"], maxMemory)
		if !api.Ended() {
			_ = syscall.Kill(api.PID(), syscall.SIGKILL)
			<-api.Done()
		}
	}
	for program, p := range w.stage.processes {
		if p.Ended() && w.peaks[program] <= maxMemory {
			w.stage.breach("%s ended: %v", program, p.Err())
		}
	}
	return w.peaks
}

// memoryOf reads a process' peak and present memory, in MB.
func memoryOf(pid int) (peak, now int) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, 0
	}
	for line := range strings.Lines(string(status)) {
		name, value, _ := strings.Cut(line, ":")
		kb, _ := strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(value), " kB"))
		switch name {
		case "VmHWM":
			peak = kb >> 10
		case "VmRSS":
			now = kb >> 10
		}
	}
	return peak, now
}
