package egress_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"sandyard/dev/testenv"
	"sandyard/egress"
	"sandyard/guest/proxy"
	"sandyard/guest/tunnel"
	"sandyard/netguard"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, testenv.Lasting()...) }

// yard is a sandbox's proxy with the worker's server behind it, without a sandbox between them.
type yard struct {
	server *egress.Server
	addr   string // of the proxy
	client *http.Client

	mu     sync.Mutex
	policy egress.Policy
	names  map[string][]netip.Addr
}

const patience = time.Minute

func newYard(t *testing.T, p egress.Policy, change ...func(*egress.Config)) *yard {
	t.Helper()
	y := &yard{policy: p, names: map[string][]netip.Addr{}}
	c := egress.Config{
		Guard: netguard.Rules{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}, Connections: 64, Idle: time.Minute,
		Policy: func(context.Context, string) (egress.Policy, error) {
			y.mu.Lock()
			defer y.mu.Unlock()
			return y.policy, nil
		},
		Lookup: y.lookup, Log: slog.New(slog.DiscardHandler),
	}
	for _, f := range change {
		f(&c)
	}
	y.server = egress.New(c)
	y.start(t)
	proxyURL := &url.URL{Scheme: "http", Host: y.addr}
	transport := &http.Transport{Proxy: http.ProxyURL(proxyURL)}
	y.client = &http.Client{Transport: transport, Timeout: patience}
	t.Cleanup(transport.CloseIdleConnections)
	return y
}

func (y *yard) lookup(_ context.Context, name string) ([]netip.Addr, error) {
	y.mu.Lock()
	defer y.mu.Unlock()
	found := y.names[name]
	if len(found) > 1 { // every lookup gives another answer
		y.names[name] = found[1:]
		found = found[:1]
	}
	return found, nil
}

// start joins proxy and server as a link would.
func (y *yard) start(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	y.addr = l.Addr().String()
	streams := make(chan net.Conn)
	life, end := context.WithCancel(context.Background())
	p := proxy.New(func(ctx context.Context, target string) (*tunnel.Conn, error) {
		ours, theirs := net.Pipe()
		select {
		case streams <- theirs:
			return tunnel.Ask(ours, target)
		case <-ctx.Done():
		case <-life.Done():
		}
		return nil, errors.Join(errors.New("over"), ours.Close(), theirs.Close())
	}, slog.New(slog.DiscardHandler))
	var work sync.WaitGroup
	work.Go(func() { _ = p.Serve(l) })
	work.Go(func() {
		y.server.Serve("sb1", func() (net.Conn, error) { //nolint:contextcheck // its life is the link's
			select {
			case s := <-streams:
				return s, nil
			case <-life.Done():
				return nil, net.ErrClosed
			}
		})
	})
	t.Cleanup(func() {
		end()
		_ = l.Close()
		work.Wait()
	})
}

// site is a web server on loopback that says which Host it was asked for.
func site(t *testing.T, handle http.HandlerFunc) (port string) {
	t.Helper()
	s := httptest.NewServer(handle)
	t.Cleanup(s.Close)
	_, port, _ = net.SplitHostPort(s.Listener.Addr().String())
	return port
}

func hello(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, "hello "+r.Host) }

func (y *yard) get(t *testing.T, url string) (int, string) {
	t.Helper()
	answer, err := y.client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(text)
}

// connect opens a tunnel through the proxy and returns what it answers.
func (y *yard) connect(t *testing.T, target string) (*net.TCPConn, *bufio.Reader, string) {
	t.Helper()
	conn, err := net.Dial("tcp", y.addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(patience))
	_, _ = io.WriteString(conn, "CONNECT "+target+" HTTP/1.1\r\nHost: "+target+"\r\n\r\n")
	in := bufio.NewReader(conn)
	status, _ := in.ReadString('\n')
	for line := status; line != "\r\n" && line != ""; {
		line, _ = in.ReadString('\n')
	}
	return conn.(*net.TCPConn), in, strings.TrimSpace(status)
}

func TestAllowedNamesAreReachedAndOthersAreNotEvenLookedUp(t *testing.T) {
	t.Parallel()
	y := newYard(t, egress.Policy{Allow: []string{"good.test"}})
	y.names["good.test"] = []netip.Addr{netip.MustParseAddr("127.0.0.1")}
	y.names["bad.test"] = []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("127.0.0.2")}
	port := site(t, hello)
	if status, text := y.get(t, "http://good.test:"+port+"/"); status != 200 || text != "hello good.test:"+port {
		t.Errorf("allowed: %d %s", status, text)
	}
	status, text := y.get(t, "http://bad.test:"+port+"/")
	if status != 403 || !strings.Contains(text, "bad.test:"+port+" is not in the sandbox's egress.allow") {
		t.Errorf("not allowed: %d %s", status, text)
	}
	if len(y.names["bad.test"]) != 2 {
		t.Error("a name that is not allowed was looked up")
	}
	if _, _, status := y.connect(t, "127.0.0.1:"+port); !strings.Contains(status, "403") {
		t.Errorf("its address: %s", status)
	}
}

