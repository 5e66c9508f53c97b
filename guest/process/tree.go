package process

import (
	"bytes"
	"os"
	"slices"
	"strconv"
	"syscall"
	"time"
)

const (
	// A tree that still grows after this long and after so many looks outruns the walk, and is ended with everything else
	// in the sandbox. Time alone proves nothing: on a busy machine a few looks take as long.
	walkPatience = 500 * time.Millisecond
	walkLooks    = 20
	// After SIGKILL the kernel may need a while, under memory pressure or with hundreds of processes.
	deathPatience = 5 * time.Second
	deathPoll     = 2 * time.Millisecond
)

// destroy kills the supervisor's tree and all strays and returns when they are gone, which the supervisor's end or the
// closing of clear says.
//
// With no other supervisor alive and nobody to spare one kill(-1) from process 1 does it, which no fork escapes.
// Otherwise the tree is stopped, process by process, until a look at all processes finds no new one, and then killed: a
// stopped process cannot fork, and its children stay below the supervisor.
func (h *Host) destroy(s *supervisorProcess, clear <-chan struct{}) {
	if !h.killAlone(s) && !h.stopTree(s, h.walkPatience()) {
		h.killAll()
	}
	give := time.Now().Add(h.deathPatience())
	for len(h.tree(s)) > 0 && time.Now().Before(give) {
		select {
		case <-clear:
		case <-time.After(deathPoll):
		}
		// The dead may be slow to go. Other commands die with them only if they still have children.
		if !h.stopTree(s, h.walkPatience()) {
			h.killAll()
		}
	}
	h.endSupervisor(s, clear)
}

// killAlone kills every process but ours if s is the only supervisor with a command and nothing is to be spared. No
// other command begins meanwhile: it would be killed with this one.
func (h *Host) killAlone(s *supervisorProcess) bool {
	if !h.init || len(s.spared) > 0 {
		return false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, other := range h.sups {
		if other != s && !slices.Contains(h.idle, other) {
			return false
		}
	}
	h.killAll()
	return true
}

// killAll kills every process of the sandbox but ours. Outside a process namespace of our own that would be the whole
// machine.
func (h *Host) killAll() {
	if h.init {
		_ = syscall.Kill(-1, syscall.SIGKILL)
	}
}

// stopTree stops and kills what is below s, and the strays. It answers false when processes appear faster than it can
// stop them, for patience and walkLooks looks.
func (h *Host) stopTree(s *supervisorProcess, patience time.Duration) bool {
	deadline := time.Now().Add(patience)
	stopped := map[int]bool{}
	looks := 0
	for grew := true; grew; looks++ {
		grew = false
		for _, pid := range h.tree(s) {
			if !stopped[pid] {
				stopped[pid], grew = true, true
				_ = syscall.Kill(pid, syscall.SIGSTOP)
			}
		}
		if grew && looks >= walkLooks && time.Now().After(deadline) {
			return false
		}
	}
	for pid := range stopped {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	return true
}

// endSupervisor lets the supervisor, whose children are dead, notice that itself and kills it when it does not.
func (h *Host) endSupervisor(s *supervisorProcess, clear <-chan struct{}) {
	select {
	case <-clear:
		return
	case <-s.gone:
		return
	case <-time.After(walkPatience):
	}
	h.mu.Lock()
	if h.sups[s.pid] == s {
		_ = syscall.Kill(s.pid, syscall.SIGKILL)
	}
	h.mu.Unlock()
	select {
	case <-s.gone:
	case <-time.After(h.deathPatience()):
		h.log.Error("a supervisor process is still running after SIGKILL", "pid", s.pid)
	}
}

// tree lists the living processes below s and the strays with all below them.
func (h *Host) tree(s *supervisorProcess) []int {
	parents := livingProcesses()
	h.mu.Lock()
	defer h.mu.Unlock()
	sup := s.pid
	if h.sups[sup] != s {
		sup = -1 // it is gone, and its number may be another's
	}
	verdict := map[int]bool{}
	for pid := range s.spared {
		verdict[pid] = false
	}
	var members []int
	for pid := range parents {
		if h.sups[pid] == nil && h.belongs(pid, sup, parents, verdict) {
			members = append(members, pid)
		}
	}
	return members
}

// belongs walks up from pid until it meets s, another supervisor, the guest or the end.
func (h *Host) belongs(pid, sup int, parents map[int]int, verdict map[int]bool) bool {
	if known, ok := verdict[pid]; ok {
		return known
	}
	verdict[pid] = false // a cycle cannot be, but /proc was read while it changed
	parent, alive := parents[pid]
	var in bool
	switch {
	case !alive, pid == os.Getpid():
		in = false
	case parent == sup:
		in = true
	case parent == os.Getpid():
		in = h.sups[pid] == nil
	case h.sups[parent] != nil:
		in = false
	default:
		in = h.belongs(parent, sup, parents, verdict)
	}
	verdict[pid] = in
	return in
}

// livingProcesses maps every process that is not a zombie to its parent.
func livingProcesses() map[int]int {
	names := processNames()
	parents := make(map[int]int, len(names))
	buf := make([]byte, 512)
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		if parent, ok := parentOf(name, buf); ok {
			parents[pid] = parent
		}
	}
	return parents
}

// processNames lists the directories of processes, and what else /proc has.
func processNames() []string {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1)
	return names
}

// Places in /proc/PID/stat behind the name.
const (
	statState   = 0
	statParent  = 1
	statThreads = 17
)

// parentOf reads /proc/PID/stat: "pid (name) state ppid …", where the name may hold anything.
func parentOf(pid string, buf []byte) (int, bool) {
	fd, err := syscall.Open("/proc/"+pid+"/stat", syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return 0, false
	}
	n, err := syscall.Read(fd, buf)
	_ = syscall.Close(fd)
	if err != nil {
		return 0, false
	}
	fields := bytes.Fields(buf[bytes.LastIndexByte(buf[:n], ')')+1 : n])
	if len(fields) <= statThreads {
		return 0, false
	}
	if s := fields[statState][0]; (s == 'Z' || s == 'X') && len(fields[statThreads]) == 1 &&
		fields[statThreads][0] <= '1' {
		return 0, false // with more threads only the first one has ended, and the others may fork
	}
	parent, err := strconv.Atoi(string(fields[statParent]))
	return parent, err == nil
}
