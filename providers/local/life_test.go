package local_test

import (
	"bufio"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"sandyard/dev/testenv"
	"sandyard/providers"
	"sandyard/providers/local"
	"sandyard/providers/local/shim"
)

// dir is where the sandbox's files are, as List tells it.
func dirOf(t *testing.T, p *local.Provider, id string) string {
	t.Helper()
	found, err := p.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, box := range found {
		if box.ID == id {
			return box.Ref
		}
	}
	t.Fatalf("sandbox %s is not listed", id)
	return ""
}

func shimOf(t *testing.T, dir string) int {
	t.Helper()
	pid, alive := shim.Alive(dir)
	if !alive || pid == 0 {
		t.Fatalf("no shim in %s", dir)
	}
	return pid
}

// guestOf is the only child of the shim.
func guestOf(t *testing.T, shim int) int {
	t.Helper()
	children, err := filepath.Glob("/proc/" + strconv.Itoa(shim) + "/task/*/children")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range children {
		text, err := os.ReadFile(file)
		if pid, numberErr := strconv.Atoi(strings.TrimSpace(string(text))); err == nil && numberErr == nil {
			return pid
		}
	}
	t.Fatalf("shim %d has no child", shim)
	return 0
}

func TestDeleteWaitsForACancelledCreate(t *testing.T) {
	t.Parallel()
	for _, after := range []time.Duration{time.Microsecond, time.Millisecond, 4 * time.Millisecond, 12 * time.Millisecond} {
		t.Run(after.String(), func(t *testing.T) {
			t.Parallel()
			y := newYard(t)
			p := y.open(t)
			id := newID()
			ctx, cancel := context.WithTimeout(t.Context(), after)
			defer cancel()
			_, err := p.Create(ctx, providers.Spec{ID: id, Image: image})
			if err != nil && !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("create answers %v", err)
			}
			if err := p.Delete(t.Context(), id); err != nil {
				t.Errorf("delete: %v", err)
			}
			if left := y.left(t); len(left) != 0 {
				t.Errorf("left %v", left)
			}
		})
	}
}

func TestNothingIsLeft(t *testing.T) {
	t.Parallel()
	for name, before := range map[string]func(t *testing.T, p *local.Provider, id string, box providers.Sandbox){
		"running": func(t *testing.T, _ *local.Provider, _ string, box providers.Sandbox) {
			shell(t, box, "setsid sleep 1000 >/dev/null 2>&1 </dev/null &")
		},
		"paused": func(t *testing.T, p *local.Provider, id string, _ providers.Sandbox) {
			if err := p.Pause(t.Context(), id); err != nil {
				t.Fatal(err)
			}
		},
		"guest killed": func(t *testing.T, p *local.Provider, id string, _ providers.Sandbox) {
			kill(t, guestOf(t, shimOf(t, dirOf(t, p, id))))
		},
		"shim killed": func(t *testing.T, p *local.Provider, id string, _ providers.Sandbox) {
			kill(t, shimOf(t, dirOf(t, p, id)))
		},
		"shim stopped": func(t *testing.T, p *local.Provider, id string, _ providers.Sandbox) {
			if err := syscall.Kill(shimOf(t, dirOf(t, p, id)), syscall.SIGSTOP); err != nil {
				t.Fatal(err)
			}
		},
		"paused and shim killed": func(t *testing.T, p *local.Provider, id string, _ providers.Sandbox) {
			if err := p.Pause(t.Context(), id); err != nil {
				t.Fatal(err)
			}
			kill(t, shimOf(t, dirOf(t, p, id)))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			y := newYard(t)
			p := y.open(t)
			id, box := create(t, p)
			if groups := groupsOf(t, id); len(groups) == 0 {
				t.Fatal("a living sandbox has no control group")
			}
			before(t, p, id, box)
			if err := p.Delete(t.Context(), id); err != nil {
				t.Fatal(err)
			}
			if left := append(y.left(t), groupsOf(t, id)...); len(left) != 0 {
				t.Errorf("left %v", left)
			}
			mounts, err := os.ReadFile("/proc/self/mountinfo")
			if err != nil || strings.Contains(string(mounts), y.dir) {
				t.Errorf("mounts are left, or %v", err)
			}
		})
	}
}

