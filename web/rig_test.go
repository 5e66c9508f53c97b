package web_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"sandyard/dev/testdb"
	"sandyard/dev/testenv"
	"sandyard/jobs"
	"sandyard/jobs/queue"
	"sandyard/jobs/webhook"
	"sandyard/jobs/worker"
	"sandyard/models"
	"sandyard/netguard"
	"sandyard/providers"
	"sandyard/providers/fake"
	"sandyard/tokens"
	"sandyard/web"
	"sandyard/web/edge"
)

func TestMain(m *testing.M) {
	if where := os.Getenv(childVariable); where != "" {
		fmt.Fprintln(os.Stderr, serveAsChild(where))
		os.Exit(1)
	}
	goleak.VerifyTestMain(m, testenv.Lasting()...)
}

// rig is an API process on real servers, without a worker until work is called.
type rig struct {
	t        testing.TB
	store    *models.Store
	dsn      string
	redis    *redis.Options
	rdb      *redis.Client
	queue    *queue.Queue
	provider *fake.Provider
	server   *web.Server
	url      string
	key      string
	log      *logBook
	e2b      bool // its answers at E2B's paths are checked against E2B's document
	client   *http.Client
	shutdown func()
}

func newRig(t testing.TB, change ...func(*web.Config)) *rig {
	t.Helper()
	return newRigOn(t, testdb.New(t), change...)
}

func newRigOn(t testing.TB, dsn string, change ...func(*web.Config)) *rig {
	t.Helper()
	ctx := context.Background()
	r := &rig{t: t, dsn: dsn, log: &logBook{}, client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}}
	network, addr, db := testenv.Redis(t)
	r.redis = &redis.Options{Network: network, Addr: addr, DB: db}
	r.rdb = queue.NewRedis(r.redis)
	t.Cleanup(func() { r.rdb.Close() })
	log := slog.New(slog.NewJSONHandler(r.log, nil))
	r.store = must(models.Open(ctx, r.dsn, 8, models.Limits{Window: 64}))(t)
	t.Cleanup(func() { r.store.Close() })
	r.key = must(r.store.Bootstrap(ctx))(t)
	r.queue = queue.NewQueue(r.rdb, log)
	r.queue.Wait(testenv.Patience())
	r.provider = fake.New(fake.Options{PerNode: true})
	catalog := jobs.Catalog{Providers: []string{"fake"}, Keyed: []string{"daytona", "e2b"}, Images: []string{"*"}, Templates: map[string]string{"python": "fake-python", "node": "fake-node"}, Template: "python"}
	waiters := queue.NewWaiters(ctx, r.store, r.rdb)
	t.Cleanup(func() { waiters.Close() })
	var config web.Config
	way := edge.New(edge.Config{
		Store: r.store, Signer: tokens.New("secret"), Log: slog.New(slog.DiscardHandler),
		Resume: func(ctx context.Context, tenant, box string) error { return config.Jobs.Resume(ctx, tenant, box) },
	})
	config = web.Config{
		Store: r.store, Jobs: jobs.NewClient(r.store, r.queue, catalog, log), Waiters: waiters, Queue: r.queue, Redis: r.redis,
		Metrics: prometheus.NewRegistry(), Capabilities: []providers.Capabilities{r.provider.Capabilities()}, Version: "test", Log: log,
		Signer: tokens.New("secret"), Inside: way,
	}
	for _, f := range change {
		f(&config)
	}
	r.e2b = !config.Address.IsZero()
	r.pass(way)
	r.serve(config)
	return r
}

// pass lets the way into sandboxes work until the end of the test.
func (r *rig) pass(way *edge.Edge) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- way.Serve(ctx, nil) }()
	r.t.Cleanup(func() {
		cancel()
		check(r.t, <-ended)
	})
}

func (r *rig) serve(config web.Config) {
	r.t.Helper()
	r.server = must(web.New(config))(r.t)
	l := must(net.Listen("tcp", "127.0.0.1:0"))(r.t)
	r.url = "http://" + l.Addr().String()
	served := make(chan error, 1)
	go func() { served <- r.server.Listen(l) }()
	r.shutdown = sync.OnceFunc(func() {
		r.client.CloseIdleConnections()
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := r.server.Shutdown(ctx); err != nil {
			r.t.Errorf("shut down: %v", err)
		}
		if err := <-served; err != nil {
			r.t.Errorf("listen: %v", err)
		}
	})
	r.t.Cleanup(r.shutdown)
}

