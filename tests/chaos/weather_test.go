//go:build chaos

package chaos

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strconv"
	"sync"
	"time"
)

// condition is how a vendor behaves for a while, in the words of the reports.
type condition string

const (
	fair    condition = "is fair"
	drops   condition = "drops answers"
	hangs   condition = "hangs"
	limits  condition = "limits rates"
	garbled condition = "answers pages"
	away    condition = "is away"
)

// phase is one line of a weather's plan.
type phase struct {
	is    condition
	lasts time.Duration
}

// newForecast deals the conditions like cards, each behind a fair phase, as often as the length has room for all.
func newForecast(seed uint64, length time.Duration) []phase {
	rng := rand.New(rand.NewPCG(seed, 0))
	rounds := max(1, int(length/(3*time.Minute)))
	slot := length / time.Duration(5*rounds)
	var plan []phase
	for range rounds {
		deck := []condition{drops, hangs, limits, garbled, away}
		rng.Shuffle(len(deck), func(i, j int) { deck[i], deck[j] = deck[j], deck[i] })
		for _, c := range deck {
			plan = append(plan, phase{fair, slot / 3}, phase{c, slot - slot/3})
		}
	}
	return plan
}

// fate is what becomes of one request.
type fate string

const (
	passes     fate = "passed"
	dropped    fate = "answer dropped"
	cutShort   fate = "answer cut"
	hung       fate = "never arrived"
	hungAfter  fate = "answer never came"
	tooMany    fate = "429"
	broken     fate = "500"
	badGateway fate = "502"
	lostPage   fate = "404"
)

// odds are of a hundred requests.
type odds struct {
	is fate
	of int
}

func chances() map[condition][]odds {
	return map[condition][]odds{
		drops:   {{dropped, 40}, {cutShort, 15}},
		hangs:   {{hung, 45}, {hungAfter, 45}},
		limits:  {{tooMany, 70}},
		garbled: {{broken, 25}, {badGateway, 25}, {lostPage, 15}},
	}
}

const (
	cutAfter   = 40              // bytes of an answer that is cut
	doneWithin = 5 * time.Second // of a request whose answer nobody gets
	firstPort  = 20_000          // of those below what the kernel gives to connections by itself
	manyPorts  = 10_000
)

// weather is what stands between a provider and its vendor.
type weather struct {
	doors []*door

	mu     sync.Mutex
	rng    *rand.Rand
	now    condition
	clears chan struct{} // closed when what hangs is let go
	hits   map[condition]map[fate]int
	spells []spell
}

// spell is a phase that was.
type spell struct {
	is           condition
	began, ended time.Time
}

func newWeather(seed uint64) *weather {
	return &weather{rng: rand.New(rand.NewPCG(seed, 1)), now: fair, clears: make(chan struct{}), hits: map[condition]map[fate]int{}}
}

// open makes a door to an address, whose own address stays the same.
func (w *weather) open(to string) (*door, error) {
	d := &door{w: w, to: to, transport: &http.Transport{DisableKeepAlives: true}}
	d.proxy = &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(&url.URL{Scheme: "http", Host: to})
			r.Out.Host = r.In.Host // the vendor names itself by it
		},
		Transport: d.transport, FlushInterval: -1, ErrorLog: log.New(io.Discard, "", 0),
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}
	for range 100 {
		d.addr = "127.0.0.1:" + strconv.Itoa(firstPort+rand.IntN(manyPorts))
		if err := d.listen(); err == nil {
			w.doors = append(w.doors, d)
			return d, nil
		}
	}
	return nil, errors.New("no port is free")
}

func (w *weather) close() {
	w.turn(fair)
	for _, d := range w.doors {
		d.shut()
		d.transport.CloseIdleConnections()
	}
}

// play goes through a plan, and is fair afterwards.
func (w *weather) play(ctx context.Context, plan []phase, tell func(string, ...any)) error {
	for _, p := range plan {
		began := time.Now()
		w.turn(p.is)
		tell("the vendor %s for %v", p.is, p.lasts.Round(100*time.Millisecond))
		err := w.during(ctx, p)
		w.turn(fair)
		w.mu.Lock()
		w.spells = append(w.spells, spell{p.is, began, time.Now()})
		w.mu.Unlock()
		if err != nil {
			return err
		}
	}
	return nil
}

