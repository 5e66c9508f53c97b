package runloop_test

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"sandyard/providers"
	"sandyard/providers/providertest/fixture"
	"sandyard/providers/remote/remotetest"
)

// opened is a sandbox whose work directory is a directory of this machine's /tmp.
func opened(t *testing.T, v *vendor) (box providers.Sandbox, dir string) {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "sandyard-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	p := v.open()
	if _, err := p.Create(t.Context(), providers.Spec{ID: "box1"}); err != nil {
		t.Fatal(err)
	}
	if box, err = p.Open(t.Context(), "box1"); err != nil {
		t.Fatal(err)
	}
	return box, dir
}

type scripts interface {
	Script(ctx context.Context, user, text string, limit int64) ([]byte, error)
}

// TestScripts: what a script prints comes back byte by byte, whether Runloop's answer holds it or not.
func TestScripts(t *testing.T) {
	t.Parallel()
	v := newVendor(t)
	box, _ := opened(t, v)
	run := box.(scripts)
	for text, want := range map[string]string{
		`printf 'a\0b\377\n'; echo aside >&2; exit 3`: "a\x00b\xff\n",
		`printf "%s" 'it'\''s "$HOME" '`:              `it's "$HOME" `,
		`seq 200; exit 1`:                             "1\n2\n3\n",
		`cat; pwd`:                                    "/\n",
		`true`:                                        "",
	} {
		for _, limit := range []int64{1000, 1 << 20} { // printed at once, or by way of a file
			if out, err := run.Script(t.Context(), "", text, limit); err != nil || !strings.HasPrefix(string(out), want) ||
				want == "" && len(out) > 0 {
				t.Errorf("%s: %q, %v", text, out, err)
			}
		}
	}
	long := strings.Repeat("0123456789abcde\n", 1<<15) // 512 KiB
	out, err := run.Script(t.Context(), "", "yes 0123456789abcde | head -n 32768; exit 3", 1<<20)
	if err != nil || string(out) != long {
		t.Errorf("%d bytes came, %v", len(out), err)
	}
	for _, limit := range []int64{1000, 300_000} {
		_, err = run.Script(t.Context(), "", "yes | head -c 500000", limit)
		fixture.WantClass(t, err, providers.TooLarge)
	}
	for _, user := range []string{"no-such-user-here", "a b", "$(id)"} {
		_, err = run.Script(t.Context(), user, "true", 100)
		fixture.WantClass(t, err, providers.NoUser)
	}
	if entries, err := os.ReadDir("/tmp"); err != nil || slices.ContainsFunc(entries, func(e os.DirEntry) bool {
		return slices.Contains(v.sent, "/tmp/"+e.Name())
	}) {
		t.Errorf("something is left of an upload, %v", err)
	}
}

// TestCommandsThatRunOn: Runloop answers that a command runs, more than once, and then what it has printed.
func TestCommandsThatRunOn(t *testing.T) {
	t.Parallel()
	v := newVendor(t)
	box, dir := opened(t, v)
	v.change(func() { v.running = map[string]any{} })
	v.calls()
	cmd := providers.Command{Name: "late" + dir[len("/tmp/sandyard-test-"):], Shell: "echo done; exit 3", Dir: dir}
	res, err := box.Run(t.Context(), cmd)
	if err != nil || string(res.Stdout) != "done\n" || res.ExitCode != 3 {
		t.Errorf("got %q, %d, %v", res.Stdout, res.ExitCode, err)
	}
	waits := 0
	for _, what := range v.calls() {
		if strings.HasSuffix(what, "/wait_for_status") {
			waits++
		}
	}
	if waits < 2 {
		t.Errorf("it was waited for %d times", waits)
	}
	if err := box.Forget(t.Context(), cmd.Name); err != nil {
		t.Error(err)
	}
}

