package spool_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"sandyard/providers"
	"sandyard/providers/local/cgroup"
)

// shells are what sh may be in a sandbox.
func shells() []string { return []string{"dash", "bash", "busybox sh"} }

const plenty = 1 << 15 // processes

// narrow is a box whose processes are in a control group of their own.
type narrow struct {
	box
	group cgroup.Group
}

func newNarrow(t *testing.T, shell string) narrow {
	t.Helper()
	argv := strings.Fields(shell)
	if _, err := exec.LookPath(argv[0]); err != nil {
		t.Skipf("skipped: %v", err)
	}
	hierarchy, err := cgroup.Find()
	if err != nil {
		t.Skipf("skipped: %v", err)
	}
	g := cgroup.Group{Hierarchy: hierarchy, Name: name(t)}
	n := narrow{newBox(t), g}
	if err := g.Make(cgroup.Limits{Pids: plenty}); errors.Is(err, os.ErrPermission) || errors.Is(err, syscall.EROFS) {
		t.Skipf("skipped: control groups need root: %v", err)
	} else if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, stop := context.WithTimeout(context.Background(), time.Minute)
		defer stop()
		for none, err := g.Strike(); !none; none, err = g.Strike() {
			if err != nil || ctx.Err() != nil {
				t.Errorf("processes were left: %v", err)
				return
			}
		}
		if err := g.Remove(ctx); err != nil {
			t.Error(err)
		}
	})
	enter := ""
	for dir := range g.Views() {
		enter += "echo $$ >" + dir + "/cgroup.procs && "
	}
	// sh is the shell for the keeper and the command, too.
	bin := t.TempDir()
	link := "#!/bin/sh\nexec " + shell + " \"$@\"\n"
	if err := os.WriteFile(filepath.Join(bin, "sh"), []byte(link), 0o755); err != nil {
		t.Fatal(err)
	}
	n.env = []string{"PATH=" + bin + ":" + os.Getenv("PATH")}
	n.shell = append([]string{"/bin/sh", "-c", enter + `exec "$@"`, "enter"}, argv...)
	return n
}

// room is how many processes may be there at once.
func (n narrow) room(t *testing.T, pids int64) {
	t.Helper()
	if err := n.group.Make(cgroup.Limits{Pids: pids}); err != nil {
		t.Error(err)
	}
}

// refused counts the forks that the limit has refused.
func (n narrow) refused(t *testing.T) int {
	t.Helper()
	for dir := range n.group.Views() {
		text, err := os.ReadFile(filepath.Join(dir, "pids.events"))
		if errors.Is(err, os.ErrNotExist) {
			continue // it is another controller's
		}
		count, err := strconv.Atoi(strings.TrimSpace(strings.TrimPrefix(string(text), "max ")))
		if err != nil {
			t.Fatal(err)
		}
		return count
	}
	t.Fatal("the control group does not count what it refuses")
	return 0
}

// times is how often the command has begun.
func (n narrow) times() int {
	text, _ := os.ReadFile(filepath.Join(n.dir, "once"))
	return len(text)
}

func isLost(err error) bool {
	return err != nil && providers.AsError(err).Class == providers.Internal && strings.Contains(err.Error(), "lost")
}

func isFull(err error) bool {
	const text = "the sandbox cannot start another process: its limit of processes or memory is reached; " +
		"end some, or raise pids or memory_mb"
	return err != nil && providers.AsError(err).Class == providers.Busy && providers.AsError(err).Message == text
}

// TestNoRoomToStart has a sandbox with room for one process more each time: whatever fork fails, the command is started
// once, and its output is whole or an error says that it is lost.
func TestNoRoomToStart(t *testing.T) {
	t.Parallel()
	for _, shell := range shells() {
		t.Run(shell, func(t *testing.T) {
			t.Parallel()
			var full, whole atomic.Int64
			var all sync.WaitGroup
			for pids := int64(1); pids < 14; pids++ {
				n := newNarrow(t, shell)
				cmd := providers.Command{
					Name: name(t), Shell: "printf x >>once; printf out; printf err >&2", Stdin: []byte("in"),
				}
				run := func() {
					first, again := n.runIn(t, cmd, pids)
					if isFull(first) {
						full.Add(1)
					}
					if first == nil && again == nil {
						whole.Add(1)
					}
				}
				if shell == "bash" { // which waits for 15 seconds before it gives up
					all.Go(run)
				} else {
					run()
				}
			}
			all.Wait()
			if full.Load() == 0 || whole.Load() == 0 {
				t.Errorf("%d commands had no room, %d ended", full.Load(), whole.Load())
			}
		})
	}
}

// runIn runs a command with little room, and once more with enough.
func (n narrow) runIn(t *testing.T, cmd providers.Command, pids int64) (first, again error) {
	run := func() error {
		res, err := n.Run(t.Context(), cmd)
		if err == nil && (string(res.Stdout) != "out" || string(res.Stderr) != "err" || res.ExitCode != 0) {
			t.Errorf("%d processes: got %+v", pids, res)
		}
		return err
	}
	n.room(t, pids)
	if first = run(); first != nil && !isFull(first) && !isLost(first) {
		t.Errorf("%d processes: got %v", pids, first)
	}
	begun := n.times()
	n.room(t, plenty)
	if again = run(); again != nil && (!isLost(again) || begun != 1) {
		t.Errorf("%d processes, first %v: then got %v", pids, first, again)
	}
	if n.times() != 1 {
		t.Errorf("%d processes: it has begun %d times; %v, %v", pids, n.times(), first, again)
	}
	t.Logf("%d processes: %v, then %v", pids, first, again)
	return first, again
}

