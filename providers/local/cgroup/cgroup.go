// Package cgroup limits, freezes and ends all processes of one sandbox through control groups, of either version.
//
// Where the memory, cpu, pids and freezer controllers have hierarchies of their own (version 1), a group is a directory
// in each; in the unified hierarchy (version 2) it is a single one.
package cgroup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Root is where the system mounts its control groups.
const Root = "/sys/fs/cgroup"

// What is waited for is mostly there at once, or else takes its time.
const firstPoll, lastPoll = 100 * time.Microsecond, 5 * time.Millisecond

// Limits of a group. Zero means no limit.
type Limits struct {
	Memory int64   // bytes, swap included
	CPUs   float64 // cores
	Pids   int64   // processes and threads
}

// Hierarchy is what the system's control groups are like.
type Hierarchy struct {
	Unified bool // version 2
}

// Find looks at what the system has, and makes it ready for groups. It answers an error that says what is missing.
func Find() (Hierarchy, error) {
	if controllers, err := os.ReadFile(filepath.Join(Root, "cgroup.controllers")); err == nil {
		return Hierarchy{Unified: true}, enable(strings.Fields(string(controllers)))
	}
	for _, c := range separate() {
		if _, err := os.Stat(filepath.Join(Root, c, "cgroup.procs")); err != nil {
			return Hierarchy{}, fmt.Errorf("no cgroup hierarchy at %s: %w", filepath.Join(Root, c), err)
		}
	}
	return Hierarchy{}, nil
}

// separate are the version 1 controllers that a sandbox needs.
func separate() []string { return []string{"memory", "cpu", "pids", "freezer"} }

// enable hands the controllers down to the groups below the root. The freezer is always there.
func enable(have []string) error {
	file := filepath.Join(Root, "cgroup.subtree_control")
	enabled, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	for _, c := range []string{"memory", "cpu", "pids"} {
		if !slices.Contains(have, c) {
			return fmt.Errorf("no %s cgroup controller in %s; enable it on the host", c, Root)
		}
		if slices.Contains(strings.Fields(string(enabled)), c) {
			continue
		}
		if err := write(file, "+"+c); err != nil {
			return fmt.Errorf("enable the %s cgroup controller: %w", c, err)
		}
	}
	return nil
}

// Group is the control group of one sandbox, directly below the root, whether it exists or not.
type Group struct {
	Hierarchy
	Name string
}

func (g Group) dirs() []string {
	if g.Unified {
		return []string{filepath.Join(Root, g.Name)}
	}
	var all []string
	for _, c := range separate() {
		all = append(all, g.dir(c))
	}
	return all
}

// dir is where the files of a controller are.
func (g Group) dir(controller string) string {
	if g.Unified {
		return filepath.Join(Root, g.Name)
	}
	return filepath.Join(Root, controller, g.Name)
}

