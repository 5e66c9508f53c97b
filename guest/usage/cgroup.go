package usage

import (
	"bufio"
	"bytes"
	"os"
	"strconv"
	"strings"
	"time"
)

// groups is where a container sees its control groups: version 2 at the top, each controller of version 1 below it.
const groups = "/sys/fs/cgroup/"

// tick is the unit of /proc/stat.
const tick = 10 * time.Millisecond

// cpuQuota is how much CPU time the sandbox gets in a period, in microseconds.
func cpuQuota() (quota, period int64, ok bool) {
	if words := fields(groups + "cpu.max"); len(words) == 2 {
		quota, period = number(words[0]), number(words[1])
	} else {
		quota, period = numberIn(groups+"cpu/cpu.cfs_quota_us"), numberIn(groups+"cpu/cpu.cfs_period_us")
	}
	return quota, period, quota > 0 && period > 0
}

// cpuTime is the CPU time that the sandbox has used.
func cpuTime() time.Duration {
	if used, ok := entry(groups+"cpu.stat", "usage_usec"); ok {
		return time.Duration(used) * time.Microsecond
	}
	if used := numberIn(groups + "cpuacct/cpuacct.usage"); used > 0 {
		return time.Duration(used)
	}
	var used time.Duration
	for i, word := range fields("/proc/stat") {
		if i >= 1 && i <= 8 && i != 4 && i != 5 { // without idle and iowait
			used += time.Duration(number(word)) * tick
		}
	}
	return used
}

func memory() (total, used, cache int64) {
	total, _ = entry("/proc/meminfo", "MemTotal:")
	free, _ := entry("/proc/meminfo", "MemAvailable:")
	total, free = total<<10, free<<10
	for _, v := range []struct{ limit, usage, stat, file, shared string }{
		{"memory.max", "memory.current", "memory.stat", "file", "shmem"},
		{"memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "memory/memory.stat", "total_cache", "total_shmem"},
	} {
		all := numberIn(groups + v.usage)
		if all <= 0 {
			continue
		}
		if limit := numberIn(groups + v.limit); limit > 0 {
			total = min(total, limit)
		}
		// What is in a tmpfs counts as page cache and cannot be taken back.
		file, _ := entry(groups+v.stat, v.file)
		shared, _ := entry(groups+v.stat, v.shared)
		cache = min(max(file-shared, 0), all)
		return total, all - cache, cache
	}
	return total, total - free, 0
}

// fields are the words of the first line of a file.
func fields(path string) []string {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	line, _, _ := strings.Cut(string(b), "\n")
	return strings.Fields(line)
}

// number is 0 for what is none, such as "max".
func number(word string) int64 {
	n, err := strconv.ParseInt(word, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

func numberIn(path string) int64 {
	words := fields(path)
	if len(words) == 0 {
		return 0
	}
	return number(words[0])
}

// entry is the number behind a word at the beginning of a line.
func entry(path, key string) (int64, bool) {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, false
	}
	for lines := bufio.NewScanner(bytes.NewReader(b)); lines.Scan(); {
		words := bytes.Fields(lines.Bytes())
		if len(words) >= 2 && string(words[0]) == key {
			return number(string(words[1])), true
		}
	}
	return 0, false
}
