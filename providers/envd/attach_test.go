package envd_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"sandyard/dev/testenv"
	"sandyard/providers"
	"sandyard/providers/envd"
)

// mortal is an attached stream whose worker dies after it has written some more bytes: the rest of what it writes is
// lost, its reads end, and the guest is left with half a frame.
type mortal struct {
	*client

	mu   sync.Mutex
	left int // -1 = immortal
}

func (m *mortal) Write(p []byte) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.left < 0 || len(p) <= m.left {
		if m.left >= 0 {
			m.left -= len(p)
		}
		return m.client.Write(p)
	}
	_, _ = m.client.Write(p[:m.left])
	m.left = 0
	_ = m.Close()
	return 0, io.ErrClosedPipe
}

func (m *mortal) dieAfter(n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.left = n
}

func TestAnotherWorkerTakesOver(t *testing.T) {
	t.Parallel()
	for _, cut := range []int{0, 1, 19, 21, 40, 100, 20_000, 65_000} {
		t.Run(fmt.Sprint("torn after ", cut), func(t *testing.T) {
			t.Parallel()
			e := newEngine(t)
			stream := &mortal{client: e.attach(), left: -1}
			first := attachTo(t, stream, envd.Options{})
			defer first.Close()
			cmd := providers.Command{Name: "job", Shell: "cat; echo begin; until [ -e go ]; do sleep 0.02; done; echo end; exit 6", Stdin: []byte("input\n")}
			lost := make(chan error, 1)
			go func() {
				_, err := first.Run(patient(t), cmd)
				lost <- err
			}()
			testenv.Eventually(t, "it runs", func() bool {
				list, err := first.ExecInfos(patient(t))
				return err == nil && len(list) == 1 && list[0].StdoutBytes == 12
			})
			stream.dieAfter(cut)
			_, err := first.WriteFile(patient(t), "torn", bytes.Repeat([]byte("x"), 200_000), 0)
			if class(t, err) != providers.Unavailable {
				t.Fatal(err)
			}
			if err := <-lost; class(t, err) != providers.Unavailable {
				t.Fatal(err)
			}
			<-first.Done()

			second := e.sandbox(envd.Options{})
			must(t, os.WriteFile(filepath.Join(e.workDir, "go"), nil, 0o644))
			if r := run(t, second, cmd); string(r.Stdout) != "input\nbegin\nend\n" || r.ExitCode != 6 {
				t.Errorf("got %+v", r)
			}
			if _, err := second.Stat(patient(t), "torn"); class(t, err) != providers.FileNotFound {
				t.Errorf("half a file is visible: %v", err)
			}
		})
	}
}

func TestTheNewerWorkerSupersedes(t *testing.T) {
	t.Parallel()
	e := newEngine(t)
	old := e.sandbox(envd.Options{})
	run(t, old, providers.Command{Name: "a", Argv: []string{"true"}})
	fresh := e.sandbox(envd.Options{})
	select {
	case <-old.Done():
	case <-time.After(time.Minute):
		t.Fatal("the older worker does not notice")
	}
	_, err := old.Run(patient(t), providers.Command{Name: "b", Argv: []string{"true"}})
	if class(t, err) != providers.Unavailable {
		t.Errorf("got %v", err)
	}
	run(t, fresh, providers.Command{Name: "b", Argv: []string{"true"}})
}

func TestManyWorkersAttachAtOnce(t *testing.T) {
	t.Parallel()
	e := newEngine(t)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			s, err := envd.Attach(patient(t), e.attach(), envd.Options{})
			if err != nil {
				return // superseded before it was welcomed, or torn by the others
			}
			_, _ = s.Run(patient(t), providers.Command{Name: "once", Shell: "echo x >> log"})
			_ = s.Close()
		})
	}
	all.Wait()
	run(t, e.sandbox(envd.Options{}), providers.Command{Name: "once", Shell: "echo x >> log"})
	if log, err := os.ReadFile(filepath.Join(e.workDir, "log")); err != nil || string(log) != "x\n" {
		t.Errorf("the command left %q, %v", log, err)
	}
}

