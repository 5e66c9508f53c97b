package e2e_test

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/docker/docker/api/types/container"

	"sandyard/dev/testenv"
)

// shell is an image that an engine of a test's own takes in quickly.
const shell = "sandyard/shell:test"

// TestEngineRestarts restarts an engine under its sandboxes, first as it is out of the box, which ends them, and then with
// live-restore, which does not.
func TestEngineRestarts(t *testing.T) {
	testenv.Long(t, "it takes many seconds")
	t.Parallel()
	own := ownEngine(t)
	r := newRig(t, "DOCKER_HOST", own.Host, "SANDBOX_TEMPLATES", "python="+shell, "RECONCILE_EVERY", "300ms", "RECONCILE_GRACE", "1s")
	r.endsOneByOne(own)
	r.losesSandboxes(own)
	r.keepsSandboxes(own)
	r.clean()
}

// Why sandboxes are lost, as their users read it.
const (
	withItsEngine = "its engine was stopped or restarted, which ends sandboxes unless live-restore is on"
	byAKill       = "it was killed outside Sandyard"
	forMemory     = "it ran out of memory"
	byARemoval    = "it was removed outside Sandyard"
)

// lostBecause waits until a sandbox is lost, and checks that the reason in its document and its events is one of some.
func (r *rig) lostBecause(box string, why ...string) {
	r.t.Helper()
	testenv.Eventually(r.t, "the sandbox is lost", func() bool { return r.sandbox(box).State == "lost" })
	is := func(reason string) bool {
		return slices.ContainsFunc(why, func(end string) bool { return strings.HasSuffix(reason, end) })
	}
	if got := r.sandbox(box).EndReason; !is(got) {
		r.t.Errorf("the sandbox is lost because %q, want %q", got, why)
	}
	var page struct {
		Events []struct{ Event, Reason string }
	}
	decode(r.t, r.call("GET", "/v1/sandboxes/"+box+"/events?limit=100", nil).want(r.t, 200).raw, &page)
	for _, e := range page.Events {
		if e.Event == "sandbox.lost" && is(e.Reason) {
			return
		}
	}
	r.t.Errorf("no event says that it was lost because %q: %+v", why, page)
}