// held starts a command that waits for leave in the middle of its output, and has its sandbox full by then.
func (n narrow) held(t *testing.T, most int64) (cmd providers.Command, ended chan error, leave func()) {
	t.Helper()
	gate := filepath.Join(n.dir, "gate")
	if err := syscall.Mkfifo(gate, 0o600); err != nil {
		t.Fatal(err)
	}
	// It stays open on this side: what is written before the command has come to its read is there when it does.
	way, err := os.OpenFile(gate, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = way.Close() })
	cmd = providers.Command{
		Name: name(t), MaxOutput: most,
		Shell: "printf x >>once; printf begin; read go <gate; printf ' middle'; read go <gate; printf ' end'",
	}
	ended = make(chan error, 1)
	go func() {
		res, err := n.Run(t.Context(), cmd)
		if err == nil && (string(res.Stdout) != "begin middle end" || res.ExitCode != 0) {
			err = fmt.Errorf("got %+v", res)
		}
		ended <- err
	}()
	eventually(t, "its first output was read", func() bool {
		text, err := os.ReadFile(filepath.Join(spoolDir(cmd.Name), "out"))
		return err == nil && bytes.Equal(text, []byte("begin"))
	})
	return cmd, ended, func() {
		t.Helper()
		if _, err := way.WriteString("go\n"); err != nil {
			t.Fatal(err)
		}
	}
}

// TestNoRoomForAMoment: a command's readers and its keeper wait for room.
func TestNoRoomForAMoment(t *testing.T) {
	t.Parallel()
	for _, shell := range shells() {
		t.Run(shell, func(t *testing.T) {
			t.Parallel()
			for !roomForAMoment(t, newNarrow(t, shell)) {
				t.Log("the machine was slower than the five seconds that a command waits for room")
			}
		})
	}
}

// roomForAMoment takes the room away for as long as it takes to see that it is missed. Too late is more than four
// seconds: a command waits for five.
func roomForAMoment(t *testing.T, n narrow) (inTime bool) {
	t.Helper()
	cmd, ended, leave := n.held(t, 1000)
	taken := time.Now()
	n.room(t, 1)
	leave()
	eventually(t, "a fork was refused", func() bool { return n.refused(t) > 0 })
	n.room(t, plenty)
	late := time.Since(taken) > 4*time.Second
	leave()
	if err := <-ended; isLost(err) && late {
		return false
	} else if err != nil {
		t.Error(err)
	}
	if _, err := n.Run(t.Context(), cmd); err != nil || n.times() != 1 {
		t.Errorf("it has begun %d times, %v", n.times(), err)
	}
	return true
}

// TestNoRoomToTheEnd: what the readers could not read is said to be lost, and the command does not wait for them.
func TestNoRoomToTheEnd(t *testing.T) {
	t.Parallel()
	for _, shell := range shells() {
		t.Run(shell, func(t *testing.T) {
			t.Parallel()
			n := newNarrow(t, shell)
			cmd, ended, leave := n.held(t, 1000)
			n.room(t, 1)
			leave()
			eventually(t, "a fork was refused", func() bool { return n.refused(t) > 0 })
			leave()
			if err := <-ended; !isFull(err) && !isLost(err) {
				t.Errorf("without room: %v", err)
			}
			n.room(t, plenty)
			_, err := n.Run(t.Context(), cmd)
			if !isLost(err) || n.times() != 1 {
				t.Errorf("it has begun %d times, %v", n.times(), err)
			}
			t.Log(err)
		})
	}
}

// TestNoRoomButStartedOnce runs one name from many sides where not all of them have room.
func TestNoRoomButStartedOnce(t *testing.T) {
	t.Parallel()
	for pids := int64(7); pids < 22; pids += 2 {
		t.Run(fmt.Sprint(pids), func(t *testing.T) {
			t.Parallel()
			n := newNarrow(t, "dash")
			n.room(t, pids)
			cmd := providers.Command{Name: name(t), Shell: "printf x >>once; printf same; exit 5"}
			run := func() error {
				res, err := n.Run(t.Context(), cmd)
				if err == nil && (string(res.Stdout) != "same" || res.ExitCode != 5) ||
					err != nil && !isFull(err) && !isLost(err) {
					t.Errorf("got %+v, %v", res, err)
				}
				return err
			}
			var all sync.WaitGroup
			for range 4 {
				all.Go(func() {
					for range 20 {
						if !isFull(run()) {
							return
						}
					}
				})
			}
			all.Wait()
			n.room(t, plenty)
			if err := run(); isFull(err) || n.times() != 1 {
				t.Errorf("it was started %d times, %v", n.times(), err)
			}
		})
	}
}

// TestACommandThatTakesAllRoom: what fills the sandbox with processes is ended, though that needs processes.
func TestACommandThatTakesAllRoom(t *testing.T) {
	t.Parallel()
	for _, shell := range []string{"dash", "busybox sh"} {
		t.Run(shell, func(t *testing.T) {
			t.Parallel()
			n, long := newNarrow(t, shell), unlike()
			n.room(t, 30)
			res := n.run(t, providers.Command{
				Shell: "for i in $(seq 40); do " + long + " & done; wait", Timeout: time.Second,
			})
			if !res.TimedOut {
				t.Errorf("got %+v", res)
			}
			if left := alive(t, long); len(left) != 0 {
				t.Errorf("left behind: %v", left)
			}
		})
	}
}
