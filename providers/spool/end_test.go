package spool_test

import (
	"context"
	mathrand "math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"sandyard/dev/testenv"
	"sandyard/providers"
	"sandyard/providers/spool"
)

// alive lists the processes whose command line is this one.
func alive(t *testing.T, line string) (pids []int) {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil || strings.TrimSpace(strings.ReplaceAll(string(text), "\x00", " ")) != line {
			continue // it is another one, or has ended
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if err != nil {
			t.Fatal(err)
		}
		pids = append(pids, pid)
	}
	return pids
}

// unlike is a sleep that no other test has.
func unlike() string { return "sleep 1" + strconv.Itoa(100_000_000+mathrand.IntN(900_000_000)) }

func TestNothingSurvivesATimeout(t *testing.T) {
	t.Parallel()
	for what, script := range map[string]string{
		"a plain one":  `printf 'so far'; LONG`,
		"ignores TERM": `printf 'so far'; trap "" TERM; while :; do LONG; done`,
		"children":     `printf 'so far'; LONG | LONG | LONG`,
		"sessions":     `printf 'so far'; setsid LONG & LONG`,
		"double fork":  `printf 'so far'; (env -i setsid bash -c 'LONG & disown; LONG' &) ; LONG`,
		"without env":  `printf 'so far'; (env -i setsid bash -c 'LONG; :' &) ; LONG`,
		"without pipe": `printf 'so far'; (setsid bash -c 'LONG; :' >/dev/null 2>&1 &) ; LONG`,
		"many":         `printf 'so far'; for i in $(seq 20); do setsid LONG & done; wait`,
		"stopped":      `printf 'so far'; kill -STOP $$; LONG`,
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			b, long := newBox(t), unlike()
			res := b.run(t, providers.Command{Shell: strings.ReplaceAll(script, "LONG", long), Timeout: 700 * time.Millisecond})
			if !res.TimedOut || string(res.Stdout) != "so far" || res.ExitCode <= 128 || res.Signal == "" ||
				res.Duration < 700*time.Millisecond {
				t.Errorf("got %+v", res)
			}
			if left := alive(t, long); len(left) != 0 {
				t.Errorf("left behind: %v", left)
			}
		})
	}
}

