package app

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"strconv"

	"sandyard/jobs/worker"
	"sandyard/providers"
)

// Amount is what the sandboxes of a machine may have together, as an operator sets it: a number, 0 for what the machine
// has less a reserve, or "unlimited".
type Amount float64

const unlimited = "unlimited"

// UnmarshalText implements encoding.TextUnmarshaler.
func (a *Amount) UnmarshalText(text []byte) error {
	if string(text) == unlimited {
		*a = Amount(math.Inf(1))
		return nil
	}
	n, err := strconv.ParseFloat(string(text), 64)
	if err != nil || n < 0 || math.IsNaN(n) || math.IsInf(n, 0) {
		return fmt.Errorf("%q must be a number of at least 0, or %q", text, unlimited)
	}
	*a = Amount(n)
	return nil
}

// or returns the limit: the operator's, or what the machine gives. 0 = no limit.
func (a Amount) or(machine float64) float64 {
	switch {
	case math.IsInf(float64(a), 1):
		return 0
	case a > 0:
		return float64(a)
	}
	return machine
}

const (
	// cpuOvercommit is how many times over the cores of a machine are given out: sandboxes are idle most of the time, and
	// one that is not takes no more than its share from the others.
	cpuOvercommit = 16
	// leastReserveMB of memory are left for the machine's other programs, or an eighth of it.
	leastReserveMB = 512
)

// room is what the sandboxes and builds on a machine may take together. Memory holds their files, too.
func (c Worker) room(h providers.Host) worker.Room {
	var memory int64
	if h.MemoryMB > 0 {
		memory = max(1, h.MemoryMB-max(leastReserveMB, h.MemoryMB/8))
	}
	return worker.Room{
		Sandboxes: c.MaxSandboxes,
		CPUs:      c.MaxCPUs.or(float64(h.CPUs * cpuOvercommit)),
		MemoryMB:  int64(c.MaxMemoryMB.or(float64(memory))),
		Pids:      int64(c.MaxPids.or(float64(h.Pids / 4 * 3))),
	}
}

// openRoom asks the provider what its machine has.
func (c Worker) openRoom(ctx context.Context, p providers.Provider, log *slog.Logger) (worker.Room, error) {
	var h providers.Host
	if r, ok := p.(providers.HostReporter); ok {
		var err error
		if h, err = r.Host(ctx); err != nil {
			return worker.Room{}, err
		}
	}
	room := c.room(h)
	log.InfoContext(ctx, "room for sandboxes and builds, 0 = no limit",
		"cpus", room.CPUs, "memory_mb", room.MemoryMB, "pids", room.Pids)
	return room, nil
}
