// Package dialout is the way out of the sandbox: a proxy on its loopback, whose connections the worker makes.
package dialout

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"sync"
	"time"

	"sandyard/guest/link"
	"sandyard/guest/protocol"
	"sandyard/guest/proxy"
	"sandyard/guest/tunnel"
)

// workerPatience is how long a connection waits for a worker while there is none, such as between two of them.
const workerPatience = 30 * time.Second

// Proxy serves the sandbox's programs while it is open. Workers come and go meanwhile.
type Proxy struct {
	mu     sync.Mutex
	worker *link.Streams // nil while nobody is attached
	came   chan struct{} // closed when somebody is

	turn     sync.Mutex   // held while the proxy is opened or closed
	listener net.Listener // nil while it is closed
	serving  sync.WaitGroup

	where sync.Mutex // held while the proxy takes its port
	port  uint16     // of the proxy
}

// New makes a closed proxy without a worker.
func New() *Proxy { return &Proxy{came: make(chan struct{})} }

// Attach makes connections through this worker from now on.
func (p *Proxy) Attach(worker *link.Streams) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.worker == nil {
		close(p.came)
	}
	p.worker = worker
}

// Detach ends that, unless another worker has come meanwhile.
func (p *Proxy) Detach(worker *link.Streams) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.worker == worker {
		p.worker, p.came = nil, make(chan struct{})
	}
}

// dial asks the worker for a connection.
func (p *Proxy) dial(ctx context.Context, target string) (*tunnel.Conn, error) {
	ctx, stop := context.WithTimeout(ctx, workerPatience)
	defer stop()
	stream, err := p.stream(ctx)
	if err != nil {
		return nil, err
	}
	defer context.AfterFunc(ctx, func() { _ = stream.SetDeadline(time.Now()) })()
	conn, err := tunnel.Ask(stream, target)
	if _, refused := errors.AsType[*tunnel.RefusedError](err); err != nil && !refused {
		err = unavailable(err.Error())
	}
	return conn, err
}

// stream opens a stream to the worker, or to the next one.
func (p *Proxy) stream(ctx context.Context) (net.Conn, error) {
	for {
		p.mu.Lock()
		worker, came := p.worker, p.came
		p.mu.Unlock()
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

// Open starts the proxy unless it is open, and returns its address, host:port.
func (p *Proxy) Open(ctx context.Context, log *slog.Logger) (string, error) {
	p.turn.Lock()
	defer p.turn.Unlock()
	if p.listener == nil {
		l, err := p.listen(ctx)
		if err != nil {
			return "", fmt.Errorf("listen for the sandbox's programs: %w", err)
		}
		p.listener = l
		p.serving.Go(func() { _ = proxy.New(p.dial, log).Serve(l) }) //nolint:contextcheck // it outlives the call
	}
	return p.listener.Addr().String(), nil
}

// listen prefers the port that programs may know.
func (p *Proxy) listen(ctx context.Context) (net.Listener, error) {
	p.where.Lock()
	defer p.where.Unlock()
	var any net.ListenConfig
	l, err := any.Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(protocol.ProxyPort)))
	if err != nil {
		l, err = any.Listen(ctx, "tcp", "127.0.0.1:0")
	}
	if err != nil {
		return nil, err
	}
	if at, ok := l.Addr().(*net.TCPAddr); ok {
		p.port = at.AddrPort().Port()
	}
	return l, nil
}

// ListensOn says whether a port is the proxy's. It waits for a listen in progress.
func (p *Proxy) ListensOn(port uint16) bool {
	p.where.Lock()
	defer p.where.Unlock()
	return p.port == port
}

// Close ends the proxy with all its connections.
func (p *Proxy) Close() {
	p.turn.Lock()
	defer p.turn.Unlock()
	if p.listener != nil {
		_ = p.listener.Close()
		p.listener = nil
		p.serving.Wait()
		p.where.Lock()
		p.port = 0
		p.where.Unlock()
	}
}

// Env is the environment that makes programs use the proxy at addr. ALL_PROXY names it as an HTTP proxy: some clients
// in Python refuse to start where it names a SOCKS proxy and they lack the module for that.
func Env(addr string) map[string]string {
	const except = "localhost,127.0.0.1,::1"
	at := "http://" + addr
	return map[string]string{
		"HTTP_PROXY": at, "HTTPS_PROXY": at, "ALL_PROXY": at, "NO_PROXY": except,
		"http_proxy": at, "https_proxy": at, "all_proxy": at, "no_proxy": except,
		"SANDYARD_SOCKS_PROXY": "socks5h://" + addr,
		"NODE_USE_ENV_PROXY":   "1", // or Node's fetch does not look
	}
}
