package edge_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"sandyard/dev/testdb"
	"sandyard/dev/testenv"
	"sandyard/gateway"
	"sandyard/jobs"
	"sandyard/jobs/kind"
	"sandyard/jobs/queue"
	"sandyard/jobs/webhook"
	"sandyard/jobs/worker"
	"sandyard/models"
	"sandyard/netguard"
	"sandyard/providers"
	"sandyard/providers/fake"
	"sandyard/tokens"
	"sandyard/web/edge"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, testenv.Lasting()...) }

// rig is an edge, and a worker with its gateway, on a provider whose sandboxes are servers of this process.
type rig struct {
	t       *testing.T
	store   *models.Store
	redis   *redis.Options
	queue   *queue.Queue
	jobs    *jobs.Client
	signer  *tokens.Signer
	url     string // of the edge
	gateway string // its URL
	worker  *worker.Worker
	edge    *edge.Edge
	stop    func() // the edge
	log     *slog.Logger
	journal *journal
	asked   questions
	inside  inside
	client  *http.Client
	dsn     string
}

// inside is what is in every sandbox: a guest and what listens at port 8000.
type inside struct {
	guest, app *httptest.Server
}

// reachable gives the fake provider's sandboxes an inside.
type reachable struct {
	*fake.Provider
	inside
}

type reachableBox struct {
	providers.Sandbox
	inside
}

func (p reachable) Open(ctx context.Context, id string) (providers.Sandbox, error) {
	box, err := p.Provider.Open(ctx, id)
	if err != nil {
		return nil, err
	}
	return reachableBox{box, p.inside}, nil
}

func (b reachableBox) DialGuest(ctx context.Context, _ string) (net.Conn, error) {
	return dial(ctx, b.guest)
}

func (b reachableBox) DialPort(ctx context.Context, port uint16) (net.Conn, error) {
	if port != 8000 {
		return nil, providers.Invalid.Errorf("nothing listens on port %d", port)
	}
	return dial(ctx, b.app)
}

func dial(ctx context.Context, s *httptest.Server) (net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, "tcp", s.Listener.Addr().String())
}

// mirror answers with what it was sent: the request line, the host and the headers, one a line, and then the body as it
// comes. It upgrades connections, and then sends back in capitals what it reads.
func mirror(name string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Header.Get("Upgrade") != "":
			upgrade(w, r)
			return
		case r.URL.Path == "/early":
			w.WriteHeader(http.StatusRequestEntityTooLarge)
			fmt.Fprintln(w, "too large")
			return
		case r.URL.Path == "/posing":
			w.Header().Set("Trailer", "Set-Cookie, Sandyard-Reason, Checksum")
			for _, name := range []string{"X-Accel-Redirect", "X-Sendfile", "Sandyard-Reason", "X-Own"} {
				w.Header().Set(name, "/etc/passwd")
			}
			fmt.Fprintln(w, "posing")
			for _, name := range []string{"Set-Cookie", "Sandyard-Reason", "Checksum", http.TrailerPrefix + "X-Accel-Redirect"} {
				w.Header().Set(name, "a=b")
			}
			return
		case r.URL.Path == "/hang-up":
			hangUp(w)
			return
		case r.URL.Path == "/count":
			n, err := io.Copy(io.Discard, r.Body)
			fmt.Fprintln(w, n, err)
			return
		}
		_ = http.NewResponseController(w).EnableFullDuplex()
		if strings.Contains(r.URL.RequestURI(), "cors") {
			w.Header().Set("Access-Control-Allow-Origin", "https://own.example")
			w.Header().Set("Access-Control-Allow-Credentials", "true")
		}
		fmt.Fprintf(w, "%s %s %s\nHost: %s\n", name, r.Method, r.URL.RequestURI(), r.Host)
		_ = r.Header.Write(w) // the test reads what arrives
		fmt.Fprintln(w)
		http.NewResponseController(w).Flush()
		buf := make([]byte, 32<<10)
		for {
			n, err := r.Body.Read(buf)
			if _, lost := w.Write(buf[:n]); lost != nil || err != nil {
				return
			}
			http.NewResponseController(w).Flush()
		}
	})
}

// hangUp answers at once and takes nothing more.
func hangUp(w http.ResponseWriter) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(err)
	}
	defer conn.Close()
	fmt.Fprint(conn, "HTTP/1.1 413 Too Large\r\nContent-Length: 10\r\n\r\ntoo large\n")
}

