package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Start lets do make a process that is a member of the group from its first moment on: do starts it in the group of
// version 2 that the descriptor leads to, or, where that is negative, where it is called. The caller has locked its
// goroutine to its thread, which is the parent that the process sees.
//
// Putting a process into a group after it has started makes the kernel wait, for some 10 ms, until no processor forks.
// So in version 2 it is started there, and in version 1 this thread alone, for which nobody waits, goes there and back.
func (g Group) Start(do func(group int) error) error {
	if g.Unified {
		return g.startInto(do)
	}
	home, err := ownGroups()
	if err != nil {
		return err
	}
	err = g.enter()
	if err == nil {
		err = do(-1)
	}
	// Staying would count us among the sandbox, and freeze and kill us with it.
	if homeErr := home.enter(); homeErr != nil {
		err = errors.Join(err, fmt.Errorf("leave the sandbox's cgroup: %w", homeErr))
	}
	return err
}

func (g Group) startInto(do func(group int) error) error {
	dir, err := unix.Open(g.dir(""), unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open the cgroup: %w", err)
	}
	defer unix.Close(dir)
	return do(dir)
}

func (g Group) enter() error {
	var all places
	for _, c := range separate() {
		all = append(all, g.dir(c))
	}
	return all.enter()
}

// places are directories of version 1, one per hierarchy.
type places []string

// enter puts the calling thread there.
func (p places) enter() error {
	for _, dir := range p {
		if err := write(filepath.Join(dir, "tasks"), "0"); err != nil {
			return err
		}
	}
	return nil
}

// ownGroups is where the calling thread is. Where the hierarchies are mounted from below that place, as in a container,
// their tops are.
func ownGroups() (places, error) {
	text, err := os.ReadFile("/proc/thread-self/cgroup")
	if err != nil {
		return nil, err
	}
	var all places
	for line := range strings.Lines(string(text)) {
		fields := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(fields) != 3 {
			continue
		}
		for _, c := range strings.Split(fields[1], ",") {
			if !slices.Contains(separate(), c) {
				continue
			}
			dir := filepath.Join(Root, c, fields[2])
			if _, err := os.Stat(dir); err != nil {
				dir = filepath.Join(Root, c)
			}
			all = append(all, dir)
		}
	}
	return all, nil
}
