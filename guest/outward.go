package guest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"sandyard/guest/dialect"
	"sandyard/guest/link"
	"sandyard/guest/proxy"
	"sandyard/guest/tunnel"
)

// workerPatience is how long a connection waits for a worker while there is none, such as between two of them.
const workerPatience = 30 * time.Second

// outward is the way out of the sandbox: a proxy for its programs, whose connections the worker makes.
type outward struct {
	mu     sync.Mutex
	worker *link.Streams // nil while nobody is attached
	came   chan struct{} // closed when somebody is

	turn    sync.Mutex   // held while the proxy is offered or taken away
	proxy   net.Listener // nil while programs are offered nothing
	serving sync.WaitGroup

	where sync.Mutex // held while the proxy takes its port
	port  uint16     // of the proxy
}

func (o *outward) attach(worker *link.Streams) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.worker == nil {
		close(o.came)
	}
	o.worker = worker
}

func (o *outward) detach(worker *link.Streams) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.worker == worker {
		o.worker, o.came = nil, make(chan struct{})
	}
}

// dial asks the worker for a connection.
func (o *outward) dial(ctx context.Context, target string) (*tunnel.Conn, error) {
	ctx, stop := context.WithTimeout(ctx, workerPatience)
	defer stop()
	stream, err := o.stream(ctx)
	if err != nil {
		return nil, err
	}
	defer context.AfterFunc(ctx, func() { _ = stream.SetDeadline(time.Now()) })()
	conn, err := tunnel.Ask(stream, target)
	var refused *tunnel.RefusedError
	if err != nil && !errors.As(err, &refused) {
		err = unavailable(err.Error())
	}
	return conn, err
}

// stream opens a stream to the worker, or to the next one.
func (o *outward) stream(ctx context.Context) (net.Conn, error) {
	for {
		o.mu.Lock()
		worker, came := o.worker, o.came
		o.mu.Unlock()
		if worker != nil {
			stream, err := worker.Open()
			if err != nil {
				return nil, unavailable(err.Error())
			}
			return stream, nil
		}
		select {
		case <-came:
		case <-ctx.Done():
			return nil, unavailable("no worker is connected to make the connection")
		}
	}
}

func unavailable(why string) error {
	return &tunnel.RefusedError{Answer: tunnel.Unavailable, Message: why + "; try again"}
}

// open offers the proxy, and returns where it listens.
func (o *outward) open(ctx context.Context, log *slog.Logger) (string, error) {
	o.turn.Lock()
	defer o.turn.Unlock()
	if o.proxy == nil {
		l, err := o.listen(ctx)
		if err != nil {
			return "", fmt.Errorf("listen for the sandbox's programs: %w", err)
		}
		o.proxy = l
		o.serving.Go(func() { _ = proxy.New(o.dial, log).Serve(l) }) //nolint:contextcheck // it outlives the call
	}
	return o.proxy.Addr().String(), nil
}

// listen prefers the port that programs may know.
func (o *outward) listen(ctx context.Context) (net.Listener, error) {
	o.where.Lock()
	defer o.where.Unlock()
	var any net.ListenConfig
	l, err := any.Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(dialect.ProxyPort)))
	if err != nil {
		l, err = any.Listen(ctx, "tcp", "127.0.0.1:0")
	}
	if err != nil {
		return nil, err
	}
	if at, ok := l.Addr().(*net.TCPAddr); ok {
		o.port = at.AddrPort().Port()
	}
	return l, nil
}

// listensOn says whether a port is the proxy's. It waits for one that is just being opened.
func (o *outward) listensOn(port uint16) bool {
	o.where.Lock()
	defer o.where.Unlock()
	return o.port == port
}

// shut ends the proxy with all its connections.
func (o *outward) shut() {
	o.turn.Lock()
	defer o.turn.Unlock()
	if o.proxy != nil {
		_ = o.proxy.Close()
		o.proxy = nil
		o.serving.Wait()
		o.where.Lock()
		o.port = 0
		o.where.Unlock()
	}
}

// setNetwork is PUT /network.
func (g *Guest) setNetwork(w http.ResponseWriter, r *http.Request) {
	var wish dialect.Network
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxMessage)).Decode(&wish); err != nil {
		writeError(w, dialect.Errorf(dialect.ReasonInvalid, "the body is not JSON: %v", err))
		return
	}
	if !wish.On {
		g.execs.SetFloor(nil)
		g.outward.shut()
	} else if addr, err := g.outward.open(r.Context(), g.log); err != nil {
		writeError(w, err)
		return
	} else {
		g.execs.SetFloor(proxyEnv(addr))
	}
	w.WriteHeader(http.StatusNoContent)
}

// proxyEnv tells programs of the proxy, in all the ways that they ask. ALL_PROXY names it as an HTTP proxy: some
// clients in Python refuse to start where it names a SOCKS proxy and they lack the module for that.
func proxyEnv(addr string) map[string]string {
	const except = "localhost,127.0.0.1,::1"
	at := "http://" + addr
	return map[string]string{
		"HTTP_PROXY": at, "HTTPS_PROXY": at, "ALL_PROXY": at, "NO_PROXY": except,
		"http_proxy": at, "https_proxy": at, "all_proxy": at, "no_proxy": except,
		"SANDYARD_SOCKS_PROXY": "socks5h://" + addr,
		"NODE_USE_ENV_PROXY":   "1", // or Node's fetch does not look
	}
}