// work starts a worker on the fake provider.
func (r *rig) work() {
	r.t.Helper()
	log := slog.New(slog.DiscardHandler)
	w := worker.New(worker.Config{
		Store: r.store, Redis: r.redis, Images: []string{"*"}, Provider: r.provider, Engine: "here", Slots: 8, Lease: 10 * time.Second, Grace: 5 * time.Second,
		Webhooks: webhook.New(r.store, r.queue, netguard.Rules{}, log), Metrics: worker.NewMetrics(prometheus.NewRegistry()), Log: log,
	})
	check(r.t, w.Start(context.Background()))
	r.t.Cleanup(func() { w.Stop(context.Background()) })
}

// answer is what came back, with its JSON.
type answer struct {
	status int
	header http.Header
	raw    string
	body   map[string]any
}

// call makes a request with the rig's key, unless headers (name, value, …) say otherwise. A body that is no string or
// bytes is sent as JSON.
func (r *rig) call(method, path string, body any, headers ...string) answer {
	r.t.Helper()
	a, err := r.try(method, path, body, headers...)
	check(r.t, err)
	return a
}

func (r *rig) try(method, path string, body any, headers ...string) (answer, error) {
	req, err := http.NewRequest(method, r.url+path, reader(body))
	if err != nil {
		return answer{}, err
	}
	req.Header.Set("Authorization", "Bearer "+r.key)
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Del(headers[i])
		if headers[i+1] != "" {
			req.Header.Set(headers[i], headers[i+1])
		}
	}
	res, err := r.client.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	a := answer{status: res.StatusCode, header: res.Header, raw: string(raw)}
	_ = json.Unmarshal(raw, &a.body) // what is no JSON object has no fields
	if err == nil && r.e2b && e2bPath(req.URL.Path) && method != http.MethodOptions {
		err = conforms(req, a)
	}
	if err == nil && strings.HasPrefix(req.URL.Path, "/v1/") {
		err = conformsToOwn(r, req, a)
	}
	return a, err
}

func reader(body any) io.Reader {
	switch b := body.(type) {
	case nil:
		return nil
	case string:
		return strings.NewReader(b)
	case []byte:
		return bytes.NewReader(b)
	}
	b, err := json.Marshal(body)
	if err != nil {
		panic(err)
	}
	return bytes.NewReader(b)
}

// get returns the value at a path such as job.result.exit_code.
func (a answer) get(path string) any {
	var v any = a.body
	for _, name := range strings.Split(path, ".") {
		m, _ := v.(map[string]any)
		v = m[name]
	}
	return v
}

func (a answer) text(path string) string {
	s, _ := a.get(path).(string)
	return s
}

func (a answer) want(t testing.TB, status int) answer {
	t.Helper()
	if a.status != status {
		t.Fatalf("status %d, want %d: %s", a.status, status, a.raw)
	}
	return a
}

// problem checks that a is a complete problem document.
func (a answer) problem(t testing.TB, status int, code string) answer {
	t.Helper()
	a.want(t, status)
	if got := a.header.Get("Content-Type"); got != "application/problem+json" {
		t.Errorf("content type %q", got)
	}
	if a.get("code") != code {
		t.Errorf("code %v, want %s: %s", a.get("code"), code, a.raw)
	}
	for _, member := range []string{"type", "title", "detail", "request_id"} {
		if a.text(member) == "" {
			t.Errorf("%s is missing: %s", member, a.raw)
		}
	}
	if a.get("status") != float64(status) || a.text("request_id") != a.header.Get("X-Request-Id") {
		t.Errorf("the document does not match its answer %v: %s", a.header, a.raw)
	}
	return a
}

// sandbox creates one and returns its id.
func (r *rig) sandbox(body any) string {
	r.t.Helper()
	return r.call("POST", "/v1/sandboxes", body).want(r.t, 202).text("sandbox.id")
}

// rows counts what is written down.
func (r *rig) rows() string {
	r.t.Helper()
	ctx := context.Background()
	boxes := must(r.store.Sandboxes(ctx, "default", models.SandboxFilter{Limit: 1000}))(r.t)
	list := must(r.store.Jobs(ctx, "default", models.JobFilter{Limit: 1000}))(r.t)
	return fmt.Sprintf("%d sandboxes, %d jobs", len(boxes), len(list))
}

// logBook keeps what is logged.
type logBook struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logBook) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *logBook) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		check(t, err)
		return v
	}
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