// endsOneByOne: the engine, or its machine, ends sandboxes while it runs, and then it dies itself.
func (r *rig) endsOneByOne(own *testenv.Engine) {
	t := r.t
	small := object{"memory_mb": 64, "disk_mb": 8}
	killed, struck, full, removed := r.created(small).ID, r.created(small).ID, r.created(small).ID, r.created(small).ID
	must(t, os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", r.inspect(full).State.Pid), []byte("1000"), 0o600))
	// Of many small ones the guest is then the kernel's first choice.
	hogs := r.start(full, `for i in {1..20}; do bash -c 'echo 0 >/proc/self/oom_score_adj; x=$(printf %08000000d 1); sleep 100' & done; wait`)
	must(t, r.engine.api.ContainerKill(t.Context(), "sandyard-"+killed, "KILL"))
	must(t, syscall.Kill(r.inspect(struck).State.Pid, syscall.SIGKILL))
	must(t, r.engine.api.ContainerRemove(t.Context(), "sandyard-"+removed, container.RemoveOptions{Force: true}))
	r.lostBecause(killed, byAKill)
	r.lostBecause(struck, byAKill)
	r.lostBecause(full, forMemory)
	r.lostBecause(removed, byARemoval, byAKill) // it may be seen dead before
	if hogs = r.end(hogs); hogs.State != "lost" || hogs.Error == nil || !strings.HasSuffix(hogs.Error.Message, forMemory) {
		t.Errorf("the command that used up the memory: %s", hogs)
	}
	crashed := r.created(small).ID
	must(t, own.Crash(func() {}))
	r.lostBecause(crashed, withItsEngine)
}

// losesSandboxes: what was in them is gone, and their users are told. One that is to be made again is.
func (r *rig) losesSandboxes(own *testenv.Engine) {
	t := r.t
	lost, paused := r.created(object{}).ID, r.created(object{}).ID
	again := r.created(object{"key": "thread", "on_lost": "recreate", "labels": object{"of": "thread"}}).ID
	r.end(r.submit("/v1/sandboxes/"+paused+"/pause", object{}).Job).succeeded(t)
	r.file(again, "write", object{"path": "old", "content": ""}).succeeded(t)
	j := r.start(lost, "touch begun; sleep 1000")
	r.appears(lost, "begun")
	behind := r.start(lost, "true")
	must(t, own.Restart(func() { must(t, own.Configure(testenv.EngineOptions{LiveRestore: true})) }))
	if j = r.end(j); j.State != "lost" || j.code() != "sandbox_lost" {
		t.Errorf("the command under which the engine ended its sandbox: %s", j)
	}
	if behind = r.end(behind); behind.State == "succeeded" {
		t.Errorf("the command behind it: %s", behind)
	}
	for _, box := range []string{lost, paused, again} {
		r.lostBecause(box, withItsEngine)
	}
	var made sandbox
	testenv.Eventually(t, "another takes its place", func() bool {
		made = r.sandbox(again)
		return made.ReplacedBy != "" && r.sandbox(made.ReplacedBy).State == "running"
	})
	if made = r.sandbox(made.ReplacedBy); made.Key != "thread" || made.Labels["of"] != "thread" {
		t.Errorf("in its place there is %+v", made)
	}
	if j := r.exec(made.ID, "test ! -e old && cat /proc/net/dev").succeeded(t); j.Result.ExitCode != 0 || !isAlone(j.Stdout) {
		t.Errorf("in the one that was made again: %s", j)
	}
}

// keepsSandboxes: commands go on and lose no output, also what they write while there is no engine.
func (r *rig) keepsSandboxes(own *testenv.Engine) {
	t := r.t
	box, paused := r.created(object{}).ID, r.created(object{}).ID
	r.exec(paused, "touch kept").succeeded(t)
	r.end(r.submit("/v1/sandboxes/"+paused+"/pause", object{}).Job).succeeded(t)
	r.end(r.cell(box, "bash", "word=kept")).succeeded(t)
	counts := r.exec(box, "i=0; while [ ! -e stop ]; do i=$((i+1)); echo $i; sleep 0.01; done", object{"background": true}).succeeded(t)
	runs := r.start(box, "echo x >> log; echo begun; while [ ! -e go ]; do sleep 0.05; done; echo done")
	r.appears(box, "log")
	before := r.inspect(box)
	var away job
	must(t, own.Restart(func() {
		if err := syscall.Kill(before.State.Pid, 0); err != nil {
			t.Errorf("without its engine the sandbox is not alive: %v", err)
		}
		away = r.start(box, "echo after", object{"parallel": true})
	}))
	if away = r.end(away).succeeded(t); away.Stdout != "after\n" {
		t.Errorf("the command that came while there was no engine: %s", away)
	}
	r.end(r.submit("/v1/sandboxes/"+box+"/files/write", object{"path": "go", "content": "", "parallel": true}).Job).succeeded(t)
	if runs = r.end(runs).succeeded(t); runs.Stdout != "begun\ndone\n" || runs.Result.ExitCode != 0 {
		t.Errorf("the command that ran: %s", runs)
	}
	if log := r.file(box, "read", object{"path": "log"}).succeeded(t); log.Content != "x\n" {
		t.Errorf("it ran more than once: %q", log.Content)
	}
	r.file(box, "write", object{"path": "stop", "content": ""}).succeeded(t)
	r.end(r.submit("/v1/sandboxes/"+box+"/execs/"+counts.ID+"/wait", object{}).Job).succeeded(t)
	r.counted(box, counts.ID)
	if j := r.end(r.cell(box, "bash", "echo $word")).succeeded(t); j.Stdout != "kept\n" || j.Result.ExecutionCount != 2 {
		t.Errorf("the code context: %s", j)
	}
	if j := r.exec(box, "cat /proc/net/dev").succeeded(t); !isAlone(j.Stdout) {
		t.Errorf("its network: %s", j.Stdout)
	}
	if after := r.inspect(box); after.ID != before.ID || after.State.Pid != before.State.Pid || after.State.StartedAt != before.State.StartedAt {
		t.Errorf("its container was %s of %s, pid %d, and is %s of %s, pid %d", before.ID, before.State.StartedAt, before.State.Pid, after.ID, after.State.StartedAt, after.State.Pid)
	}
	must(t, r.engine.api.ContainerKill(t.Context(), "sandyard-"+box, "KILL"))
	r.lostBecause(box, byAKill)
	r.end(r.submit("/v1/sandboxes/"+paused+"/resume", object{}).Job).succeeded(t)
	if j := r.exec(paused, "test -e kept").succeeded(t); j.Result.ExitCode != 0 {
		t.Errorf("the paused one: %s", j)
	}
	if j := r.exec(r.created(object{}).ID, "cat /proc/net/dev").succeeded(t); !isAlone(j.Stdout) {
		t.Errorf("the network of one that was made afterwards: %s", j)
	}
}

// appears waits until a command that runs has made the file.
func (r *rig) appears(box, path string) {
	r.t.Helper()
	testenv.Eventually(r.t, path+" is there", func() bool {
		return r.end(r.submit("/v1/sandboxes/"+box+"/files/stat", object{"path": path, "parallel": true}).Job).State == "succeeded"
	})
}

func (r *rig) inspect(box string) container.InspectResponse {
	r.t.Helper()
	c, err := r.engine.api.ContainerInspect(r.t.Context(), "sandyard-"+box)
	must(r.t, err)
	return c
}

// counted reads the output of a background exec, whose lines are the numbers from 1 on.
func (r *rig) counted(box, id string) {
	r.t.Helper()
	var text strings.Builder
	for offset, eof := 0, false; !eof; {
		var out struct {
			Data string
			EOF  bool
			Next int `json:"next_offset"`
		}
		decode(r.t, r.call("GET", fmt.Sprintf("/v1/sandboxes/%s/execs/%s/output?offset=%d", box, id, offset), nil).want(r.t, 200).raw, &out)
		text.WriteString(out.Data)
		offset, eof = out.Next, out.EOF
	}
	n := 0
	for line := range strings.Lines(text.String()) {
		if n++; line != fmt.Sprintln(n) {
			r.t.Fatalf("line %d of the output is %q", n, line)
		}
	}
	if n < 10 {
		r.t.Errorf("it has counted to %d only", n)
	}
}

// isAlone says whether /proc/net/dev names loopback and nothing else.
func isAlone(dev string) bool {
	return strings.Count(dev, ":") == 1 && strings.Contains(dev, "lo:")
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// ownEngine is an engine that may be restarted, with the image shell.
func ownEngine(t *testing.T) *testenv.Engine {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("skipped: only root can start an engine")
	}
	own, err := testenv.StartEngine(testenv.EngineOptions{})
	must(t, err)
	t.Cleanup(func() {
		own.Close()
		if _, err := os.Stat(filepath.Dir(strings.TrimPrefix(own.Host, "unix://"))); err == nil {
			t.Errorf("the engine at %s has left what it kept", own.Host)
		}
	})
	made, err := exec.Command("docker", "create", "--network=none", image, "true").Output()
	must(t, err)
	id := strings.TrimSpace(string(made))
	defer func() { must(t, exec.Command("docker", "rm", id).Run()) }()
	export, load := exec.Command("docker", "export", id), exec.Command("docker", "-H", own.Host, "import", "-", shell)
	from, err := export.StdoutPipe()
	must(t, err)
	to, err := load.StdinPipe()
	must(t, err)
	must(t, errors.Join(export.Start(), load.Start()))
	must(t, errors.Join(keepShell(to, from), to.Close(), export.Wait(), load.Wait()))
	return own
}

// ofShell are the files that a shell needs, and the directories and links that lead to them.
var ofShell = regexp.MustCompile(`^(etc|tmp|(usr/)?(s?bin|lib|lib64)(/[^/]+-linux-gnu[^/]*)?(/(bash|sh|dash|cat|sleep|touch|ld[-.]|libc[-.]|libtinfo)[^/]*)?)/?$`)

func keepShell(to io.Writer, from io.Reader) error {
	in, out := tar.NewReader(from), tar.NewWriter(to)
	for {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			_, err := io.Copy(io.Discard, from)
			return errors.Join(out.Close(), err)
		}
		if err != nil {
			return err
		}
		if !ofShell.MatchString(h.Name) {
			continue
		}
		if err := out.WriteHeader(h); err != nil {
			return err
		}
		if _, err := io.Copy(out, in); err != nil {
			return err
		}
	}
}
