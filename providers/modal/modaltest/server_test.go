package modaltest_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	modal "github.com/modal-labs/modal-client/go"
	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"sandyard/providers"
	"sandyard/providers/fake"
	"sandyard/providers/modal/modaltest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// listening is a provider whose sandboxes all reach one address.
type listening struct {
	providers.Provider

	addr string
}

type listeningBox struct {
	providers.Sandbox
	providers.Background

	addr string
}

func (l listening) Open(ctx context.Context, id string) (providers.Sandbox, error) {
	box, err := l.Provider.Open(ctx, id)
	if err != nil {
		return nil, err
	}
	return listeningBox{box, box.(providers.Background), l.addr}, nil
}

func (b listeningBox) DialPort(ctx context.Context, port uint16) (net.Conn, error) {
	if port != 8000 {
		return nil, providers.Invalid.Errorf("no program listens")
	}
	return new(net.Dialer).DialContext(ctx, "tcp", b.addr)
}

func newServer(t *testing.T, o modaltest.Options, addr string) *modaltest.Server {
	t.Helper()
	inner := fake.New(fake.Options{})
	t.Cleanup(func() {
		if left, err := inner.List(context.Background()); len(left) > 0 {
			t.Errorf("sandboxes are left: %v, %v", left, err)
		}
		_ = inner.Close()
	})
	o.Images = map[string]string{"python:3": "fake", "im-known": "fake", "broken": "other"}
	return modaltest.New(t, listening{inner, addr}, o)
}

func newOf[T any](*T) *T { return new(T) }

