// Package meter reads what the processes of a control group have used, as the kernel counts it, of either version of
// control groups. A reading is a few small files.
package meter

import (
	"bufio"
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"sandyard/providers"
)

// Root is where control groups are mounted.
type Root string

// System is this machine's.
const System Root = "/sys/fs/cgroup"

// Read reads the group of this path below the hierarchies. It is false where there is no such group.
func (r Root) Read(path string) (providers.Used, bool) {
	if u, ok := r.unified(path); ok {
		return u, true
	}
	return r.separate(path)
}

// unified reads a group of version 2.
func (r Root) unified(path string) (providers.Used, bool) {
	dir := filepath.Join(string(r), path)
	used, ok := entry(filepath.Join(dir, "cpu.stat"), "usage_usec")
	if !ok {
		return providers.Used{}, false
	}
	u := providers.Used{CPU: time.Duration(used) * time.Microsecond}
	all, ok := number(filepath.Join(dir, "memory.current"))
	if !ok {
		return u, true // the controller is not handed down
	}
	stat := filepath.Join(dir, "memory.stat")
	file, _ := entry(stat, "file")
	shared, _ := entry(stat, "shmem")
	Divide(&u, all, file, shared)
	peak, _ := number(filepath.Join(dir, "memory.peak"))
	u.MemoryPeak = max(peak, u.Memory)
	return u, true
}

// separate reads a group of version 1, where processor time may be counted in the hierarchy that limits it.
func (r Root) separate(path string) (providers.Used, bool) {
	u := providers.Used{}
	for _, controller := range []string{"cpuacct", "cpu"} {
		if used, ok := number(filepath.Join(string(r), controller, path, "cpuacct.usage")); ok {
			u.CPU = time.Duration(used)
			break
		}
	}
	dir := filepath.Join(string(r), "memory", path)
	all, ok := number(filepath.Join(dir, "memory.usage_in_bytes"))
	if !ok {
		return u, u.CPU > 0
	}
	stat := filepath.Join(dir, "memory.stat")
	file, _ := entry(stat, "total_cache")
	shared, _ := entry(stat, "total_shmem")
	Divide(&u, all, file, shared)
	peak, _ := number(filepath.Join(dir, "memory.max_usage_in_bytes"))
	u.MemoryPeak = max(peak, u.Memory)
	return u, true
}

// Divide tells of all the memory of a group what the kernel can take back. What is in a tmpfs counts as page cache and
// cannot.
func Divide(u *providers.Used, all, file, shared int64) {
	u.Cache = min(max(file-shared, 0), all)
	u.Memory = all - u.Cache
	u.Files = min(shared, u.Memory)
}

func number(path string) (int64, bool) {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
	return n, err == nil
}

// entry is the number behind a word at the beginning of a line.
func entry(path, key string) (int64, bool) {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, false
	}
	for lines := bufio.NewScanner(bytes.NewReader(b)); lines.Scan(); {
		word, value, _ := strings.Cut(lines.Text(), " ")
		if word == key {
			n, err := strconv.ParseInt(value, 10, 64)
			return n, err == nil
		}
	}
	return 0, false
}
