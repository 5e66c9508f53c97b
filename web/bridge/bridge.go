// Package bridge hands requests of Fiber's over to net/http, which streams both ways, upgrades connections, and notices
// when a client is gone: terminals, files as they come, agents' tools. Such a request ends with the API key or the
// login that it came with, and a tenant has a bounded number of them at once.
package bridge

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/gofiber/fiber/v2"

	"sandyard/duplex"
	"sandyard/models"
	"sandyard/web/middleware"
)

const (
	// maxPrefetched is what fasthttp reads of a body before its handler is called.
	maxPrefetched = 8 << 10
	// sendPatience is how long a client may take nothing of an answer.
	sendPatience = 2 * time.Minute
	// headTimeout is how long net/http may take for a head that is in memory.
	headTimeout = time.Minute
)

// Config is what a Bridge stands on. All of it stays the caller's.
type Config struct {
	Stack         *middleware.Stack
	Store         *models.Store
	TenantStreams int // streams of one tenant at once; 0 = middleware.DefaultTenantStreams
	Log           *slog.Logger
}

// Bridge serves single requests of Fiber's by net/http. The connection ends with the request.
type Bridge struct {
	mw      *middleware.Stack
	streams *middleware.Crowd
	keys    *openKeys
	log     *slog.Logger

	server *http.Server
	conns  *duplex.Handover
	cut    context.CancelFunc
	open   sync.WaitGroup
}

// New returns a Bridge. Shutdown ends it.
func New(c Config) *Bridge {
	life, cut := context.WithCancel(context.Background())
	b := &Bridge{
		mw: c.Stack, keys: newOpenKeys(c.Store, c.Log), log: c.Log,
		streams: middleware.NewCrowd("tenant_streams", cmp.Or(c.TenantStreams, middleware.DefaultTenantStreams)),
		conns:   duplex.NewHandover(&net.TCPAddr{}), cut: cut,
	}
	b.server = &http.Server{
		Handler:     http.HandlerFunc(serveCrossed),
		BaseContext: func(net.Listener) context.Context { return life },
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, crossedKey{}, c)
		},
		ReadHeaderTimeout: headTimeout,
		ErrorLog:          slog.NewLogLogger(c.Log.Handler(), slog.LevelDebug),
	}
	b.server.SetKeepAlivesEnabled(false)
	b.open.Go(func() { _ = b.server.Serve(b.conns) }) // it ends with Shutdown
	return b
}

// Shutdown waits for the requests under way until ctx ends, and then cuts them.
func (b *Bridge) Shutdown(ctx context.Context) {
	_ = b.server.Shutdown(ctx) // what it left is cut
	b.cut()
	_ = b.server.Close()
	b.open.Wait()
	b.keys.close()
}

// carry serves a crossed connection to its end.
func (b *Bridge) carry(c *crossed) {
	b.open.Add(1)
	defer b.open.Done()
	if b.conns.Hand(c) {
		<-c.done
	}
}

// crossed is a connection whose one request net/http serves.
type crossed struct {
	net.Conn

	request *middleware.Request
	route   string
	handle  http.HandlerFunc
	log     func(status int, sent int64, took time.Duration)

	reading sync.Mutex
	from    io.Reader
	ended   bool
	once    sync.Once
	done    chan struct{}
}

type crossedKey struct{}

// Enter counts a stream among the request's tenant's until leave is called, for one that Fiber serves itself. It
// returns a problem where there are too many.
func (b *Bridge) Enter(tenantID string) (leave func(), err error) { return b.streams.Enter(tenantID) }

// Until has end called when the API key or login of a stream is revoked, until stop is called.
func (b *Bridge) Until(key string, end func()) (stop func()) {
	return b.keys.enter(&keyStream{key: key, end: end})
}

// Cross hands the request over to handle, at path and with the named headers of the original. The memory that is held
// for it stays held until handle returns. Nothing of the request may be used afterwards.
func (b *Bridge) Cross(c *fiber.Ctx, path string, headers []string, handle http.HandlerFunc) error {
	leave, err := b.streams.Enter(middleware.RequestOf(c.UserContext()).Tenant)
	if err != nil {
		return err
	}
	r, method, route := middleware.RequestOf(c.UserContext()), c.Method(), c.Route().Path
	head, err := b.head(c, path, headers)
	if changes := (method != http.MethodGet || r.Changes) && !r.Submits; err == nil && changes {
		r.Act(method, route)
		err = b.mw.Begin(c.UserContext())
	}
	if err != nil {
		leave()
		return err
	}
	held := r.Held
	r.Held = middleware.Hold{} // which Fiber would release now
	over := &crossed{
		request: r,
		route:   route,
		handle: b.keys.while(func(w http.ResponseWriter, req *http.Request) {
			r.Held = held
			defer func() { r.Held.Release() }()
			handle(w, req)
		}),
		from: bytes.NewReader(head),
		done: make(chan struct{}),
	}
	over.log = func(status int, sent int64, took time.Duration) {
		b.logCrossed(method, route, r, status, sent, took)
		b.mw.EndAudit(r, status)
		b.mw.NotePath(r)
	}
	raw := c.Context().Conn()
	c.Context().HijackSetNoResponse(true)
	c.Context().Hijack(func(conn net.Conn) {
		defer leave()
		over.Conn, over.from = raw, io.MultiReader(over.from, conn)
		b.carry(over)
	})
	return nil
}

