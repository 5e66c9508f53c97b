// Package step runs the steps of a build inside its container. The engine starts every step in /: a work directory that
// an image chooses is entered here, where nothing of the engine is open any more, and not by the engine's runtime.
package step

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// patience is how long killed processes may take to end.
const patience = 10 * time.Second

// Run becomes the program argv in the directory dir, with that environment. It returns only with an error, which names
// no path.
func Run(dir string, argv, environ []string) error {
	if err := os.Chdir(dir); err != nil {
		return errors.New("the work directory cannot be entered; create it before this step")
	}
	here, err := os.Getwd()
	if err != nil || reserved(here) {
		return errors.New("the work directory is reserved for the system or the platform; choose another")
	}
	program, err := exec.LookPath(argv[0])
	if err != nil {
		return fmt.Errorf("%.200s: command not found", argv[0])
	}
	return syscall.Exec(program, argv, environ)
}

// reserved looks at what a directory really is, whatever links have led there.
func reserved(dir string) bool {
	for _, own := range []string{"/proc", "/sys", "/dev", "/.sandyard"} {
		if dir == own || strings.HasPrefix(dir, own+"/") {
			return true
		}
	}
	return !strings.HasPrefix(dir, "/") // outside of the root: "(unreachable)…"
}

// End kills every process but the first one and this one, and returns when none of them runs any more.
func End() error {
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		// One call reaches them all, also one that forks meanwhile.
		if err := syscall.Kill(-1, syscall.SIGKILL); errors.Is(err, syscall.ESRCH) || err == nil && !anyRuns() {
			return nil
		}
		select {
		case <-tick.C:
		case <-deadline.C:
			return errors.New("processes of the step did not end")
		}
	}
}

func anyRuns() bool {
	found, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return true
	}
	for _, name := range found {
		pid := filepath.Base(filepath.Dir(name))
		if pid == "1" || pid == fmt.Sprint(os.Getpid()) {
			continue
		}
		text, err := os.ReadFile(name)
		if err != nil {
			continue // it has ended
		}
		_, state, _ := strings.Cut(string(text[strings.LastIndexByte(string(text), ')')+1:]), " ")
		if !strings.HasPrefix(state, "Z") && !strings.HasPrefix(state, "X") {
			return true
		}
	}
	return false
}
