// Command silence ends test binaries that hang. It follows the events of `go test -json` in a file. A package that has
// begun and says nothing for as long as -after gets SIGQUIT: its binary prints the stacks of its goroutines and ends.
// Silence prints them, too: go test takes them for the output of some test, which need not be one that fails.
// A busy machine makes tests slow, not silent.
//
//	silence -after 5m FILE
//
// It runs in the module's directory. The binaries that it means run in their package's directory and have its own
// TMPDIR, which must be set. Those of another run are left alone. It ends with its parent, or at SIGTERM, when it has read
// all that the file holds.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

func main() {
	after := flag.Duration("after", 5*time.Minute, "how long a package may say nothing")
	flag.Parse()
	over := make(chan os.Signal, 1)
	signal.Notify(over, syscall.SIGTERM)
	if err := watch(flag.Arg(0), *after, over); err != nil {
		fmt.Fprintln(os.Stderr, "silence:", err)
		os.Exit(1)
	}
}

// event is what is read of one of go test -json.
type event struct {
	Action, Package, Test, Output string
}

func parse(line []byte) (e event, ok bool) {
	return e, json.Unmarshal(line, &e) == nil && e.Package != ""
}

func (e event) ends() bool {
	return e.Test == "" && (e.Action == "pass" || e.Action == "fail" || e.Action == "skip")
}

// packages are those that run, with the moments of their last events.
type packages map[string]time.Time

// note takes in one event.
func (p packages) note(e event, now time.Time) {
	if e.ends() {
		delete(p, e.Package)
		return
	}
	p[e.Package] = now
}

// silent lists those that have said nothing since.
func (p packages) silent(since time.Time) (list []string) {
	for name, last := range p {
		if last.Before(since) {
			list = append(list, name)
		}
	}
	return list
}

// watch follows the file until over.
func watch(file string, after time.Duration, over <-chan os.Signal) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	root, err := os.Getwd()
	if err != nil {
		return err
	}
	running, hung := packages{}, map[string]bool{}
	lines, rest := bufio.NewReader(f), []byte(nil)
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for parent, last := os.Getppid(), false; ; {
		for {
			part, err := lines.ReadBytes('\n')
			rest = append(rest, part...)
			if errors.Is(err, io.EOF) {
				break // more comes
			}
			if err != nil {
				return err
			}
			if e, ok := parse(rest); ok && hung[e.Package] {
				fmt.Fprint(os.Stderr, e.Output)
				hung[e.Package] = !e.ends()
			} else if ok {
				running.note(e, time.Now())
			}
			rest = rest[:0]
		}
		if last {
			return nil
		}
		for _, name := range running.silent(time.Now().Add(-after)) {
			delete(running, name)
			hung[name] = true
			_, below, _ := strings.Cut(name, "/") // the module's name is the first element
			quit(name, filepath.Join(root, below), after)
		}
		select {
		case <-tick.C:
			last = os.Getppid() != parent
		case <-over:
			last = true
		}
	}
}

// quit sends SIGQUIT to the binary of a package in dir.
func quit(name, dir string, after time.Duration) {
	for _, pid := range binaries(filepath.Base(name)+".test", dir) {
		fmt.Fprintf(os.Stderr, "silence: %s has said nothing for %v: process %d gets SIGQUIT\n", name, after, pid)
		_ = syscall.Kill(pid, syscall.SIGQUIT)
	}
}

// binaries lists the processes that run a program of that name in dir, with our TMPDIR.
func binaries(name, dir string) (pids []int) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		at := filepath.Join("/proc", e.Name())
		args, _ := os.ReadFile(filepath.Join(at, "cmdline")) // of a process that has ended: nothing
		program, _, _ := bytes.Cut(args, []byte{0})
		where, _ := os.Readlink(filepath.Join(at, "cwd"))
		env, _ := os.ReadFile(filepath.Join(at, "environ"))
		mine := slices.Contains(strings.Split(string(env), "\x00"), "TMPDIR="+os.TempDir())
		if filepath.Base(string(program)) == name && where == dir && mine {
			pids = append(pids, pid)
		}
	}
	return pids
}
