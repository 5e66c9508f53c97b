package testenv

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// EngineOptions say how an engine differs from one out of the box.
type EngineOptions struct {
	// LiveRestore lets containers live on while the engine is away.
	LiveRestore bool
	// Runtimes are further OCI runtimes: name → program and its arguments.
	Runtimes map[string][]string
	// Runtime is the one of containers that name none; empty = runc.
	Runtime string
	// DataMB is the size of what it keeps images and containers on, in memory; 0 = they lie on the disk. Configure does not
	// change it.
	DataMB int
}

// Engine is a Docker engine of the caller's own. It has no network but containers' loopback, touches no firewall, and
// all it keeps is in a temporary directory. It ends with this process, however that ends.
type Engine struct {
	Host  string // its address
	dir   string
	cmd   *exec.Cmd
	leash *os.File
}

// engineScript holds one engine. The end of its standard input, which the kernel closes with the last process of ours,
// is the order to end the engine with all that it made, also shims that it has forgotten; a signal's name before it, to
// end no more than the engine. What the shims are looked for by must not be in the script's own command line, and each start
// of the engine may have mounted its data upon itself.
const engineScript = `dir=$1
shift
"$@" </dev/null >>"$dir/log" 2>&1 &
server=$!
word=$(cat)
[ -n "$word" ] || docker -H "unix://$dir/docker.sock" ps -aq | xargs -r docker -H "unix://$dir/docker.sock" rm -f
kill -s "${word:-TERM}" "$server"
wait "$server"
[ -z "$word" ] || exit 0
for process in /proc/[0-9]*; do
	tr '\0' ' ' 2>/dev/null <"$process/cmdline" | grep -q -- " -namespace ${dir##*/} " && kill -9 "${process##*/}"
done
while umount "$dir/data" 2>/dev/null; do :; done
rm -rf "$dir"`

// StartEngine needs root, dockerd and docker.
func StartEngine(o EngineOptions) (*Engine, error) {
	dir, err := os.MkdirTemp("", "sandyard-engine-")
	if err != nil {
		return nil, err
	}
	e := &Engine{Host: "unix://" + filepath.Join(dir, "docker.sock"), dir: dir}
	if err := e.Configure(o); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	if o.DataMB > 0 {
		if err := e.mountData(o.DataMB); err != nil {
			return nil, errors.Join(err, os.RemoveAll(dir))
		}
	}
	if err := e.start(); err != nil {
		e.Close()
		return nil, err
	}
	return e, nil
}

// DataDir is where it keeps images and containers.
func (e *Engine) DataDir() string { return filepath.Join(e.dir, "data") }

func (e *Engine) mountData(mb int) error {
	if err := os.Mkdir(e.DataDir(), 0o700); err != nil {
		return err
	}
	return syscall.Mount("tmpfs", e.DataDir(), "tmpfs", 0, fmt.Sprintf("size=%dm", mb))
}

// Configure says how the engine is to be from its next start on.
func (e *Engine) Configure(o EngineOptions) error {
	type runtime struct {
		Path string   `json:"path"`
		Args []string `json:"runtimeArgs,omitempty"`
	}
	runtimes := map[string]runtime{}
	for name, command := range o.Runtimes {
		runtimes[name] = runtime{command[0], command[1:]}
	}
	text, err := json.Marshal(map[string]any{
		"live-restore": o.LiveRestore, "runtimes": runtimes, "default-runtime": cmp.Or(o.Runtime, "runc"),
	})
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(e.dir, "daemon.json"), text, 0o600)
}

// Reconfigure says how the engine is to be from now on, as far as a running one can change.
func (e *Engine) Reconfigure(o EngineOptions) error {
	if err := e.Configure(o); err != nil {
		return err
	}
	text, err := os.ReadFile(filepath.Join(e.dir, "pid"))
	if err != nil {
		return err
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return err
	}
	if err := syscall.Kill(pid, syscall.SIGHUP); err != nil {
		return err
	}
	return e.until(func(ctx context.Context, transport http.RoundTripper) error {
		var info struct{ LiveRestoreEnabled bool }
		if err := get(ctx, transport, "/info", &info); err != nil {
			return err
		}
		if info.LiveRestoreEnabled != o.LiveRestore {
			return errors.New("it has not read its settings")
		}
		return nil
	})
}