// head is the request as net/http is to read it, up to where the connection goes on.
func (b *Bridge) head(c *fiber.Ctx, path string, headers []string) ([]byte, error) {
	var head bytes.Buffer
	fmt.Fprintf(&head, "%s %s?%s HTTP/1.1\r\nHost: sandyard\r\n", c.Method(), path, c.Request().URI().QueryString())
	for _, name := range headers {
		for _, value := range c.Request().Header.PeekAll(name) {
			fmt.Fprintf(&head, "%s: %s\r\n", name, value)
		}
	}
	stream, length := c.Context().RequestBodyStream(), c.Request().Header.ContentLength()
	switch {
	case stream == nil:
		head.WriteString("\r\n")
	case length >= 0:
		fmt.Fprintf(&head, "Content-Length: %d\r\n\r\n", length)
		if _, err := io.CopyN(&head, stream, int64(min(length, maxPrefetched, b.mw.MaxBody))); err != nil {
			return nil, middleware.Incomplete(err)
		}
	default:
		head.WriteString("Transfer-Encoding: chunked\r\n\r\n")
	}
	return head.Bytes(), nil
}

// Read implements net.Conn.
func (c *crossed) Read(p []byte) (int, error) {
	c.reading.Lock()
	defer c.reading.Unlock()
	if c.ended {
		return 0, net.ErrClosed
	}
	return c.from.Read(p)
}

// Write implements net.Conn.
func (c *crossed) Write(p []byte) (int, error) {
	if err := c.SetWriteDeadline(time.Now().Add(sendPatience)); err != nil {
		return 0, err
	}
	return c.Conn.Write(p)
}

// CloseWrite ends the answer while the client may still send.
func (c *crossed) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}

// Close implements net.Conn. It returns when nobody reads any more: Fiber uses the reader's memory again.
func (c *crossed) Close() error {
	err := net.ErrClosed
	c.once.Do(func() {
		err = c.Conn.Close()
		c.reading.Lock()
		c.ended = true
		c.reading.Unlock()
		close(c.done)
	})
	return err
}

// serveCrossed is the one handler of net/http.
func serveCrossed(w http.ResponseWriter, r *http.Request) {
	began := time.Now()
	c, ok := r.Context().Value(crossedKey{}).(*crossed)
	if !ok {
		return
	}
	told := &told{ResponseWriter: w, status: http.StatusOK}
	defer func() {
		if p := recover(); p != nil {
			c.log(0, told.sent, time.Since(began))
			panic(p)
		}
		c.log(told.status, told.sent, time.Since(began))
	}()
	w.Header().Set(fiber.HeaderXRequestID, c.request.ID)
	c.handle(told, r.WithContext(middleware.With(r.Context(), c.request)))
}

// told is an answer whose status and length are written down.
type told struct {
	http.ResponseWriter

	status int
	sent   int64
}

// Unwrap is for http.ResponseController.
func (t *told) Unwrap() http.ResponseWriter { return t.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (t *told) WriteHeader(status int) {
	t.status = status
	t.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (t *told) Write(p []byte) (int, error) {
	n, err := t.ResponseWriter.Write(p)
	t.sent += int64(n)
	return n, err
}

// Hijack implements http.Hijacker: the answer is an upgrade. When the worker has hung up, the client's half that is
// left leads nowhere, so the connection has no halves.
func (t *told) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	t.status = http.StatusSwitchingProtocols
	conn, buffered, err := http.NewResponseController(t.ResponseWriter).Hijack()
	return struct{ net.Conn }{conn}, buffered, err
}

// logCrossed is the log line of a request that has crossed. Status 0 is that of an answer that was broken off.
func (b *Bridge) logCrossed(method, route string, r *middleware.Request, status int, sent int64, took time.Duration) {
	attrs := []slog.Attr{
		slog.String("method", method), slog.String("route", route), slog.Int("status", status),
		slog.Duration("duration", took),
		slog.Int64("sent", sent), slog.String("request_id", r.ID), slog.String("tenant", r.Tenant),
	}
	if r.Problem != nil {
		attrs = append(attrs, slog.String("code", r.Problem.Code))
	}
	b.log.LogAttrs(context.Background(), slog.LevelInfo, "request", attrs...)
}
