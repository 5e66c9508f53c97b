package envd_test

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"sandyard/guest/envdpb/filesystem"
	"sandyard/guest/envdpb/filesystem/filesystemconnect"
	"sandyard/guest/envdpb/process"
	"sandyard/guest/envdpb/process/processconnect"
	"sandyard/providers"
	"sandyard/providers/envd"

	"connectrpc.com/connect"
)

// withHeaders adds headers to every request.
type withHeaders struct {
	http.RoundTripper
	header http.Header
}

func (w withHeaders) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	for name, values := range w.header {
		r.Header[name] = values
	}
	return w.RoundTripper.RoundTrip(r)
}

// outsider is a client that a gateway has let in.
func outsider(t *testing.T, s *envd.Sandbox, headers ...string) *http.Client {
	t.Helper()
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return s.DialGuest(ctx, "") }}
	t.Cleanup(transport.CloseIdleConnections)
	h := http.Header{}
	for i := 0; i < len(headers); i += 2 {
		h.Set(headers[i], headers[i+1])
	}
	return &http.Client{Transport: withHeaders{transport, h}}
}

// ask makes a plain call and returns its status and body.
func ask(t *testing.T, hc *http.Client, method, target, body string, headers ...string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(patient(t), method, "http://guest"+target, strings.NewReader(body))
	must(t, err)
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	answer, err := hc.Do(req)
	must(t, err)
	text, err := io.ReadAll(answer.Body)
	must(t, err)
	must(t, answer.Body.Close())
	return answer.StatusCode, string(text)
}

func TestOutsidersNeedTheAccessToken(t *testing.T) {
	t.Parallel()
	s := newEngine(t).sandbox(envd.Options{})
	ctx := patient(t)
	_, err := s.WriteFile(ctx, "f", []byte("content"), 0)
	must(t, err)
	none, right, wrong := outsider(t, s), outsider(t, s, "X-Access-Token", "secret"), outsider(t, s, "X-Access-Token", "Secret")
	if code, text := ask(t, none, "GET", "/files?path=f", ""); code != 200 || text != "content" {
		t.Errorf("without a token set: %d %s", code, text)
	}
	must(t, s.Init(ctx, envd.Init{AccessToken: new("secret")}))
	for _, target := range []string{"GET /files?path=f", "POST /files?path=f", "GET /envs", "GET /metrics", "POST /process.Process/List", "POST /filesystem.Filesystem/Stat"} {
		method, path, _ := strings.Cut(target, " ")
		for name, hc := range map[string]*http.Client{"no token": none, "a wrong token": wrong} {
			code, text := ask(t, hc, method, path, "{}", "Content-Type", "application/json")
			if code != 401 || !strings.Contains(text, `"code":401`) {
				t.Errorf("%s with %s: got %d %s", target, name, code, text)
			}
		}
		if code, text := ask(t, right, method, path, "{}", "Content-Type", "application/json"); code == 401 {
			t.Errorf("%s with the token: got %d %s", target, code, text)
		}
	}
	if code, _ := ask(t, none, "GET", "/health", ""); code != 204 {
		t.Errorf("health: got %d", code)
	}
	if _, err := s.ReadFile(ctx, "f", 100); err != nil {
		t.Errorf("the worker needs no token: %v", err)
	}
}

func TestNobodyIsLetInBeforeTheGuestKnowsTheToken(t *testing.T) {
	t.Parallel()
	e := newEngine(t)
	first := e.sandbox(envd.Options{})
	conn, err := first.DialGuest(patient(t), "secret")
	must(t, err)
	must(t, conn.Close())
	for _, name := range []string{"this link", "another worker's"} {
		s := first
		if name != "this link" {
			s = e.sandbox(envd.Options{}) // which has told the guest nothing
		}
		if code, text := ask(t, outsider(t, s), "GET", "/envs", ""); code != 401 {
			t.Errorf("%s, no token: %d %s", name, code, text)
		}
		if code, text := ask(t, outsider(t, s, "X-Access-Token", "secret"), "GET", "/envs", ""); code != 200 {
			t.Errorf("%s, the token: %d %s", name, code, text)
		}
	}
}

func TestOutsidersDoNotReachTheWorkersCalls(t *testing.T) {
	t.Parallel()
	s := newEngine(t).sandbox(envd.Options{})
	run(t, s, providers.Command{Name: "job", Shell: "echo first"})
	hc := outsider(t, s, "Sandyard-Exec", "job", "Sandyard-Shell", "1")
	for target, want := range map[string]int{
		"GET /execs": 404, "GET /execs/job": 404, "DELETE /execs/job": 404, "POST /execs/job/kill": 404,
		"POST /init": 404, "POST /claim": 404,
	} {
		method, path, _ := strings.Cut(target, " ")
		if code, text := ask(t, hc, method, path, `{}`); code != want {
			t.Errorf("%s: got %d %s", target, code, text)
		}
	}
	c := processconnect.NewProcessClient(hc, "http://guest", connect.WithProtoJSON())
	stream, o := startPlain(patient(t), t, c, shellRequest("echo plain"))
	finishPlain(t, stream, o)
	if o.stdout != "plain\n" {
		t.Errorf("a named command was reached: %q", o.stdout)
	}
	list, err := s.ExecInfos(patient(t))
	if err != nil || len(list) != 1 {
		t.Errorf("got %v, %v", list, err)
	}
}