// during is one phase. A vendor that is away takes no connection, and those that it had are broken.
func (w *weather) during(ctx context.Context, p phase) error {
	if p.is != away {
		return pass(ctx, p.lasts)
	}
	for _, d := range w.doors {
		d.shut()
	}
	var errs []error
	for _, d := range w.doors {
		if conn, err := net.Dial("tcp", d.addr); err == nil {
			errs = append(errs, fmt.Errorf("%s is away and takes connections", d.addr), conn.Close())
		}
	}
	errs = append(errs, pass(ctx, p.lasts))
	for _, d := range w.doors {
		errs = append(errs, eventually(ctx, time.Minute, "the vendor is back", func() (bool, string) {
			err := d.listen()
			return err == nil, fmt.Sprint(err)
		}))
	}
	return errors.Join(errs...)
}

// turn changes the condition, and lets go of what hangs.
func (w *weather) turn(to condition) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now = to
	close(w.clears)
	w.clears = make(chan struct{})
}

// decide says what becomes of a request, and when it is let go if it hangs.
func (w *weather) decide() (fate, <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	is, at := passes, w.rng.IntN(100)
	for _, o := range chances()[w.now] {
		if at -= o.of; at < 0 {
			is = o.is
			break
		}
	}
	if w.hits[w.now] == nil {
		w.hits[w.now] = map[fate]int{}
	}
	w.hits[w.now][is]++
	return is, w.clears
}

// door is a server in the place of one of the vendor's.
type door struct {
	w         *weather
	addr      string
	to        string
	proxy     *httputil.ReverseProxy
	transport *http.Transport
	server    *http.Server
	served    sync.WaitGroup
}

func (d *door) listen() error {
	l, err := net.Listen("tcp", d.addr)
	if err != nil {
		return err
	}
	d.server = &http.Server{Handler: d, ReadHeaderTimeout: time.Minute}
	d.served.Go(func() { _ = d.server.Serve(l) }) // until it is shut
	return nil
}

// shut breaks all connections.
func (d *door) shut() {
	_ = d.server.Close()
	d.served.Wait()
}

func (d *door) url() string { return "http://" + d.addr }

// ServeHTTP implements http.Handler.
func (d *door) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	is, clears := d.w.decide()
	switch is {
	case passes:
		d.proxy.ServeHTTP(w, r)
		return
	case tooMany:
		w.Header().Set("Retry-After", "1")
		http.Error(w, `{"code":429,"message":"Rate limit exceeded"}`, http.StatusTooManyRequests)
		return
	case broken, badGateway, lostPage:
		status, _ := strconv.Atoi(string(is))
		w.Header().Set("Content-Type", "text/html")
		w.WriteHeader(status)
		_, _ = fmt.Fprintf(w, "<html><body><h1>%d</h1></body></html>", status)
		return
	case cutShort:
		d.proxy.ServeHTTP(&cutting{ResponseWriter: w, left: cutAfter}, r)
	case dropped, hungAfter:
		d.forward(r)
	}
	if is == hung || is == hungAfter {
		select {
		case <-clears:
		case <-r.Context().Done():
		}
	}
	panic(http.ErrAbortHandler)
}

// forward has the vendor do what a request asks for, also when its caller leaves meanwhile, and keeps the answer back.
func (d *door) forward(r *http.Request) {
	defer func() {
		if broke := recover(); broke != nil && broke != http.ErrAbortHandler { //nolint:errorlint // it is what is thrown
			panic(broke)
		}
	}()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the caller broke it off: it did not arrive
	}
	ctx, stop := context.WithTimeout(context.WithoutCancel(r.Context()), doneWithin)
	defer stop()
	again := r.Clone(ctx)
	again.Body, again.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	d.proxy.ServeHTTP(httptest.NewRecorder(), again)
}

// cutting breaks an answer off behind its first bytes.
type cutting struct {
	http.ResponseWriter

	left int
}

func (c *cutting) Write(p []byte) (int, error) {
	if len(p) > c.left {
		_, _ = c.ResponseWriter.Write(p[:c.left])
		_ = http.NewResponseController(c.ResponseWriter).Flush()
		panic(http.ErrAbortHandler)
	}
	c.left -= len(p)
	return c.ResponseWriter.Write(p)
}

func (c *cutting) Unwrap() http.ResponseWriter { return c.ResponseWriter }