// TestFilesOfAnySize go in parts, come by a download or in pieces, and leave nothing.
func TestFilesOfAnySize(t *testing.T) {
	t.Parallel()
	v := newVendor(t)
	box, dir := opened(t, v)
	data := bytes.Repeat([]byte("0123456789abcde\n"), 6<<16) // 6 MiB
	for name, size := range map[string]int{"empty": 0, "typed": 1000, "part": 100_000, "parts": len(data)} {
		at, want := dir+"/deep/"+name, data[:size]
		if info, err := box.SaveFile(t.Context(), at, bytes.NewReader(want), -1, 0o640); err != nil ||
			info.Size != int64(size) || info.Mode != "0640" || info.Path != at {
			t.Errorf("%s: saved %+v, %v", name, info, err)
		}
		if name != "parts" {
			v.fault("POST {id}/download_file", remotetest.Refusing(403, `{"message":"no"}`))
			if got, err := box.ReadFile(t.Context(), at, int64(len(data))); err != nil || !bytes.Equal(got, want) {
				t.Errorf("%s, in pieces: %d bytes, %v", name, len(got), err)
			}
			v.fault("POST {id}/download_file", nil)
		}
		if got, err := box.ReadFile(t.Context(), at, int64(len(data))); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: %d bytes, %v", name, len(got), err)
		}
	}
	v.fault("POST {id}/download_file", func(w http.ResponseWriter, _ *http.Request) { // it tells no size, and breaks off
		_, _ = w.Write(data[:1<<20])
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	})
	_, err := box.ReadFile(t.Context(), dir+"/deep/parts", int64(len(data)))
	fixture.WantClass(t, err, providers.Unavailable)
	if entries, err := os.ReadDir(dir + "/deep"); err != nil || len(entries) != 4 {
		t.Errorf("the directory holds %v, %v", entries, err)
	}
	for _, part := range v.sent {
		if _, err := os.Stat(part); err == nil {
			t.Errorf("%s is left of an upload", part)
		}
	}
}

type dialer interface {
	DialPort(ctx context.Context, port uint16) (net.Conn, error)
}

// TestAPortIsReachedThroughTheTunnel: the token goes there; the caller's header of the vendor and the account's key do
// not.
func TestAPortIsReachedThroughTheTunnel(t *testing.T) {
	t.Parallel()
	v := newVendor(t)
	box, _ := opened(t, v)
	type request struct {
		host string
		h    http.Header
	}
	got := make(chan request, 1)
	program, err := net.Listen("tcp", "127.0.0.1:0") // the program listens, and the tunnel is the stand-in itself
	if err != nil {
		t.Fatal(err)
	}
	defer program.Close()
	port := program.Addr().(*net.TCPAddr).Port
	v.http.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.Host, "tunnel.localhost") {
			got <- request{r.Host, r.Header}
			return
		}
		v.serve(w, r)
	})
	for range 2 {
		conn, err := box.(dialer).DialPort(t.Context(), uint16(port))
		if err != nil {
			t.Fatal(err)
		}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://program/", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("X-Runloop-Tunnel-Authorization", "Bearer forged")
		if err := req.Write(conn); err != nil {
			t.Fatal(err)
		}
		r := <-got
		if r.h.Get("X-Runloop-Tunnel-Authorization") != "Bearer tunneltoken0123456789" || r.h.Get("Authorization") != "" ||
			r.h.Get("X-Forwarded-Host") != "program" || !strings.HasPrefix(r.host, strconv.Itoa(port)+"-key1.tunnel.localhost:") {
			t.Errorf("the tunnel is asked by %s %v", r.host, r.h)
		}
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	}
	if n := len(slices.DeleteFunc(v.calls(), func(what string) bool { return what != "POST {id}/enable_tunnel" })); n != 1 {
		t.Errorf("the tunnel was opened %d times", n)
	}
	if err := program.Close(); err != nil {
		t.Error(err)
	}
	_, err = box.(dialer).DialPort(t.Context(), uint16(port))
	fixture.WantClass(t, err, providers.Invalid)
	v.fault("GET {id}", remotetest.Refusing(200, `{"id":"dbx_1","status":"running","tunnel":{"tunnel_key":"a.evil.example/"}}`))
	v.fault("POST {id}/enable_tunnel", remotetest.Refusing(200, `{"tunnel_key":"a.evil.example/","auth_mode":"open"}`))
	again, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	_, err = box.(dialer).DialPort(t.Context(), uint16(again.Addr().(*net.TCPAddr).Port))
	fixture.WantClass(t, err, providers.Internal)
}

// TestAPauseCutsCalls: a command under way is told of the pause.
func TestAPauseCutsCalls(t *testing.T) {
	t.Parallel()
	v := newVendor(t)
	p := v.open()
	if _, err := p.Create(t.Context(), providers.Spec{ID: "box1"}); err != nil {
		t.Fatal(err)
	}
	box, err := p.Open(t.Context(), "box1")
	if err != nil {
		t.Fatal(err)
	}
	held, let := make(chan struct{}), make(chan struct{})
	defer close(let)
	v.fault("POST {id}/execute", func(http.ResponseWriter, *http.Request) {
		close(held)
		<-let
	})
	ended := make(chan error, 1)
	go func() {
		_, err := box.Run(t.Context(), providers.Command{Name: "job1", Shell: "true"})
		ended <- err
	}()
	<-held
	if err := p.Pause(t.Context(), "box1"); err != nil {
		t.Fatal(err)
	}
	fixture.WantClass(t, <-ended, providers.Paused)
}