// Make makes the group with its limits; one that exists gets the limits.
func (g Group) Make(l Limits) error {
	for _, dir := range g.dirs() {
		if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	for _, s := range g.settings(l) {
		err := write(s.file, s.value)
		if s.optional && errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
	}
	return nil
}

type setting struct {
	file, value string
	optional    bool // kernels without swap accounting have no such file
}

// period is the time, in microseconds, in which a share of the processors is counted.
const period = 100_000

func (g Group) settings(l Limits) []setting {
	var all []setting
	add := func(controller, file, value string, optional bool) {
		all = append(all, setting{filepath.Join(g.dir(controller), file), value, optional})
	}
	memory, pids, quota := strconv.FormatInt(
		l.Memory,
		10,
	), strconv.FormatInt(
		l.Pids,
		10,
	), strconv.FormatInt(
		int64(l.CPUs*period),
		10,
	)
	if l.Memory > 0 && g.Unified {
		add("memory", "memory.max", memory, false)
		add("memory", "memory.swap.max", "0", true)
	} else if l.Memory > 0 {
		add("memory", "memory.limit_in_bytes", memory, false)
		add("memory", "memory.memsw.limit_in_bytes", memory, true)
	}
	if l.Pids > 0 {
		add("pids", "pids.max", pids, false)
	}
	if l.CPUs > 0 && g.Unified {
		add("cpu", "cpu.max", quota+" "+strconv.Itoa(period), false)
	} else if l.CPUs > 0 {
		add("cpu", "cpu.cfs_period_us", strconv.Itoa(period), false)
		add("cpu", "cpu.cfs_quota_us", quota, false)
	}
	return all
}

// Views maps the group's directories to where a program inside expects its own group.
func (g Group) Views() map[string]string {
	if g.Unified {
		return map[string]string{g.dir(""): Root}
	}
	views := map[string]string{}
	for _, c := range separate() {
		views[g.dir(c)] = filepath.Join(Root, c)
	}
	return views
}

// Freeze stops every process of the group and returns when all stand still.
func (g Group) Freeze(ctx context.Context) error {
	if err := g.setFrozen(true); err != nil {
		return err
	}
	return wait(ctx, "freeze the processes", func() (bool, error) {
		frozen, err := g.Frozen()
		if err == nil && !frozen && !g.Unified {
			err = g.setFrozen(true) // a fork may have slipped through; version 1 looks again only when it is told to
		}
		return frozen, err
	})
}

// Thaw lets the processes of the group go on.
func (g Group) Thaw(ctx context.Context) error {
	if err := g.setFrozen(false); err != nil {
		return err
	}
	return wait(ctx, "thaw the processes", func() (bool, error) {
		frozen, err := g.Frozen()
		return !frozen, err
	})
}

func (g Group) setFrozen(on bool) error {
	if g.Unified {
		return write(filepath.Join(g.dir(""), "cgroup.freeze"), map[bool]string{true: "1", false: "0"}[on])
	}
	return write(filepath.Join(g.dir("freezer"), "freezer.state"), map[bool]string{true: "FROZEN", false: "THAWED"}[on])
}

// Frozen says whether every process of the group stands still. A group that does not exist is not frozen.
func (g Group) Frozen() (bool, error) {
	file, want := filepath.Join(g.dir("freezer"), "freezer.state"), "FROZEN"
	if g.Unified {
		file, want = filepath.Join(g.dir(""), "cgroup.events"), "frozen 1"
	}
	text, err := os.ReadFile(file)
	if gone(err) {
		return false, nil
	}
	return slices.Contains(strings.Split(string(text), "\n"), want), err
}

// Kill ends every process of the group, frozen or not, and returns when none is left.
func (g Group) Kill(ctx context.Context) error {
	return wait(ctx, "end the processes", g.Strike)
}

// OOMKills is how often the kernel has killed a process of the group for lack of memory; 0 where that is not known.
func (g Group) OOMKills() int64 {
	file := "memory.oom_control"
	if g.Unified {
		file = "memory.events"
	}
	text, err := os.ReadFile(filepath.Join(g.dir("memory"), file))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, "oom_kill "); ok {
			n, _ := strconv.ParseInt(strings.TrimSpace(value), 10, 64)
			return n
		}
	}
	return 0
}

// Strike kills every process of the group, frozen or not, and answers whether there was none.
func (g Group) Strike() (none bool, err error) {
	pids, err := g.pids()
	if len(pids) == 0 || err != nil {
		return err == nil, err
	}
	for _, pid := range pids {
		_ = syscall.Kill(pid, syscall.SIGKILL) // it may be gone already
	}
	if err := g.setFrozen(false); !gone(err) { // the frozen do not die before they thaw
		return false, err
	}
	return false, nil
}

// gone says that the group of a file does not exist, or has been removed since the file was opened.
func gone(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENODEV) }

func (g Group) pids() ([]int, error) {
	text, err := os.ReadFile(filepath.Join(g.dir("freezer"), "cgroup.procs"))
	if gone(err) {
		return nil, nil
	}
	var pids []int
	for _, line := range strings.Fields(string(text)) {
		if pid, err := strconv.Atoi(line); err == nil && pid > 0 {
			pids = append(pids, pid)
		}
	}
	return pids, err
}

// Remove removes the group. Its processes must be dead; the kernel may take a moment to let go of them.
func (g Group) Remove(ctx context.Context) error {
	for _, dir := range g.dirs() {
		err := wait(ctx, "remove the cgroup", func() (bool, error) {
			err := syscall.Rmdir(dir)
			if errors.Is(err, syscall.EBUSY) {
				return false, nil
			}
			return true, err
		})
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// wait asks until the answer is yes, an error, or ctx ends.
func wait(ctx context.Context, what string, done func() (bool, error)) error {
	for pause := firstPoll; ; pause = min(2*pause, lastPoll) {
		if ok, err := done(); ok || err != nil {
			return err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return fmt.Errorf("%s: %w", what, ctx.Err())
		}
	}
}

// write goes past os.File, which would make the poller of Go's runtime look after each of these files.
func write(file, value string) error {
	fd, err := unix.Open(file, unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err == nil {
		_, err = unix.Write(fd, []byte(value))
		err = errors.Join(err, unix.Close(fd))
	}
	if err != nil {
		return &fs.PathError{Op: "write", Path: file, Err: err}
	}
	return nil
}