// TestAProcessThatVanishesHidesNoOther: GNU's sed ends at a file of /proc whose process ends while it is read. This one
// does so at the first.
func TestAProcessThatVanishesHidesNoOther(t *testing.T) {
	t.Parallel()
	own, err := exec.LookPath("sed")
	if err != nil {
		t.Fatal(err)
	}
	bin := t.TempDir()
	sed := "#!/bin/sh\ncase \"$*\" in */proc/*) exit 4 ;; esac\nexec " + own + " \"$@\"\n"
	if err := os.WriteFile(filepath.Join(bin, "sed"), []byte(sed), 0o755); err != nil {
		t.Fatal(err)
	}
	b, long := newBox(t, "PATH="+bin+":"+os.Getenv("PATH")), unlike()
	if res := b.run(t, providers.Command{Shell: "env -i " + long, Timeout: 700 * time.Millisecond}); !res.TimedOut {
		t.Errorf("got %+v", res)
	}
	if left := alive(t, long); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

// TestTheNextCallKeepsTheTime leaves a command alone, whose timeout has passed when somebody comes back.
func TestTheNextCallKeepsTheTime(t *testing.T) {
	t.Parallel()
	b, long := newBox(t), unlike()
	cmd := providers.Command{Name: name(t), Shell: "touch begun; " + long, Timeout: time.Second}
	ctx, leave := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { _, err := b.Run(ctx, cmd); ended <- err }()
	eventually(t, "it has begun", b.has("begun"))
	leave()
	wantClass(t, <-ended, providers.Unavailable)
	<-time.After(time.Second) // which is no synchronisation: it may only be more
	if res := b.run(t, cmd); !res.TimedOut {
		t.Errorf("it ended as %+v", res)
	}
	if left := alive(t, long); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestKill(t *testing.T) {
	t.Parallel()
	b, long := newBox(t), unlike()
	cmd := providers.Command{Name: name(t), Shell: "setsid " + long + " & touch begun; " + long}
	type answer struct {
		res providers.Result
		err error
	}
	ended := make(chan answer, 1)
	go func() { res, err := b.Run(t.Context(), cmd); ended <- answer{res, err} }()
	eventually(t, "it has begun", b.has("begun"))
	for _, n := range []string{cmd.Name, cmd.Name, name(t)} {
		if err := b.Kill(t.Context(), n); err != nil {
			t.Errorf("kill: %v", err)
		}
	}
	if a := <-ended; a.err != nil || a.res.TimedOut || a.res.ExitCode != 143 || a.res.Signal != "SIGTERM" {
		t.Errorf("got %+v, %v", a.res, a.err)
	}
	if left := alive(t, long); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

// TestACommandTurnsOnItsKeeper: the sandbox is rid of a command that kills or stops who keeps it, and the run returns.
func TestACommandTurnsOnItsKeeper(t *testing.T) {
	t.Parallel()
	for signal, timeout := range map[string]time.Duration{"KILL": time.Minute, "STOP": time.Second} {
		t.Run(signal, func(t *testing.T) {
			t.Parallel()
			b, long := newBox(t), unlike()
			cmd := providers.Command{
				Name:  name(t),
				Shell: "printf kept; kill -" + signal + " $PPID; setsid " + long + " & " + long, Timeout: timeout,
			}
			for range 2 { // the second time it attaches
				res, err := b.Run(t.Context(), cmd)
				if signal == "KILL" {
					if !isLost(err) {
						t.Errorf("got %+v, %v", res, err)
					}
				} else if err != nil || string(res.Stdout) != "kept" || res.ExitCode <= 128 {
					t.Errorf("got %+v, %v", res, err)
				}
			}
			if left := alive(t, long); len(left) != 0 {
				t.Errorf("left behind: %v", left)
			}
		})
	}
}

func TestWhatACommandLeavesStays(t *testing.T) {
	t.Parallel()
	b, long := newBox(t), unlike()
	res := b.run(t, providers.Command{Shell: long + " & setsid " + long + " >/dev/null 2>&1 </dev/null & echo started"})
	if string(res.Stdout) != "started\n" || res.StdoutBytes != 8 || res.Duration > 20*time.Second {
		t.Errorf("got %+v", res)
	}
	left := alive(t, long)
	if len(left) != 2 {
		t.Errorf("%d of 2 processes stayed", len(left))
	}
	for _, pid := range left {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Error(err)
		}
	}
	holder := b.run(t, providers.Command{
		Shell: "(while [ ! -e end ]; do sleep 0.1; done; head -c 200000 /dev/zero && touch written) & " +
			"head -c 5000 /dev/zero",
		MaxOutput: 1000,
	})
	if len(holder.Stdout) != 1000 || holder.StdoutBytes != 5000 {
		t.Errorf("kept %d of %d bytes", len(holder.Stdout), holder.StdoutBytes)
	}
	if err := os.WriteFile(filepath.Join(b.dir, "end"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	eventually(t, "what it left can still write", b.has("written"))
}

// TestACommandInDoubtDoesNotBegin: one whose keeper has given it up, or was killed before anybody knew that it had
// begun.
func TestACommandInDoubtDoesNotBegin(t *testing.T) {
	t.Parallel()
	own, err := exec.LookPath("setsid")
	if err != nil {
		t.Fatal(err)
	}
	for what, instead := range map[string]string{
		"given up": `: >run/leader`,
		"killed":   `kill -KILL $PPID; exit`,
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			bin := t.TempDir()
			setsid := "#!/bin/sh\ncase \"$*\" in 'sh ./cmd run') " + instead + " ;; esac\nexec " + own + " \"$@\"\n"
			if err := os.WriteFile(filepath.Join(bin, "setsid"), []byte(setsid), 0o755); err != nil {
				t.Fatal(err)
			}
			b := newBox(t, "PATH="+bin+":"+os.Getenv("PATH"))
			cmd := providers.Command{Name: name(t), Shell: "touch begun"}
			for range 2 { // the second time nothing is in its way
				res, err := b.Run(t.Context(), cmd)
				if b.has("begun")() || err == nil && res.ExitCode == 0 || what == "killed" && !isLost(err) {
					t.Errorf("got %+v, %v", res, err)
				}
				b.env = nil
			}
		})
	}
}

// TestOutputThatDoesNotEnd: a command has ended, although what it has left writes on.
func TestOutputThatDoesNotEnd(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	// It ends with the test's directory.
	res := b.run(t, providers.Command{Shell: `(while [ -d "$PWD" ]; do printf x; sleep 0.002; done) & printf begin`})
	if res.ExitCode != 0 || strings.ReplaceAll(string(res.Stdout), "x", "") != "begin" {
		t.Errorf("got %+v", res)
	}
}

// TestAReusedProcessIDIsNotTheKeeper: after a restart of the sandbox another process may have the keeper's number.
func TestAReusedProcessIDIsNotTheKeeper(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	cmd := providers.Command{Name: name(t), Shell: "printf x >>once"}
	leave(t, cmd.Name, map[string]string{"life": "another", "keeper": strconv.Itoa(os.Getpid()) + " 1 1"})
	res := b.run(t, cmd)
	if res.ExitCode != 137 || res.Signal != "SIGKILL" || b.has("once")() {
		t.Errorf("got %+v", res)
	}
}

// TestACommandThatAnotherMachineRan: a stop ended it, and the machine that has the files now started later than it did.
func TestACommandThatAnotherMachineRan(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	cmd := providers.Command{Name: name(t), Shell: "echo again"}
	const keeper = "4194304 1 99999999999" // no process has this number
	leave(t, cmd.Name, map[string]string{"life": "another", "keeper": keeper})
	if res := b.run(t, cmd); res.ExitCode != 137 || len(res.Stdout) != 0 {
		t.Errorf("got %+v", res)
	}
}

// TestAKeeperThatHasSaidNothing may be killed, or slow. That a restart has ended its command is more than is known.
func TestAKeeperThatHasSaidNothing(t *testing.T) {
	t.Parallel()
	for how, files := range map[string]map[string]string{
		"it has its directory": {},
		"it writes its life":   {"life": ""},
	} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			b := newBox(t)
			cmd := providers.Command{Name: name(t), Shell: "printf x >>once"}
			leave(t, cmd.Name, files)
			if res, err := b.Run(t.Context(), cmd); !isLost(err) || b.has("once")() {
				t.Errorf("got %+v, %v", res, err)
			}
		})
	}
}