func TestTimeoutSurvivesTheTakeover(t *testing.T) {
	testenv.Long(t, "its verdict hangs on the clock")
	t.Parallel()
	e := newEngine(t)
	first := e.sandbox(envd.Options{})
	cmd := providers.Command{Name: "slow", Shell: "sleep 1000", Timeout: 600 * time.Millisecond}
	start := time.Now()
	go func() { _, _ = first.Run(patient(t), cmd) }()
	testenv.Eventually(t, "it runs", func() bool {
		list, err := first.ExecInfos(patient(t))
		return err == nil && len(list) == 1
	})
	second := e.sandbox(envd.Options{})
	<-first.Done()
	if r := run(t, second, cmd); !r.TimedOut || r.Duration > 2*time.Second || time.Since(start) > 4*time.Second {
		t.Errorf("after %v: %+v", time.Since(start), r)
	}
	if r := run(t, e.sandbox(envd.Options{}), cmd); !r.TimedOut {
		t.Errorf("a third worker is not told of the timeout: %+v", r)
	}
}

func TestAttachGivesUpWithItsContext(t *testing.T) {
	t.Parallel()
	read, write := io.Pipe()
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	_, err := envd.Attach(ctx, silent{read, write}, envd.Options{})
	if class(t, err) != providers.Unavailable || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
}

// silent swallows what is written and never answers.
type silent struct {
	io.ReadCloser
	feed io.Closer
}

func (silent) Write(p []byte) (int, error) { return len(p), nil }

func TestDialPort(t *testing.T) {
	t.Parallel()
	e := newEngine(t)
	s := e.sandbox(envd.Options{})
	ctx := patient(t)
	must(t, os.WriteFile(filepath.Join(e.workDir, "page"), []byte("served from inside"), 0o644))
	go func() {
		_, _ = s.Run(ctx, providers.Command{Name: "server", Shell: "exec python3 -m http.server --bind 127.0.0.1 38471"})
	}()
	hc := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return s.DialPort(ctx, 38471)
	}}}
	defer hc.CloseIdleConnections()
	var body string
	testenv.Eventually(t, "the server answers", func() bool {
		answer, err := hc.Get("http://sandbox:38471/page")
		if err != nil {
			return false
		}
		defer answer.Body.Close()
		b, err := io.ReadAll(answer.Body)
		body = string(b)
		return err == nil
	})
	if body != "served from inside" {
		t.Errorf("got %q", body)
	}
	_, err := s.DialPort(ctx, 1)
	if class(t, err) != providers.Invalid || !strings.Contains(err.Error(), "port 1") {
		t.Errorf("got %v", err)
	}
	must(t, s.Kill(ctx, "server"))
}

// TestProxyIsNoPort: who comes to ports from outside finds what programs serve, but not the sandbox's way out, wherever it
// listens and however often it is taken away and offered again.
func TestProxyIsNoPort(t *testing.T) {
	t.Parallel()
	if l, err := net.Listen("tcp", "127.0.0.1:49982"); err == nil { // guests here share the machine's loopback
		defer l.Close()
	}
	s := newEngine(t).sandbox(envd.Options{})
	ctx := patient(t)
	for i := range 3 {
		must(t, s.SetNetwork(ctx, true))
		out := run(t, s, providers.Command{Name: fmt.Sprintf("ask%d", i), Shell: "printf %s ${HTTP_PROXY##*:}"})
		port, err := strconv.ParseUint(string(out.Stdout), 10, 16)
		must(t, err)
		direct, err := net.Dial("tcp", "127.0.0.1:"+string(out.Stdout))
		must(t, err)
		must(t, direct.Close())
		if _, err := s.DialPort(ctx, uint16(port)); class(t, err) != providers.Invalid {
			t.Errorf("the proxy's port %d: %v", port, err)
		}
		must(t, s.SetNetwork(ctx, false))
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer l.Close()
	conn, err := s.DialPort(ctx, l.Addr().(*net.TCPAddr).AddrPort().Port())
	must(t, err)
	must(t, conn.Close())
}

func TestPing(t *testing.T) {
	t.Parallel()
	s := newEngine(t).sandbox(envd.Options{})
	must(t, s.Ping(patient(t)))
	must(t, s.Close())
	if err := s.Ping(patient(t)); class(t, err) != providers.Unavailable {
		t.Errorf("got %v", err)
	}
}