func upgrade(w http.ResponseWriter, r *http.Request) {
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n", r.Header.Get("Upgrade"))
	lines := bufio.NewScanner(buffered)
	for lines.Scan() {
		fmt.Fprintln(conn, strings.ToUpper(lines.Text()))
	}
	fmt.Fprintln(conn, "bye")
}

// journal is a log in which no panic may be told: net/http survives those of its handlers and of its own. It keeps the
// warnings.
type journal struct {
	t        *testing.T
	mu       sync.Mutex
	warnings []string
}

func (j *journal) Write(line []byte) (int, error) {
	if strings.Contains(string(line), "panic") {
		j.t.Errorf("%s", line)
	}
	if strings.Contains(string(line), "level=WARN") {
		j.mu.Lock()
		defer j.mu.Unlock()
		j.warnings = append(j.warnings, string(line))
	}
	return len(line), nil
}

// warned returns the warnings with a message.
func (j *journal) warned(message string) (found []string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, line := range j.warnings {
		if strings.Contains(line, `msg="`+message+`"`) {
			found = append(found, line)
		}
	}
	return found
}

// questions are those about routes: how many there were, how many at once, and while held none is answered.
type questions struct {
	mu            sync.Mutex
	all, now, top int
	held          chan struct{} // nil = none is held
	touches       atomic.Int64  // not about routes: how often activity was written down, or tried to
}

func (q *questions) tap(_ context.Context, statement string, do func() error) error {
	if strings.Contains(statement, "touched AS") {
		defer q.touches.Add(1)
	}
	if !strings.Contains(statement, "AS silent_ms") {
		return do()
	}
	q.mu.Lock()
	q.all, q.now = q.all+1, q.now+1
	q.top = max(q.top, q.now)
	held := q.held
	q.mu.Unlock()
	if held != nil {
		<-held
	}
	defer func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.now--
	}()
	return do()
}

func (q *questions) hold() (release func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.held = make(chan struct{})
	return func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		close(q.held)
		q.held = nil
	}
}

func (q *questions) counts() (all, now, top int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.all, q.now, q.top
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := newIdleRig(t)
	r.work(context.Background(), r.log)
	return r
}

// newIdleRig is a rig without a worker.
func newIdleRig(t *testing.T) *rig {
	t.Helper()
	ctx, told := context.Background(), &journal{t: t}
	log := slog.New(slog.NewTextHandler(told, &slog.HandlerOptions{Level: slog.LevelDebug}))
	r := &rig{t: t, journal: told, signer: tokens.New("secret"), client: &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
	r.client.Transport = &http.Transport{}
	r.inside = inside{httptest.NewServer(mirror("guest")), httptest.NewServer(mirror("app"))}
	t.Cleanup(r.inside.guest.Close)
	t.Cleanup(r.inside.app.Close)
	t.Cleanup(r.client.CloseIdleConnections)
	var err error
	r.dsn = testdb.New(t)
	r.store, err = models.Open(ctx, r.dsn, 8, models.Limits{Window: 64}, r.asked.tap)
	check(t, err)
	t.Cleanup(func() { r.store.Close() })
	_, err = r.store.Bootstrap(ctx)
	check(t, err)
	r.log = log
	r.queueUp(log)
	r.serve(ctx, log)
	return r
}

// queueUp makes what submits jobs.
func (r *rig) queueUp(log *slog.Logger) {
	network, addr, db := testenv.Redis(r.t)
	r.redis = &redis.Options{Network: network, Addr: addr, DB: db}
	rdb := queue.NewRedis(r.redis)
	r.t.Cleanup(func() { rdb.Close() })
	r.queue = queue.NewQueue(rdb, log)
	r.queue.Wait(testenv.Patience())
	r.jobs = jobs.NewClient(r.store, r.queue, jobs.Catalog{
		Providers: []string{"fake"}, Images: []string{"*"}, Templates: map[string]string{"python": "fake-python"}, Template: "python",
		Edge: tokens.Address{Scheme: "http", Domain: "sandboxes.example:8090"},
	}, log)
}

func (r *rig) work(ctx context.Context, log *slog.Logger) {
	l := listen(r.t)
	r.gateway = "http://" + l.Addr().String()
	provider := reachable{fake.New(fake.Options{PerNode: true}), r.inside}
	r.worker = worker.New(worker.Config{ //nolint:contextcheck // its life is from Start to Stop
		Store: r.store, Redis: r.redis, Images: []string{"*"}, Provider: provider, Engine: "here", Slots: 8, Gateway: r.gateway, Lease: 10 * time.Second,
		Grace: 5 * time.Second, Webhooks: webhook.New(r.store, r.queue, netguard.Rules{}, log), Metrics: worker.NewMetrics(prometheus.NewRegistry()), Log: log,
	})
	r.t.Cleanup(gateway.New(gateway.Config{
		Signer: r.signer, Log: log, Now: r.store.Now, Open: r.worker.Enter,
	}).Serve(ctx, l))
	check(r.t, r.worker.Start(ctx))
	r.t.Cleanup(func() { r.worker.Stop(ctx) })
}

func (r *rig) serve(ctx context.Context, log *slog.Logger) {
	l := listen(r.t)
	r.url = "http://" + l.Addr().String()
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	r.edge = edge.New(edge.Config{Store: r.store, Signer: r.signer, Resume: r.jobs.Resume, Log: log})
	go func() { ended <- r.edge.Serve(ctx, l) }()
	r.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			r.t.Errorf("edge: %v", err)
		}
	})
	r.t.Cleanup(r.stop)
}