// leave makes the directory of a command's first try with files of one line; an empty one has none.
func leave(t *testing.T, command string, files map[string]string) {
	t.Helper()
	dir := filepath.Join(spoolDir(command), "run")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, line := range files {
		if line != "" {
			line += "\n"
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(line), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// liar is a sandbox in which all commands run for ever, whatever is done about that.
type liar struct{ calls atomic.Int64 }

func (l *liar) Script(ctx context.Context, _, _ string, _ int64) ([]byte, error) {
	l.calls.Add(1)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return []byte("spool1 running 0\n"), nil
}

func (l *liar) Put(context.Context, string, []byte) error { return nil }

// TestACommandThatCannotBeEnded: a sandbox that does not end a command keeps nobody, and is not asked without a break.
func TestACommandThatCannotBeEnded(t *testing.T) {
	t.Parallel()
	l := &liar{}
	s := spool.New(l, spool.Options{WorkDir: "/w", Home: "/w", Patience: 50 * time.Millisecond})
	ctx, stop := context.WithTimeout(t.Context(), testenv.Patience())
	defer stop()
	_, err := s.Run(ctx, providers.Command{Name: "x", Shell: "true", Timeout: 100 * time.Millisecond})
	wantClass(t, err, providers.Unavailable)
	if ctx.Err() != nil || l.calls.Load() > 20 {
		t.Errorf("asked %d times, %v", l.calls.Load(), ctx.Err())
	}
}