// TestASecondAnswerOfANameServerChangesNothing has a name that leads to an allowed address when it is looked at and to
// a forbidden one when it would be looked up again.
func TestASecondAnswerOfANameServerChangesNothing(t *testing.T) {
	t.Parallel()
	y := newYard(t, egress.Policy{Allow: []string{"rebind.test"}}, func(c *egress.Config) { c.Guard.Allow = []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")} })
	good, evil := netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("127.0.0.2")
	y.names["rebind.test"] = []netip.Addr{good, evil}
	port := site(t, func(w http.ResponseWriter, r *http.Request) {
		at, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
		_, _ = io.WriteString(w, at.String())
	})
	if status, text := y.get(t, "http://rebind.test:"+port+"/"); status != 200 || text != "127.0.0.1:"+port {
		t.Errorf("first: %d %s", status, text)
	}
	y.client.CloseIdleConnections()
	if _, _, status := y.connect(t, "rebind.test:"+port); !strings.Contains(status, "403") {
		t.Errorf("then: %s", status)
	}
}

// TestTheInstallationStaysClosed: what the operator has denied, and the installation's own services, are not reached by a
// sandbox whose policy names them, also where the operator has allowed all around them. The refusal does not say where a
// name leads.
func TestTheInstallationStaysClosed(t *testing.T) {
	t.Parallel()
	own := &netguard.Services{}
	y := newYard(t, egress.Policy{Allow: []string{"127.0.0.0/8", "inside.test"}}, func(c *egress.Config) {
		c.Guard.Own, c.Guard.Deny = own, []netip.Prefix{netip.MustParsePrefix("127.0.9.0/24")}
	})
	y.names["inside.test"] = []netip.Addr{netip.MustParseAddr("127.0.0.1")}
	var hits atomic.Int64
	port := site(t, func(http.ResponseWriter, *http.Request) { hits.Add(1) })
	if status, _ := y.get(t, "http://127.0.0.1:"+port+"/"); status != 200 || hits.Load() != 1 {
		t.Fatalf("an allowed service: %d", status)
	}
	port = site(t, func(http.ResponseWriter, *http.Request) { hits.Add(1) })
	own.Set([]netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:" + port)})
	for _, host := range []string{"127.0.0.1", "127.0.0.2", "127.0.9.1", "inside.test"} {
		status, text := y.get(t, "http://"+host+":"+port+"/")
		if status != 403 || host == "inside.test" && strings.Contains(text, "127.0.0.1") {
			t.Errorf("%s: %d %s", host, status, text)
		}
	}
	if n := hits.Load(); n != 1 {
		t.Errorf("the service was reached %d times", n-1)
	}
}

func TestHalfClosedConnectionsGoOn(t *testing.T) {
	t.Parallel()
	y := newYard(t, egress.Policy{Allow: []string{"127.0.0.1"}})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	const size = 1 << 20
	go func() { // takes everything in, and answers only then
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		if n, err := io.Copy(io.Discard, conn); err != nil || n != size {
			t.Errorf("took in %d bytes, %v", n, err)
		}
		_, _ = io.WriteString(conn, "got it all")
	}()
	conn, in, status := y.connect(t, l.Addr().String())
	if !strings.Contains(status, "200") {
		t.Fatal(status)
	}
	if _, err := conn.Write(make([]byte, size)); err != nil {
		t.Fatal(err)
	}
	if err := conn.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if text, err := io.ReadAll(in); err != nil || string(text) != "got it all" {
		t.Errorf("got %q, %v", text, err)
	}
}

// TestABrokenDownloadIsNoWholeOne breaks a connection off in the middle: the program must see an error, not an end.
func TestABrokenDownloadIsNoWholeOne(t *testing.T) {
	t.Parallel()
	y := newYard(t, egress.Policy{Allow: []string{"127.0.0.1"}})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	begun, gone := make(chan struct{}), make(chan struct{})
	go func() {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		_, _ = io.WriteString(conn, "half")
		<-begun
		_ = conn.(*net.TCPConn).SetLinger(0)
		_ = conn.Close()
		close(gone)
	}()
	_, in, _ := y.connect(t, l.Addr().String())
	if text := make([]byte, 4); true {
		if _, err := io.ReadFull(in, text); err != nil {
			t.Fatal(err)
		}
	}
	close(begun)
	<-gone
	if _, err := io.ReadAll(in); err == nil {
		t.Error("the break looks like an end")
	}
}

func TestAPolicyThatChangesCutsWhatItForbids(t *testing.T) {
	t.Parallel()
	y := newYard(t, egress.Policy{Allow: []string{"127.0.0.0/8"}})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(conn, conn); _ = conn.Close() }()
		}
	}()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	kept, keptIn, _ := y.connect(t, "127.0.0.1:"+port)
	_, cutIn, _ := y.connect(t, "127.0.0.1:"+port)
	echo := func(c *net.TCPConn, in *bufio.Reader) error {
		if _, err := io.WriteString(c, "x\n"); err != nil {
			return err
		}
		_, err := in.ReadString('\n')
		return err
	}
	if err := echo(kept, keptIn); err != nil {
		t.Fatal(err)
	}
	y.server.Apply("sb1", egress.Policy{Allow: []string{"127.0.0.1"}})
	if err := echo(kept, keptIn); err != nil {
		t.Errorf("an allowed connection was cut: %v", err)
	}
	y.server.Apply("sb1", egress.Policy{})
	if _, err := cutIn.ReadByte(); err == nil {
		t.Error("a forbidden connection goes on")
	}
	if _, _, status := y.connect(t, "127.0.0.1:"+port); !strings.Contains(status, "403") {
		t.Errorf("a new one: %s", status)
	}
}