// client is Modal's own.
func client(t *testing.T, url, id, secret string) *modal.Client {
	t.Helper()
	p := &modal.ClientParams{TokenID: id, TokenSecret: secret, Logger: slog.New(slog.DiscardHandler)}
	p.Config = newOf(p.Config)
	text, err := json.Marshal(map[string]any{"test": map[string]any{"ServerURL": url, "Active": true}})
	if err == nil {
		err = json.Unmarshal(text, p.Config)
	}
	if err != nil {
		t.Fatal(err)
	}
	c, err := modal.NewClientWithOptions(p)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// user is a client with an app.
type user struct {
	*modal.Client

	t   *testing.T
	app *modal.App
}

func newUser(t *testing.T, s *modaltest.Server) user {
	t.Helper()
	c := client(t, s.URL, s.TokenID, s.TokenSecret)
	app, err := c.Apps.FromName(t.Context(), "app", &modal.AppFromNameParams{CreateIfMissing: true})
	if err != nil {
		t.Fatal(err)
	}
	return user{c, t, app}
}

func (u user) create(p modal.SandboxCreateParams) (*modal.Sandbox, error) {
	return u.Sandboxes.Create(u.t.Context(), u.app, u.Images.FromRegistry("python:3", nil), &p)
}

func (u user) made(p modal.SandboxCreateParams) *modal.Sandbox {
	u.t.Helper()
	sb, err := u.create(p)
	if err != nil {
		u.t.Fatal(err)
	}
	u.detaches(sb)
	return sb
}

// detaches ends the connection for commands, which the client does not close.
func (u user) detaches(sb *modal.Sandbox) { u.t.Cleanup(func() { _ = sb.Detach() }) }

// run gives a command its input and returns its output and its end.
func run(t *testing.T, sb *modal.Sandbox, argv, input string, p modal.SandboxExecParams) string {
	t.Helper()
	cmd, err := sb.Exec(t.Context(), []string{argv}, &p)
	if err != nil {
		t.Fatalf("%s: %v", argv, err)
	}
	var stderr []byte
	read := make(chan error)
	go func() {
		var err error
		stderr, err = io.ReadAll(cmd.Stderr)
		read <- err
	}()
	for part := range strings.SplitAfterSeq(input, "\n") {
		if _, err := io.WriteString(cmd.Stdin, part); err != nil {
			t.Errorf("%s: %v", argv, err)
		}
	}
	closed := cmd.Stdin.Close()
	stdout, err := io.ReadAll(cmd.Stdout)
	code, waited := cmd.Wait(t.Context(), nil)
	if err := errors.Join(closed, err, waited, <-read); err != nil {
		t.Errorf("%s: %v", argv, err)
	}
	return fmt.Sprintf("%s|%s|%d", stdout, stderr, code)
}

func TestLifeOfASandbox(t *testing.T) {
	t.Parallel()
	s := newServer(t, modaltest.Options{WorkDir: "/root"}, "")
	u := newUser(t, s)
	tags := map[string]string{"a": "b"}
	sb := u.made(modal.SandboxCreateParams{
		Name: "one", Tags: tags, Env: map[string]string{"A": "b"}, Timeout: time.Hour, CPU: 0.5, MemoryMiB: 300,
		BlockNetwork: true, Command: []string{"sleep", "60"},
	})
	a := s.Asked()[0]
	if a.App != "app" || a.Name != "one" || a.Image != "python:3" || !maps.Equal(a.Tags, tags) || a.Env["A"] != "b" ||
		a.Timeout != time.Hour || a.CPU != 0.5 || a.MemoryMiB != 300 || !a.BlockNetwork || len(a.Command) != 2 {
		t.Errorf("asked for %+v", a)
	}
	_, err := u.create(modal.SandboxCreateParams{Name: "one"})
	if !errors.As(err, new(modal.AlreadyExistsError)) {
		t.Errorf("the same name: %v", err)
	}
	if code, err := sb.Poll(t.Context(), nil); code != nil || err != nil {
		t.Errorf("it runs: %v, %v", code, err)
	}
	if got, err := sb.GetTags(t.Context(), nil); err != nil || !maps.Equal(got, tags) {
		t.Errorf("tags %v, %v", got, err)
	}
	same, err := u.Sandboxes.FromName(t.Context(), "app", "one", nil)
	if err != nil || same.SandboxID != sb.SandboxID {
		t.Fatalf("by its name: %v, %v", same, err)
	}
	u.detaches(same)
	if got := run(t, same, "fake:env A; fake:pwd", "", modal.SandboxExecParams{}); got != "b/root||0" {
		t.Error(got)
	}
	for range 2 {
		if _, err := sb.Terminate(t.Context(), nil); err != nil {
			t.Errorf("terminate: %v", err)
		}
	}
	if code, err := sb.Poll(t.Context(), nil); err != nil || code == nil || *code != 137 {
		t.Errorf("it has ended: %v, %v", code, err)
	}
	if _, err = same.Exec(t.Context(), []string{"fake:pwd"}, nil); status.Code(err) != codes.NotFound {
		t.Errorf("exec in a task that has ended: %v", err)
	}
	late, _ := u.Sandboxes.FromID(t.Context(), sb.SandboxID, nil)
	u.detaches(late)
	if _, err = late.Exec(t.Context(), []string{"fake:pwd"}, nil); !errors.As(err, new(modal.ConflictError)) {
		t.Errorf("exec in a sandbox that has ended: %v", err)
	}
	if _, err = u.Sandboxes.FromName(t.Context(), "app", "one", nil); !errors.As(err, new(modal.NotFoundError)) {
		t.Errorf("by the name of one that has ended: %v", err)
	}
	u.made(modal.SandboxCreateParams{Name: "one"})
}

func TestCommands(t *testing.T) {
	t.Parallel()
	u := newUser(t, newServer(t, modaltest.Options{}, ""))
	sb := u.made(modal.SandboxCreateParams{})
	bytes := "\x00\xff\n" + strings.Repeat("0123456789abcde\n", 1<<6)
	large := strings.Repeat("x", 3<<20)
	for argv, want := range map[string]string{
		"fake:input; fake:stderr e; fake:exit 3": bytes + "|e|3",
		"fake:fill 3145728":                      large + "||0",
		"fake:signal SIGTERM":                    "||143",
	} {
		if got := run(t, sb, argv, bytes[:len(bytes)*strings.Count(argv, "input")], modal.SandboxExecParams{}); got != want {
			t.Errorf("%s: %.100q", argv, got)
		}
	}
	got := run(t, sb, "fake:input", large, modal.SandboxExecParams{Stderr: modal.Ignore})
	if got != large+"||0" {
		t.Errorf("%d bytes came back of %d", len(got), len(large))
	}
	if got := run(t, sb, "fake:env A", "", modal.SandboxExecParams{Env: map[string]string{"A": "c"}}); got != "c||0" {
		t.Error(got)
	}
	cmd, err := sb.Exec(t.Context(), []string{"fake:sleep 1h"}, &modal.SandboxExecParams{Timeout: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(cmd.Stdout); !errors.As(err, new(modal.ExecTimeoutError)) {
		t.Errorf("stdout of a command after its timeout: %v", err)
	}
	if cmd, err = sb.Exec(t.Context(), []string{"fake:sleep", "1h"}, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := sb.Terminate(t.Context(), nil); err != nil {
		t.Error(err)
	}
	if code, err := cmd.Wait(t.Context(), nil); code != 137 || err != nil {
		t.Errorf("a command that ends with its sandbox: %d, %v", code, err)
	}
}

func TestLists(t *testing.T) {
	t.Parallel()
	u := newUser(t, newServer(t, modaltest.Options{}, ""))
	var even []string
	for n := range 25 {
		sb := u.made(modal.SandboxCreateParams{Tags: map[string]string{"fleet": "f", "rest": fmt.Sprint(n % 2)}})
		if n%2 == 0 {
			even = append([]string{sb.SandboxID}, even...)
		}
		if n == 4 {
			_, _ = sb.Terminate(t.Context(), nil)
		}
	}
	for app, want := range map[string]string{
		u.app.AppID: fmt.Sprint(append(append([]string{}, even[:10]...), even[11:]...)), "ap-other": "[]",
	} {
		list, err := u.Sandboxes.List(t.Context(), &modal.SandboxListParams{
			AppID: app, Tags: map[string]string{"fleet": "f", "rest": "0"},
		})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for sb, err := range list {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, sb.SandboxID)
		}
		if text := fmt.Sprint(got); text != want {
			t.Errorf("%s: %s, want %s", app, text, want)
		}
	}
}

func TestWhatIsRefused(t *testing.T) {
	t.Parallel()
	s := newServer(t, modaltest.Options{MaxSandboxes: 1}, "")
	u := newUser(t, s)
	ctx := t.Context()
	_, err := client(t, s.URL, s.TokenID, "other").Apps.FromName(ctx, "app", nil)
	if status.Code(err) != codes.Unauthenticated {
		t.Errorf("a wrong token: %v", err)
	}
	if _, err := u.Apps.FromName(ctx, "other", nil); !errors.As(err, new(modal.NotFoundError)) {
		t.Errorf("another app: %v", err)
	}
	_, err = u.Sandboxes.Create(ctx, u.app, u.Images.FromRegistry("other", nil), nil)
	if !errors.As(err, new(modal.RemoteError)) {
		t.Errorf("an image that does not build: %v", err)
	}
	if _, err := u.Images.FromID(ctx, "im-other", nil); !errors.As(err, new(modal.NotFoundError)) {
		t.Errorf("another image: %v", err)
	}
	_, err = u.Sandboxes.Create(ctx, u.app, u.Images.FromRegistry("broken", nil), nil)
	if status.Code(err) != codes.InvalidArgument {
		t.Errorf("what the inner provider cannot make: %v", err)
	}
	known, err := u.Images.FromID(ctx, "im-known", nil)
	if err != nil {
		t.Fatal(err)
	}
	sb, err := u.Sandboxes.Create(ctx, u.app, known, &modal.SandboxCreateParams{Timeout: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	if _, err = u.create(modal.SandboxCreateParams{}); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("beyond the limit: %v", err)
	}
	if code, err := sb.Wait(ctx, nil); code != 124 || err != nil {
		t.Errorf("its time is over: %d, %v", code, err)
	}
	none, _ := u.Sandboxes.FromID(ctx, "sb-none", nil)
	_, gone := none.Poll(ctx, nil)
	_, missing := none.Exec(ctx, []string{"fake:pwd"}, nil)
	if status.Code(gone) != codes.NotFound || status.Code(missing) != codes.NotFound {
		t.Errorf("a sandbox that never was: %v, %v", gone, missing)
	}
}

func TestFaults(t *testing.T) {
	t.Parallel()
	s := newServer(t, modaltest.Options{}, "")
	u := newUser(t, s)
	lost := func(code codes.Code) func() error {
		return func() error { return modaltest.Dropped(status.Error(code, "lost")) }
	}
	s.Fault("SandboxCreateV2", lost(codes.Aborted))
	if _, err := u.create(modal.SandboxCreateParams{Name: "one"}); status.Code(err) != codes.Aborted {
		t.Errorf("an answer that is lost: %v", err)
	}
	if _, err := u.Sandboxes.FromName(t.Context(), "app", "one", nil); err != nil {
		t.Errorf("it was made all the same: %v", err)
	}
	s.Fault("SandboxCreateV2", lost(codes.Unavailable)) // the client asks again
	if _, err := u.create(modal.SandboxCreateParams{Name: "two"}); !errors.As(err, new(modal.AlreadyExistsError)) {
		t.Errorf("an answer that is lost on its way to the client: %v", err)
	}
	s.Fault("SandboxCreateV2", func() error { return status.Error(codes.ResourceExhausted, "full") })
	if _, err := u.create(modal.SandboxCreateParams{Name: "three"}); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a create that fails: %v", err)
	}
	sb := u.made(modal.SandboxCreateParams{Name: "three"})
	s.Fault("TaskExecStart", lost(codes.Unavailable)) // which is repeated, and starts nothing twice
	s.Fault("TaskExecStdinWrite", lost(codes.Unavailable))
	s.Fault("TaskExecStdioRead", func() error { return status.Error(codes.Unavailable, "away") })
	if got := run(t, sb, "fake:input; fake:stderr e", "some\ninput", modal.SandboxExecParams{}); got != "some\ninput|e|0" {
		t.Error(got)
	}
	if n := len(s.Asked()); n != 3 {
		t.Errorf("%d sandboxes were asked for", n)
	}
}

func TestConnectTokens(t *testing.T) {
	t.Parallel()
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") == "" {
			fmt.Fprintf(w, "%s %s %q", r.Method, r.URL, r.Header.Get("Authorization"))
			return
		}
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		_, _ = rw.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		_ = rw.Flush()
		_, _ = io.Copy(conn, rw)
	}))
	t.Cleanup(web.Close)
	s := newServer(t, modaltest.Options{}, web.Listener.Addr().String())
	u := newUser(t, s)
	sb := u.made(modal.SandboxCreateParams{})
	near := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, s.ConnectAddr)
		},
	}}
	ask := func(url, token, upgrade string) (code int, body io.ReadCloser) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+token)
		if upgrade != "" {
			req.Header.Set("Connection", "Upgrade")
			req.Header.Set("Upgrade", upgrade)
		}
		res, err := near.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = res.Body.Close() })
		return res.StatusCode, res.Body
	}
	open, err := sb.CreateConnectToken(t.Context(), &modal.SandboxCreateConnectTokenParams{Port: 8000})
	if err != nil {
		t.Fatal(err)
	}
	shut, err := sb.CreateConnectToken(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, port, _ := net.SplitHostPort(s.ConnectAddr); open.URL != "http://"+sb.SandboxID+".connect.localhost:"+port {
		t.Errorf("the URL is %s", open.URL)
	}
	code, body := ask(open.URL+"/a%2Fb?c=d", open.Token, "")
	if text, err := io.ReadAll(body); err != nil || string(text) != `GET /a%2Fb?c=d ""` {
		t.Errorf("answered %d %s, %v", code, text, err)
	}
	if code, _ := ask(open.URL, "other", ""); code != http.StatusUnauthorized {
		t.Errorf("a wrong token: %d", code)
	}
	if code, _ := ask(open.URL, shut.Token, ""); code != http.StatusBadGateway {
		t.Errorf("where nothing listens: %d", code)
	}
	code, body = ask(open.URL, open.Token, "echo")
	conn, ok := body.(io.ReadWriter)
	if !ok || code != http.StatusSwitchingProtocols {
		t.Fatalf("an upgrade: %d", code)
	}
	said, heard := []byte("\x00\xffhello"), make([]byte, 7)
	_, err = conn.Write(said)
	if _, readErr := io.ReadFull(conn, heard); err != nil || readErr != nil || !bytes.Equal(said, heard) {
		t.Errorf("heard %q, %v, %v", heard, err, readErr)
	}
}
