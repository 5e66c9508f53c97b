package main

import (
	"errors"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"sandyard/models"
)

// noLimit is how the options of limits write that there is none.
const noLimit = "none"

var errNothingToSet = errors.New("nothing to set: give a limit, such as --max-sandboxes")

// ceilingsAbout says what the limits are, by name.
func ceilingsAbout() map[string]string {
	return map[string]string{
		"job_burst":      "jobs that may be submitted at once; none = those of one second",
		"job_rate":       "jobs that may be submitted a second, or none",
		"max_cpus":       "cores of all live sandboxes together, or none",
		"max_memory_mib": "memory of all live sandboxes together, paused ones included, in MiB, or none",
		"max_sandboxes":  "live sandboxes at once; none = of a tenant 100, of a user no limit",
		"max_queued":     "waiting jobs at once; none = of a tenant 10000, of a user no limit",
	}
}

// addCeilings adds an option for each limit. What a caller writes there goes into given.
func addCeilings(f *pflag.FlagSet, given models.Ceilings) {
	for _, name := range models.CeilingNames() {
		f.Func(strings.ReplaceAll(name, "_", "-"), ceilingsAbout()[name], func(text string) error {
			if text == noLimit {
				given[name] = nil
				return nil
			}
			v, err := strconv.ParseFloat(text, 64)
			whole := name != "max_cpus" && name != "job_rate"
			if err != nil || !(v >= 0) || whole && v != float64(int64(v)) {
				return errors.New("must be a number of at least 0, or none")
			}
			given[name] = &v
			return nil
		})
	}
}

// ceiling writes a limit.
func ceiling[N int | int64 | float64](v *N) string {
	if v == nil {
		return noLimit
	}
	return strconv.FormatFloat(float64(*v), 'f', -1, 64)
}

// burst writes how many jobs may be submitted at once.
func burst(r models.Rate) string {
	if !r.Limited() {
		return noLimit
	}
	return strconv.Itoa(r.Burst())
}