// sandbox makes a running one.
func (r *rig) sandbox(f jobs.Foreign) string {
	r.t.Helper()
	return r.create(jobs.CreateSandbox{Foreign: f})
}

func (r *rig) create(wish jobs.CreateSandbox) string {
	r.t.Helper()
	done, err := r.jobs.Create(r.t.Context(), wish, asTest())
	check(r.t, err)
	r.await(done.Sandbox.ID, models.SandboxRunning)
	return done.Sandbox.ID
}

func asTest() jobs.Options { return jobs.Options{TenantID: "default", Actor: "test"} }

// finish submits a job and waits for its success.
func (r *rig) finish(id string, args kind.Args) models.Job {
	r.t.Helper()
	done, err := r.jobs.Submit(r.t.Context(), id, args, asTest())
	check(r.t, err)
	var j models.Job
	r.eventuallyTrue("the job has ended", func() bool {
		j, err = r.store.Job(r.t.Context(), "default", done.Jobs[0].ID)
		check(r.t, err)
		return j.State.Terminal()
	})
	if j.State != models.Succeeded {
		r.t.Fatalf("%s ended %s: %+v", j.Kind, j.State, j.Error)
	}
	return j
}

// eventuallyTrue waits until ok holds.
func (r *rig) eventuallyTrue(what string, ok func() bool) {
	r.t.Helper()
	testenv.Eventually(r.t, what, ok)
}

// change submits a job and waits until the sandbox is what it makes of it.
func (r *rig) change(id string, args kind.Args, to models.SandboxState) {
	r.t.Helper()
	_, err := r.jobs.Submit(r.t.Context(), id, args, asTest())
	check(r.t, err)
	r.await(id, to)
}

func (r *rig) await(id string, state models.SandboxState) {
	r.t.Helper()
	r.eventuallyTrue("sandbox "+id+" is "+string(state), func() bool {
		box, err := r.store.Sandbox(r.t.Context(), "default", id)
		check(r.t, err)
		return box.State == state
	})
}

// to makes a request to a port of a sandbox with headers (name, value, …).
func (r *rig) to(id string, port int, method, path string, headers ...string) *http.Request {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), method, r.url+path, http.NoBody)
	check(r.t, err)
	req.Header.Set("E2b-Sandbox-Id", id)
	req.Header.Set("E2b-Sandbox-Port", strconv.Itoa(port))
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	return req
}

// answer is what came back.
type answer struct {
	status int
	header http.Header
	body   string
}

func (r *rig) send(req *http.Request) answer {
	r.t.Helper()
	a, err := r.try(req)
	check(r.t, err)
	return a
}

// try is send for a request that the edge may cut: what let it in may end meanwhile.
func (r *rig) try(req *http.Request) (answer, error) {
	res, err := r.client.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	return answer{res.StatusCode, res.Header, string(body)}, err
}

func (a answer) want(t *testing.T, status int, part string) {
	t.Helper()
	if a.status != status || !strings.Contains(a.body, part) {
		t.Errorf("answered %d %q, want %d with %q", a.status, a.body, status, part)
	}
}

// connect opens a connection to the edge.
func (r *rig) connect(t *testing.T) net.Conn {
	t.Helper()
	return connectTo(t, r.url)
}

func connectTo(t *testing.T, at string) net.Conn {
	t.Helper()
	u, err := url.Parse(at)
	check(t, err)
	conn, err := net.Dial("tcp", u.Host)
	check(t, err)
	t.Cleanup(func() { conn.Close() })
	check(t, conn.SetDeadline(time.Now().Add(time.Minute)))
	return conn
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	return l
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
