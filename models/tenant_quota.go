package models

import (
	"errors"
	"math"
	"slices"
)

// Quota is what live sandboxes may take together; nil = no limit. Paused ones count: they keep their memory.
type Quota struct {
	MaxSandboxes *int
	MaxCPUs      *float64 `gorm:"column:max_cpus"`
	MaxMemoryMiB *int64   `gorm:"column:max_memory_mib"`
}

// Standing is what live sandboxes take.
type Standing struct {
	Live      int
	CPUs      float64 `gorm:"column:cpus"`
	MemoryMiB int64   `gorm:"column:memory_mib"`
}

// standing reads a Standing of the live sandboxes for which a condition holds.
const standing = `SELECT count(*) AS live, coalesce(sum(cpus), 0) AS cpus, coalesce(sum(memory_mb), 0)::bigint AS memory_mib
	FROM sandboxes WHERE ended_at IS NULL AND `

func (s *Standing) add(box *Sandbox) {
	s.Live++
	s.CPUs += box.CPUs
	s.MemoryMiB += box.MemoryMB
}

// refusal is a *LimitError where there is no room for one more sandbox. The names of limits begin with prefix.
func (q Quota) refusal(prefix string, now Standing, box *Sandbox) error {
	switch {
	case q.MaxSandboxes != nil && now.Live >= *q.MaxSandboxes:
		return &LimitError{Limit: prefix + "max_sandboxes", Used: float64(now.Live), Max: float64(*q.MaxSandboxes)}
	case q.MaxCPUs != nil && thousandths(now.CPUs+box.CPUs) > thousandths(*q.MaxCPUs):
		return &LimitError{Limit: prefix + "max_cpus", Used: thousandths(now.CPUs) / 1000, Max: *q.MaxCPUs, Asked: box.CPUs}
	case q.MaxMemoryMiB != nil && now.MemoryMiB+box.MemoryMB > *q.MaxMemoryMiB:
		return &LimitError{
			Limit: prefix + "max_memory_mib", Used: float64(now.MemoryMiB), Max: float64(*q.MaxMemoryMiB),
			Asked: float64(box.MemoryMB),
		}
	}
	return nil
}

// thousandths are of cores. Sums of fractions such as 0.1 are not exact.
func thousandths(cores float64) float64 { return math.Round(cores * 1000) }

// Ceilings are new values of limits by their names, which are their columns, too; nil = as a new tenant or user has it.
type Ceilings map[string]*float64

// CeilingNames are the names of the limits that Ceilings may change, of a tenant or of a user.
func CeilingNames() []string {
	return []string{"max_sandboxes", "max_queued", "max_cpus", "max_memory_mib", "job_rate", "job_burst"}
}

// ofNewTenant are the limits that a tenant always has, as a new one has them.
func ofNewTenant() map[string]int {
	return map[string]int{"max_sandboxes": defaultMaxSandboxes, "max_queued": defaultMaxQueued}
}

// columns are what to set of a user. Error: ErrCeiling.
func (c Ceilings) columns() (map[string]any, error) {
	set := map[string]any{}
	for name, v := range c {
		if !slices.Contains(CeilingNames(), name) || v != nil && !fits(name, *v) {
			return nil, ErrCeiling
		}
		set[name] = v
	}
	return set, nil
}

// tenantColumns are what to set of a tenant. A limit that it always has is not removed but becomes that of a new
// tenant.
func (c Ceilings) tenantColumns() (map[string]any, error) {
	set, err := c.columns()
	for name, n := range ofNewTenant() {
		if v, given := c[name]; given && v == nil {
			set[name] = n
		}
	}
	return set, err
}

// fits says whether a limit can have a value. Only cores and a rate have fractions, and a rate of 0 would be no limit
// but an end.
func fits(name string, v float64) bool {
	switch {
	case !(v >= 0) || v > maxCeiling:
		return false
	case name == "job_rate":
		return v >= leastRate
	case name == "job_burst":
		return v >= 1 && v == math.Trunc(v)
	}
	return name == "max_cpus" || v == math.Trunc(v)
}

// leastRate is the smallest job rate: one in about three hours.
const leastRate = 0.0001

// maxCeiling is the largest value of a limit, which fits every column.
const maxCeiling = 1_000_000_000

// ErrCeiling says that a limit cannot have such a value.
var ErrCeiling = errors.New(
	"a limit must be between 0 and 1000000000, or none; of sandboxes, jobs and MiB it is a whole number, and a job rate " +
		"is at least 0.0001",
)