func (e *Engine) start() error {
	stdin, leash, err := os.Pipe()
	if err != nil {
		return err
	}
	defer stdin.Close()
	e.cmd = exec.Command("/bin/sh", "-c", engineScript, "engine", e.dir,
		"dockerd", "--host", e.Host, "--config-file", filepath.Join(e.dir, "daemon.json"),
		"--bridge=none", "--iptables=false", "--ip-forward=false",
		"--containerd-namespace", filepath.Base(e.dir), "--containerd-plugins-namespace", filepath.Base(e.dir)+"-plugins",
		"--data-root", filepath.Join(e.dir, "data"), "--exec-root", filepath.Join(e.dir, "exec"), "--pidfile", filepath.Join(e.dir, "pid"))
	e.cmd.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
	e.cmd.Stdin, e.cmd.SysProcAttr = stdin, &syscall.SysProcAttr{Setsid: true}
	if err := e.cmd.Start(); err != nil {
		return errors.Join(err, leash.Close())
	}
	e.leash = leash
	return e.await()
}

// await returns when the engine answers.
func (e *Engine) await() error {
	return e.until(func(ctx context.Context, transport http.RoundTripper) error {
		return get(ctx, transport, "/_ping", nil)
	})
}

// until returns when ask does so without an error.
func (e *Engine) until(ask func(context.Context, http.RoundTripper) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), Patience())
	defer cancel()
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", filepath.Join(e.dir, "docker.sock"))
	}}
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		err := ask(ctx, transport)
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			log, _ := os.ReadFile(filepath.Join(e.dir, "log"))
			return fmt.Errorf("the engine does not answer as it should (%w): %s", err, log[max(0, len(log)-2000):])
		}
	}
}

// get asks the engine for a document, and reads it into out unless that is nil.
func get(ctx context.Context, transport http.RoundTripper, path string, out any) error {
	ask, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://docker"+path, nil)
	if err != nil {
		return err
	}
	answer, err := transport.RoundTrip(ask)
	if err != nil {
		return err
	}
	switch {
	case answer.StatusCode != http.StatusOK:
		err = errors.New(answer.Status)
	case out != nil:
		err = json.NewDecoder(answer.Body).Decode(out)
	}
	return errors.Join(err, answer.Body.Close())
}

// Restart ends the engine, calls meanwhile while there is none, and starts it again.
func (e *Engine) Restart(meanwhile func()) error { return e.bounce("TERM", meanwhile) }

// Crash is Restart for an engine that has no time to end, and neither has its containerd.
func (e *Engine) Crash(meanwhile func()) error {
	file := filepath.Join(e.dir, "exec", "containerd", "containerd.pid")
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	containerd, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return err
	}
	return e.bounce("KILL", func() {
		_ = syscall.Kill(containerd, syscall.SIGKILL) // unless it was quicker
		_ = os.Remove(file)                           // where nobody reaps the dead, they pass for running
		meanwhile()
	})
}

func (e *Engine) bounce(signal string, meanwhile func()) error {
	if _, err := e.leash.WriteString(signal); err != nil {
		return err
	}
	if err := errors.Join(e.leash.Close(), e.cmd.Wait()); err != nil {
		return fmt.Errorf("stop the engine: %w", err)
	}
	meanwhile()
	return e.start()
}

// Close ends the engine with all its containers, and removes all it kept.
func (e *Engine) Close() {
	if e.leash == nil {
		_ = os.RemoveAll(e.dir)
		return
	}
	_ = e.leash.Close()
	_ = e.cmd.Wait()
}

// PauseContainer has an engine's client pause a container, behind the product's back. A busy engine may be "unable to
// freeze" it, under cgroup v1, and is asked again.
func PauseContainer(t testing.TB, pause func(ctx context.Context, name string) error, name string) {
	t.Helper()
	Eventually(t, "the engine pauses "+name, func() bool {
		err := pause(t.Context(), name)
		if err != nil && !strings.Contains(err.Error(), "unable to freeze") {
			t.Fatal(err)
		}
		return err == nil
	})
}