func TestConnectionsAndSilenceAreBounded(t *testing.T) {
	testenv.Long(t, "it takes many seconds")
	t.Parallel()
	y := newYard(t, egress.Policy{Allow: []string{"127.0.0.1"}}, func(c *egress.Config) { c.Connections, c.Idle = 2, 2*time.Second })
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, first, status := y.connect(t, l.Addr().String())
	_, second, other := y.connect(t, l.Addr().String())
	if !strings.Contains(status, "200") || !strings.Contains(other, "200") {
		t.Fatal(status, other)
	}
	// The others are asked for while both are open, or after they have fallen silent: then they are let in.
	if _, _, status := y.connect(t, l.Addr().String()); !strings.Contains(status, "403") && !silent(first) {
		t.Errorf("the third: %s", status)
	}
	if !silent(first) || !silent(second) {
		t.Error("silent connections go on")
	}
}

// silent waits for the end of a connection on which nobody says anything.
func silent(in *bufio.Reader) bool {
	_, err := in.ReadByte()
	var timeout net.Error
	return err != nil && (!errors.As(err, &timeout) || !timeout.Timeout())
}

func TestUseAndDenialsAreReported(t *testing.T) {
	t.Parallel()
	y := newYard(t, egress.Policy{Allow: []string{"good.test"}})
	y.names["good.test"] = []netip.Addr{netip.MustParseAddr("127.0.0.1")}
	port := site(t, hello)
	y.get(t, "http://good.test:"+port+"/")
	for range 3 {
		y.get(t, "http://bad.test/")
	}
	y.get(t, "http://169.254.169.254/")
	down := errors.New("the database is down")
	if err := y.server.Report(func([]egress.Usage) error { return down }); !errors.Is(err, down) {
		t.Errorf("got %v", err)
	}
	var all []egress.Usage
	if err := y.server.Report(func(u []egress.Usage) error { all = u; return nil }); err != nil || len(all) != 1 {
		t.Fatalf("got %v, %v", all, err)
	}
	u := all[0]
	if u.Sandbox != "sb1" || u.Connections != 1 || u.Denied != 4 || u.Sent == 0 || u.Received == 0 || len(u.Denials) != 2 {
		t.Errorf("reported %+v", u)
	}
	for _, d := range u.Denials {
		if d.Target == "bad.test:80" && (d.Count != 3 || d.Reason != egress.ReasonPolicy) {
			t.Errorf("denial %+v", d)
		}
	}
}

func TestNothingIsDecidedWithoutThePolicy(t *testing.T) {
	t.Parallel()
	y := newYard(t, egress.Public(), func(c *egress.Config) {
		c.Policy = func(context.Context, string) (egress.Policy, error) {
			return egress.Policy{}, errors.New("no database")
		}
	})
	if status, text := y.get(t, "http://127.0.0.1/"); status != 503 || !strings.Contains(text, "try again") {
		t.Errorf("got %d %s", status, text)
	}
}