func kill(t *testing.T, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
}

func groupsOf(t *testing.T, id string) []string {
	t.Helper()
	var found []string
	for _, pattern := range []string{"/sys/fs/cgroup/sandyard-*-" + id, "/sys/fs/cgroup/*/sandyard-*-" + id} {
		dirs, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, dirs...)
	}
	return found
}

func TestSandboxKilledBehindOurBack(t *testing.T) {
	t.Parallel()
	shimItself := func(_ *testing.T, shim int) int { return shim }
	for name, c := range map[string]struct {
		victim func(t *testing.T, shim int) int
		boot   string // since which the sandbox is there; empty = the machine's last
		why    string
	}{
		"shim":    {shimItself, "", providers.EndedByKill},
		"guest":   {guestOf, "", providers.EndedByKill},
		"machine": {shimItself, "another boot", providers.EndedByMachine},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newYard(t).open(t)
			id, box := create(t, p)
			ended := make(chan error, 1)
			go func() {
				_, err := box.Run(t.Context(), providers.Command{Name: "long", Shell: "touch begun; sleep 600"})
				ended <- err
			}()
			await(t, func() bool { _, err := box.Stat(t.Context(), "begun"); return err == nil })
			if c.boot != "" {
				if err := os.WriteFile(filepath.Join(dirOf(t, p, id), "ready"), []byte(c.boot), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			kill(t, c.victim(t, shimOf(t, dirOf(t, p, id))))
			if err := <-ended; !errors.Is(err, providers.ErrLost) {
				t.Errorf("the command's run answers %v, want ErrLost", err)
			}
			if _, err := p.Open(t.Context(), id); !errors.Is(err, providers.ErrLost) {
				t.Errorf("open answers %v, want ErrLost", err)
			}
			if found, err := p.List(t.Context()); err != nil || len(found) != 1 || found[0].State != providers.StateStopped || found[0].Ended != c.why {
				t.Errorf("listed %+v, %v; want it stopped, because %q", found, err, c.why)
			}
			if _, err := p.Create(t.Context(), providers.Spec{ID: id, Image: image}); err != nil {
				t.Fatalf("create anew: %v", err)
			}
			if got := shell(t, open(t, p, id), "ls; echo new"); got != "new" {
				t.Errorf("the new sandbox holds %q", got)
			}
		})
	}
}

func TestHalfMadeSandboxIsMadeAnew(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	first, p := y.open(t), y.open(t)
	id, box := create(t, first)
	shell(t, box, "touch old")
	// What a worker leaves that dies just before the guest's first answer.
	if err := os.Remove(filepath.Join(dirOf(t, p, id), "ready")); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Open(t.Context(), id); classOf(err) != providers.Busy {
		t.Errorf("open of a half-made sandbox answers %v", err)
	}
	if found, err := p.List(t.Context()); err != nil || len(found) != 1 || found[0].State != providers.StateStopped {
		t.Errorf("listed %+v, %v; want it stopped", found, err)
	}
	made, err := p.Create(t.Context(), providers.Spec{ID: id, Image: image})
	if err != nil || made.State != providers.StateRunning {
		t.Fatalf("create: %+v, %v", made, err)
	}
	if got := shell(t, open(t, p, id), "ls"); got != "" {
		t.Errorf("the new sandbox holds %q", got)
	}
}

