package process

import (
	"bytes"
	"cmp"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Info is one process of the sandbox, as the kernel shows it.
type Info struct {
	Pid     int
	Parent  int
	Start   int64  // in ticks since the kernel started; with Pid it names the process, also when the number is another's
	State   string // a letter, such as R, S, T or Z
	Threads int
	RSS     int64 // bytes
	CPU     time.Duration
	Age     time.Duration
	Command string // its arguments with blanks between them, or its name in brackets

	// Supervisor is the process id of the supervisor of the command that it belongs to; 0 = it is a stray.
	Supervisor int
}

const (
	// tick is the unit of times in /proc, whatever the kernel's own is.
	tick = time.Second / 100
	// maxCommand bounds what is told of the arguments, in bytes.
	maxCommand = 512
)

// More places in /proc/PID/stat behind the name.
const (
	statUser   = 11
	statSystem = 12
	statStart  = 19
	statPages  = 21
)

// Processes lists the processes of commands by their ids, not this one and not the supervisors: at most most of them,
// and how many there are.
func (h *Host) Processes(most int) (list []Info, total int) {
	list = h.processes()
	total = len(list)
	list = list[:min(total, most)]
	for n := range list {
		list[n].Command = commandOf(list[n])
	}
	return list, total
}

func (h *Host) processes() []Info {
	all := map[int]Info{}
	up := uptime()
	for _, name := range processNames() {
		if i, ok := infoOf(name, up); ok {
			all[i.Pid] = i
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	maps.DeleteFunc(all, func(pid int, _ Info) bool { return pid == os.Getpid() || h.sups[pid] != nil })
	found := make([]Info, 0, len(all))
	for _, i := range all {
		if sup, ours := h.ownerOf(i, all); ours {
			i.Supervisor = sup
			found = append(found, i)
		}
	}
	slices.SortFunc(found, func(a, b Info) int { return cmp.Compare(a.Pid, b.Pid) })
	return found
}

// ownerOf walks up from a process to a supervisor or to this process. It answers false for one that is below neither.
// The caller holds the lock.
func (h *Host) ownerOf(i Info, all map[int]Info) (sup int, ours bool) {
	for range all {
		if h.sups[i.Parent] != nil {
			return i.Parent, true
		}
		if i.Parent == os.Getpid() {
			return 0, true
		}
		parent, known := all[i.Parent]
		if !known {
			return 0, false
		}
		i = parent
	}
	return 0, false
}

// SignalOne sends a signal to one of the processes that Processes lists, or answers ESRCH. A start other than 0 must be
// the process's own.
func (h *Host) SignalOne(pid int, start int64, s syscall.Signal) error {
	list := h.processes()
	at, found := slices.BinarySearchFunc(list, pid, func(i Info, pid int) int { return cmp.Compare(i.Pid, pid) })
	if !found || list[at].State == "Z" || start != 0 && list[at].Start != start {
		return syscall.ESRCH
	}
	return syscall.Kill(pid, s)
}

// infoOf reads /proc/PID/stat. Between brackets its Command is the process's name.
func infoOf(name string, up time.Duration) (Info, bool) {
	pid, err := strconv.Atoi(name)
	if err != nil {
		return Info{}, false
	}
	text, err := os.ReadFile("/proc/" + name + "/stat")
	open, end := bytes.IndexByte(text, '('), bytes.LastIndexByte(text, ')')
	if err != nil || open < 0 || end < open {
		return Info{}, false
	}
	fields := strings.Fields(string(text[end+1:]))
	if len(fields) <= statPages {
		return Info{}, false
	}
	number := func(at int) int64 {
		n, _ := strconv.ParseInt(fields[at], 10, 64) // the kernel writes numbers
		return n
	}
	i := Info{
		Pid: pid, Parent: int(number(statParent)), Start: number(statStart),
		State: fields[statState], Threads: int(number(statThreads)),
		RSS: number(statPages) * int64(os.Getpagesize()), CPU: time.Duration(number(statUser)+number(statSystem)) * tick,
		Command: "[" + string(text[open+1:end]) + "]",
	}
	i.Age = max(0, up-time.Duration(i.Start)*tick)
	return i, true
}

// commandOf is what the process was started with, or its name where that cannot be seen.
func commandOf(i Info) string {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(i.Pid) + "/cmdline")
	text = bytes.TrimRight(text, "\x00")
	if err != nil || len(text) == 0 {
		return i.Command
	}
	if len(text) > maxCommand {
		text = text[:maxCommand]
	}
	return strings.Map(func(r rune) rune {
		if r < ' ' {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(string(text), "\uFFFD"))
}

// uptime is how long the kernel has been running.
func uptime() time.Duration {
	text, _ := os.ReadFile("/proc/uptime")
	first, _, _ := strings.Cut(string(text), " ")
	seconds, _ := strconv.ParseFloat(first, 64) // 0 where it cannot be read: then ages are 0, too
	return time.Duration(seconds * float64(time.Second))
}