func TestSignedURLs(t *testing.T) {
	t.Parallel()
	s := newEngine(t).sandbox(envd.Options{})
	must(t, s.Init(patient(t), envd.Init{AccessToken: new("secret")}))
	hc := outsider(t, s)
	sign := func(path, operation, user, token string, end int64) string {
		text := path + ":" + operation + ":" + user + ":" + token
		q := url.Values{"path": {path}}
		if user != "" {
			q.Set("username", user)
		}
		if end != 0 {
			text += fmt.Sprint(":", end)
			q.Set("signature_expiration", fmt.Sprint(end))
		}
		sum := sha256.Sum256([]byte(text))
		q.Set("signature", "v1_"+base64.RawStdEncoding.EncodeToString(sum[:]))
		return "/files?" + q.Encode()
	}
	later, past := time.Now().Add(time.Hour).Unix(), time.Now().Add(-time.Second).Unix()
	read := sign("a b.txt", "read", "", "secret", later)
	for _, c := range []struct {
		method, target string
		want           int
	}{
		{"POST", sign("a b.txt", "write", "root", "secret", 0), 200},
		{"GET", read, 200},
		{"POST", read, 401},
		{"GET", sign("a b.txt", "write", "", "secret", later), 401},
		{"GET", sign("a b.txt", "read", "", "other", later), 401},
		{"GET", sign("a b.txt", "read", "", "secret", past), 200}, // the edge knows what time it is
		{"GET", strings.Replace(read, fmt.Sprint(later), fmt.Sprint(later+1), 1), 401},
		{"GET", strings.Replace(read, "a+b", "a+c", 1), 401},
		{"GET", read + "&username=root", 401},
		{"GET", sign("other", "read", "", "secret", later), 404},
		{"GET", sign("a b.txt", "read", "nobody", "secret", 0), 401},
	} {
		if code, text := ask(t, hc, c.method, c.target, "text"); code != c.want {
			t.Errorf("%s %s: got %d %s, want %d", c.method, c.target, code, text, c.want)
		}
	}
}

func TestInit(t *testing.T) {
	t.Parallel()
	e := newEngine(t)
	s := e.sandbox(envd.Options{})
	ctx := patient(t)
	_, err := s.MakeDir(ctx, "inner")
	must(t, err)
	newest := time.Now()
	must(t, s.Init(ctx, envd.Init{
		EnvVars: map[string]string{"A": "1"}, DefaultWorkdir: e.workDir + "/inner", DefaultUser: "root", Timestamp: &newest,
	}))
	stale := newest.Add(-time.Second)
	must(t, s.Init(ctx, envd.Init{EnvVars: map[string]string{"A": "stale"}, Timestamp: &stale}))
	if r := run(t, s, providers.Command{Name: "x", Shell: "echo $A; pwd; echo f > f"}); string(r.Stdout) != "1\n"+e.workDir+"/inner\n" {
		t.Errorf("got %q", r.Stdout)
	}
	if b, err := s.ReadFile(ctx, "f", 10); err != nil || string(b) != "f\n" {
		t.Errorf("got %q, %v", b, err)
	}
	if code, text := ask(t, outsider(t, s), "GET", "/envs", ""); code != 200 || !strings.Contains(text, `"A":"1"`) {
		t.Errorf("got %d %s", code, text)
	}
	for _, in := range []envd.Init{
		{EnvVars: map[string]string{"A": "2", "=": ""}},
		{EnvVars: map[string]string{"A": "2"}, DefaultUser: "nobody"},
		{EnvVars: map[string]string{"A": "2"}, DefaultWorkdir: "relative"},
	} {
		if err := s.Init(ctx, in); err == nil {
			t.Errorf("%+v was taken", in)
		}
	}
	if r := run(t, s, providers.Command{Name: "y", Shell: "echo $A"}); string(r.Stdout) != "1\n" {
		t.Errorf("a refused init changed A to %q", r.Stdout)
	}
}

func TestOutsidersAreAnsweredAsEnvdDoes(t *testing.T) {
	t.Parallel()
	s := newEngine(t).sandbox(envd.Options{})
	c := filesystemconnect.NewFilesystemClient(outsider(t, s), "http://guest", connect.WithProtoJSON())
	ctx := patient(t)
	_, err := c.MakeDir(ctx, connect.NewRequest(&filesystem.MakeDirRequest{Path: "d/e"}))
	must(t, err)
	_, err = c.MakeDir(ctx, connect.NewRequest(&filesystem.MakeDirRequest{Path: "d/e"}))
	if connect.CodeOf(err) != connect.CodeAlreadyExists {
		t.Errorf("got %v", err)
	}
	for range 2 {
		_, err = c.Remove(ctx, connect.NewRequest(&filesystem.RemoveRequest{Path: "d"}))
		must(t, err)
	}
	_, err = c.Stat(ctx, connect.NewRequest(&filesystem.StatRequest{Path: "d"}))
	if connect.CodeOf(err) != connect.CodeNotFound {
		t.Errorf("got %v", err)
	}
	p := processconnect.NewProcessClient(outsider(t, s, "Authorization", "Basic bm9ib2R5Og=="), "http://guest")
	_, err = p.List(ctx, connect.NewRequest(&process.ListRequest{}))
	if connect.CodeOf(err) != connect.CodeUnauthenticated {
		t.Errorf("as nobody: got %v", err)
	}
}
