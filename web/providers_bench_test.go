package web_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"

	"sandyard/dev/abbench"
	"sandyard/dev/testenv"
	envd "sandyard/guest/envdpb/process"
	"sandyard/guest/envdpb/process/processconnect"
	"sandyard/jobs"
	"sandyard/jobs/webhook"
	"sandyard/jobs/worker"
	"sandyard/netguard"
	"sandyard/providers/catalog"
	"sandyard/providers/e2b"
	"sandyard/web"
)

const (
	vendorBoxes = 4
	vendorPace  = 100 * time.Millisecond // between two commands for it
	vendorFelt  = 16                     // commands that wait for it while it is not well
	vendorKey   = "e2b_0123456789abcdef0123456789abcdef01234567"
)

// BenchmarkProviders measures commands of one provider, from request to answer, while ten commands a second are
// submitted to another one whose vendor hangs or is away. The baseline is the same while that vendor answers. No
// provider takes time of its own, so that nothing hides what one does to the other.
func BenchmarkProviders(b *testing.B) {
	v := newVendor(b)
	y := newTwoProviders(b, v)
	box := y.sandbox(map[string]any{"provider": "fake"})
	command := func() error {
		wish := map[string]any{"command": "fake:stdout x", "parallel": true}
		a, err := y.try("POST", "/v1/sandboxes/"+box+"/exec?wait=60s", wish)
		if err == nil && a.text("job.stdout") != "x" {
			err = fmt.Errorf("status %d: %s", a.status, a.raw)
		}
		return err
	}
	during := func(is condition) abbench.Way {
		return func() (time.Duration, error) {
			y.settle(is)
			return abbench.Timed(command)()
		}
	}
	for _, is := range []condition{hangs, isAway} {
		b.Run("exec while the other vendor "+string(is), func(b *testing.B) {
			b.Run("vs while it answers", func(b *testing.B) {
				abbench.Latency(b, abbench.Turns{Rounds: 3, Ours: 100, Base: 100}, during(is), during(answers))
			})
		})
	}
}

// twoProviders is an API on workers of the provider fake and of e2b, with commands for the latter all the time.
type twoProviders struct {
	*rig
	b      *testing.B
	vendor *vendor
	conn   *pgx.Conn
}

func newTwoProviders(b *testing.B, v *vendor) *twoProviders {
	b.Helper()
	y := &twoProviders{b: b, vendor: v}
	y.rig = newRig(b, func(c *web.Config) {
		c.Jobs = jobs.NewClient(c.Store, c.Queue, jobs.Catalog{
			Providers: []string{"fake", "e2b"}, Able: catalog.Capabilities(), Images: []string{"*"},
			Templates: map[string]string{"python": "fake-python"}, Template: "python",
		}, discarded())
	})
	y.work()
	p := must(e2b.New(e2b.Config{APIKey: vendorKey, URL: v.url, DataURL: v.url + "/inside", Fleet: "bench"}))(b)
	w := worker.New(worker.Config{
		Store: y.store, Redis: y.redis, Provider: p, Slots: 8, Lease: 10 * time.Second, Grace: 5 * time.Second,
		Webhooks: webhook.New(y.store, y.queue, netguard.Rules{}, discarded()),
		Metrics:  worker.NewMetrics(prometheus.NewRegistry()), Log: discarded(),
	})
	check(b, w.Start(context.Background()))
	b.Cleanup(func() {
		w.Stop(context.Background())
		check(b, p.Close())
	})
	y.schedule()
	y.conn = must(pgx.Connect(context.Background(), y.dsn))(b)
	b.Cleanup(func() { check(b, y.conn.Close(context.Background())) })
	var boxes []string
	for range vendorBoxes {
		a := y.call("POST", "/v1/sandboxes?wait=60s", map[string]any{"provider": "e2b"}).want(b, 200)
		boxes = append(boxes, a.text("sandbox.id"))
	}
	y.press(boxes)
	return y
}

// press submits commands to the vendor's sandboxes until the benchmark ends.
func (y *twoProviders) press(boxes []string) {
	ctx, stop := context.WithCancel(context.Background())
	var pressing sync.WaitGroup
	pressing.Go(func() {
		pace := time.NewTicker(vendorPace)
		defer pace.Stop()
		for i := 0; ; i++ {
			select {
			case <-pace.C:
			case <-ctx.Done():
				return
			}
			wish := map[string]any{"command": "true", "parallel": true}
			a, err := y.try("POST", "/v1/sandboxes/"+boxes[i%len(boxes)]+"/exec", wish)
			if err != nil || a.status != http.StatusAccepted {
				y.b.Errorf("a command for the vendor: %d %s %v", a.status, a.raw, err)
				return
			}
		}
	})
	y.b.Cleanup(func() {
		stop()
		pressing.Wait()
		y.vendor.turn(answers)
	})
}

// settle changes the vendor's condition, and waits until it is felt: commands wait in vain, or none does any more.
func (y *twoProviders) settle(is condition) {
	if !y.vendor.turn(is) {
		return
	}
	testenv.Eventually(y.b, "the vendor's condition is felt", func() bool {
		var waiting int
		check(y.b, y.conn.QueryRow(context.Background(), `SELECT count(*) FROM jobs j JOIN sandboxes s ON s.id = j.sandbox_id
			WHERE s.provider = 'e2b' AND j.state IN ('queued', 'running')`).Scan(&waiting))
		if is == answers {
			return waiting < vendorFelt
		}
		return waiting >= vendorFelt
	})
}

