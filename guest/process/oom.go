package process

import (
	"bufio"
	"bytes"
	"os"
	"strconv"
)

// OOMKills is how often the kernel has killed a process of this sandbox for lack of memory. It is 0 where the control
// group cannot be seen.
func OOMKills() int64 {
	for _, path := range []string{"/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control"} {
		if n, ok := oomKillsIn(path); ok {
			return n
		}
	}
	return 0
}

func oomKillsIn(path string) (int64, bool) {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, false
	}
	for lines := bufio.NewScanner(bytes.NewReader(b)); lines.Scan(); {
		if value, ok := bytes.CutPrefix(lines.Bytes(), []byte("oom_kill ")); ok {
			n, err := strconv.ParseInt(string(value), 10, 64)
			return n, err == nil
		}
	}
	return 0, false
}