// TestHungGuestIsEnded stops the first process from outside, where alone that can be done.
func TestHungGuestIsEnded(t *testing.T) {
	testenv.Long(t, "it takes many seconds")
	t.Parallel()
	p := newYard(t).open(t)
	id, box := create(t, p)
	if err := syscall.Kill(guestOf(t, shimOf(t, dirOf(t, p, id))), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	_, err := box.Run(t.Context(), providers.Command{Name: "job", Shell: "true", Timeout: time.Minute})
	if !errors.Is(err, providers.ErrLost) {
		t.Errorf("run under a hung guest answers %v, want ErrLost", err)
	}
	if found, err := p.List(t.Context()); err != nil || len(found) != 1 || found[0].State != providers.StateStopped {
		t.Errorf("listed %+v, %v; want it stopped", found, err)
	}
}

// TestSlowGuestIsLeftAlone stops the first process for longer than a link outlives it, and for less than would cost it its
// sandbox.
func TestSlowGuestIsLeftAlone(t *testing.T) {
	testenv.Long(t, "it takes many seconds")
	t.Parallel()
	p := newYard(t).open(t)
	id, box := create(t, p)
	guest := guestOf(t, shimOf(t, dirOf(t, p, id)))
	if err := syscall.Kill(guest, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	defer time.AfterFunc(13*time.Second, func() { _ = syscall.Kill(guest, syscall.SIGCONT) }).Stop()
	cmd := providers.Command{Name: "job", Shell: "echo once | tee -a log", Timeout: time.Minute}
	res, err := box.Run(t.Context(), cmd)
	for errors.Is(err, &providers.Error{Class: providers.Unavailable}) { // a job asks again, by the same name
		t.Logf("asked again: %v", err)
		res, err = box.Run(t.Context(), cmd)
	}
	if err != nil || string(res.Stdout) != "once\n" {
		t.Errorf("run under a slow guest answers %+v, %v", res, err)
	}
	if got := shell(t, box, "cat log"); got != "once" {
		t.Errorf("it ran as %q", got)
	}
}

// TestExecSurvivesItsWorker kills a whole worker process in the middle of a command, with all its process group.
func TestExecSurvivesItsWorker(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	p := y.open(t)
	id := newID()
	worker := y.startWorker(t, id)
	box := open(t, p, id)
	await(t, func() bool { _, err := box.Stat(t.Context(), "begun"); return err == nil })
	if err := syscall.Kill(-worker.Process.Pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = worker.Wait()
	if _, err := box.WriteFile(t.Context(), "go", nil, 0); err != nil {
		t.Fatal(err)
	}
	res, err := box.Run(t.Context(), providers.Command{Name: workersCommand, Shell: "echo started twice"})
	if err != nil || string(res.Stdout) != "begin end" || res.ExitCode != 7 {
		t.Errorf("got %q, exit code %d, %v", res.Stdout, res.ExitCode, err)
	}
}

// A worker of its own is this test program with these variables set.
const (
	workerVar      = "LOCAL_TEST_WORKER"
	workersCommand = "job"
)

// startWorker runs a process that makes the sandbox and runs a command in it, and returns when it has begun to.
func (y *yard) startWorker(t *testing.T, id string) *exec.Cmd {
	t.Helper()
	dir, err := programs()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/proc/self/exe", "-test.run=^TestBeAWorker$")
	cmd.Env = append(os.Environ(), workerVar+"="+strings.Join([]string{y.dir, y.fleet, dir, id}, "|"))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || line != "made\n" {
		t.Fatalf("the worker says %q, %v", line, err)
	}
	return cmd
}

// TestBeAWorker is no test but the process that TestExecSurvivesItsWorker starts.
func TestBeAWorker(t *testing.T) {
	task := strings.Split(os.Getenv(workerVar), "|")
	if len(task) != 4 {
		t.Skip("skipped: it does its work in a process of its own")
	}
	p, err := local.New(t.Context(), local.Config{Dir: task[0], Fleet: task[1], GuestPath: task[2]})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Create(t.Context(), providers.Spec{ID: task[3], Image: image}); err != nil {
		t.Fatal(err)
	}
	box := open(t, p, task[3])
	ended := make(chan error, 1)
	go func() {
		_, err := box.Run(t.Context(), providers.Command{
			Name: workersCommand, Shell: "printf 'begin '; touch begun; until [ -e go ]; do sleep 0.05; done; printf end; exit 7",
		})
		ended <- err
	}()
	await(t, func() bool { _, err := box.Stat(t.Context(), "begun"); return err == nil })
	_, _ = os.Stdout.WriteString("made\n")
	t.Fatalf("nobody killed this worker: %v", <-ended)
}