// condition is how the vendor is.
type condition string

const (
	answers condition = "answers"
	hangs   condition = "hangs"
	isAway  condition = "is away"
)

// vendor stands in E2B's place: sandboxes in memory in which every command has ended as soon as it is asked for.
type vendor struct {
	processconnect.UnimplementedProcessHandler

	b      *testing.B
	url    string
	addr   string
	server *http.Server
	served sync.WaitGroup

	mu    sync.Mutex
	boxes []map[string]any
	is    condition
	let   chan struct{} // closed when what hangs is let go
}

func newVendor(b *testing.B) *vendor {
	b.Helper()
	l := must(net.Listen("tcp", "127.0.0.1:0"))(b)
	v := &vendor{b: b, addr: l.Addr().String(), url: "http://" + l.Addr().String(), is: answers, let: make(chan struct{})}
	v.serve(l)
	b.Cleanup(func() {
		v.turn(answers)
		check(b, v.server.Close())
		v.served.Wait()
	})
	return v
}

func (v *vendor) serve(l net.Listener) {
	routes := http.NewServeMux()
	routes.HandleFunc("POST /sandboxes", v.create)
	routes.HandleFunc("GET /v2/sandboxes", v.list)
	routes.HandleFunc("GET /sandboxes/{id}", v.get)
	path, inside := processconnect.NewProcessHandler(v)
	routes.Handle("/inside"+path, http.StripPrefix("/inside", inside))
	v.server = &http.Server{Handler: v.patient(routes), ReadHeaderTimeout: time.Minute}
	v.served.Go(func() { _ = v.server.Serve(l) }) // until it is closed
}

// turn changes the condition, and says whether it was another.
func (v *vendor) turn(to condition) bool {
	v.mu.Lock()
	was := v.is
	if was != to {
		v.is = to
		close(v.let)
		v.let = make(chan struct{})
	}
	v.mu.Unlock()
	switch {
	case was == to:
		return false
	case to == isAway:
		check(v.b, v.server.Close())
		v.served.Wait()
	case was == isAway:
		testenv.Eventually(v.b, "the vendor listens again", func() bool {
			l, err := net.Listen("tcp", v.addr)
			if err == nil {
				v.serve(l)
			}
			return err == nil
		})
	}
	return true
}

// patient lets requests wait while the vendor hangs, and then breaks them off.
func (v *vendor) patient(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		v.mu.Lock()
		is, let := v.is, v.let
		v.mu.Unlock()
		if is == hangs {
			select {
			case <-let:
			case <-r.Context().Done():
			}
			panic(http.ErrAbortHandler)
		}
		next.ServeHTTP(w, r)
	})
}

func (v *vendor) create(w http.ResponseWriter, r *http.Request) {
	var ask struct{ Metadata map[string]string }
	check(v.b, json.NewDecoder(r.Body).Decode(&ask))
	v.mu.Lock()
	box := map[string]any{
		"sandboxID": fmt.Sprintf("vendor%d", len(v.boxes)), "metadata": ask.Metadata, "state": "running",
		"envdVersion": "0.6.13",
		"startedAt":   time.Now(), "endAt": time.Now().Add(time.Hour), "envdAccessToken": "envdtoken0123456789abcdef",
	}
	v.boxes = append(v.boxes, box)
	v.mu.Unlock()
	tell(w, http.StatusCreated, box)
}

func (v *vendor) list(w http.ResponseWriter, r *http.Request) {
	wanted := must(url.ParseQuery(r.URL.Query().Get("metadata")))(v.b)
	v.mu.Lock()
	all := []map[string]any{}
	for _, box := range v.boxes {
		labels, _ := box["metadata"].(map[string]string)
		has := true
		for name := range wanted {
			has = has && labels[name] == wanted.Get(name)
		}
		if has {
			all = append(all, box)
		}
	}
	v.mu.Unlock()
	tell(w, http.StatusOK, all)
}

func (v *vendor) get(w http.ResponseWriter, r *http.Request) {
	v.mu.Lock()
	var found map[string]any
	for _, box := range v.boxes {
		if box["sandboxID"] == r.PathValue("id") {
			found = box
		}
	}
	v.mu.Unlock()
	tell(w, http.StatusOK, found)
}

func tell(w http.ResponseWriter, status int, doc any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(doc) // who has left does not mind
}

// Start answers the scripts of package spool, and the one that makes a work directory.
func (v *vendor) Start(
	_ context.Context, r *connect.Request[envd.StartRequest], s *connect.ServerStream[envd.StartResponse],
) error {
	said := "ready\n"
	if args := r.Msg.GetProcess().GetArgs(); len(args) > 0 && strings.HasPrefix(args[len(args)-1], "sy_name=") {
		said = "spool1 ended 0 exit 1 0 0 0 0\n"
	}
	for _, e := range []*envd.ProcessEvent{
		{Event: &envd.ProcessEvent_Start{Start: &envd.ProcessEvent_StartEvent{Pid: 1}}},
		{Event: &envd.ProcessEvent_Data{Data: &envd.ProcessEvent_DataEvent{
			Output: &envd.ProcessEvent_DataEvent_Stdout{Stdout: []byte(said)},
		}}},
		{Event: &envd.ProcessEvent_End{End: &envd.ProcessEvent_EndEvent{Exited: true, Status: "exit status 0"}}},
	} {
		if err := s.Send(&envd.StartResponse{Event: e}); err != nil {
			return err
		}
	}
	return nil
}
