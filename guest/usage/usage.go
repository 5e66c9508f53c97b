// Package usage reads what a sandbox uses of its limits, from its control group where it sees one and else from the
// whole machine's figures. Nothing runs between two readings.
package usage

import (
	"context"
	"math"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Usage is one reading. Sizes are in bytes.
type Usage struct {
	CPUs       int     // cores, the sandbox's share rounded up
	CPUPercent float64 // of that share, since the last reading or over a moment
	MemTotal   int64
	MemUsed    int64 // without what the kernel can take back
	MemCache   int64 // what it can take back
	DiskTotal  int64
	DiskUsed   int64
}

const (
	shortest = 100 * time.Millisecond // time over which CPU time says anything
	longest  = time.Minute            // an older reading says nothing about now
)

// Meter reads the usage of this process's sandbox.
type Meter struct {
	mu   sync.Mutex
	last sample
}

// sample is the CPU time that had been used at one moment.
type sample struct {
	at   time.Time
	used time.Duration
}

// Read takes a reading; dir is on the disk that counts. It may take a tenth of a second, or end early with ctx.
func (m *Meter) Read(ctx context.Context, dir string) Usage {
	u := Usage{}
	cores := cpuShare()
	u.CPUs = int(math.Ceil(cores))
	u.CPUPercent = m.percent(ctx, cores)
	u.MemTotal, u.MemUsed, u.MemCache = memory()
	var disk unix.Statfs_t
	if unix.Statfs(dir, &disk) == nil {
		u.DiskTotal = int64(disk.Blocks) * disk.Bsize
		u.DiskUsed = u.DiskTotal - int64(disk.Bfree)*disk.Bsize
	}
	return u
}

func (m *Meter) percent(ctx context.Context, cores float64) float64 {
	before := m.replace(takeSample())
	if age := time.Since(before.at); age < shortest || age > longest {
		before = takeSample()
		moment, cancel := context.WithTimeout(ctx, shortest)
		<-moment.Done()
		cancel()
		m.replace(takeSample())
	}
	now := takeSample()
	elapsed := now.at.Sub(before.at).Seconds()
	if elapsed <= 0 {
		return 0
	}
	return min(max((now.used-before.used).Seconds()/elapsed/cores*100, 0), 100)
}

func (m *Meter) replace(s sample) (last sample) {
	m.mu.Lock()
	defer m.mu.Unlock()
	last, m.last = m.last, s
	return last
}

func takeSample() sample { return sample{at: time.Now(), used: cpuTime()} }

// cpuShare is how many cores the sandbox may use.
func cpuShare() float64 {
	cores := float64(runtime.NumCPU())
	if quota, period, ok := cpuQuota(); ok {
		cores = min(cores, float64(quota)/float64(period))
	}
	return cores
}
