// Package duplex lets servers of HTTP/1 answer requests whose bodies still arrive.
package duplex

import (
	"context"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// Serve answers at l with h, as Handler does, and says how that ended, as srv.Serve does. Answers arrive whole also
// where the connection ends with them.
func Serve(srv *http.Server, l net.Listener, h http.Handler) error {
	srv.Handler = Handler(h)
	srv.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		return context.WithValue(ctx, lingerKey{}, c)
	}
	return srv.Serve(Lingering(l))
}

// Handler lets next answer a request whose body still arrives. net/http can do so, but then reads on for the rest, and
// when it finds the end it loses track of who reads the connection and panics; a chunked rest it would even take for
// the next request. So such an answer is the last of its connection, and nobody reads when the handler has returned.
func Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor != 1 || r.Body == nil || r.Body == http.NoBody {
			next.ServeHTTP(w, r)
			return
		}
		control := http.NewResponseController(w)
		_ = control.EnableFullDuplex() // HTTP/1 has it
		body := &arrival{ReadCloser: r.Body}
		r = r.WithContext(context.WithValue(r.Context(), arrivalKey{}, body))
		r.Body = body
		conn, _ := r.Context().Value(lingerKey{}).(*lingerConn)
		answer := &earlyAnswer{ResponseWriter: w, body: body, conn: conn}
		defer answer.end(control)
		next.ServeHTTP(answer, r)
	})
}

// arrival is a request's body on its way.
type arrival struct {
	io.ReadCloser
	mu     sync.Mutex // held while somebody reads
	whole  atomic.Bool
	gone   atomic.Bool // the handler has returned
	broken atomic.Pointer[error]
}

type arrivalKey struct{}

// BodyError says what was wrong with the body of a request that Handler passed on; nil = nothing, as far as it was
// read.
func BodyError(ctx context.Context) error {
	if body, ok := ctx.Value(arrivalKey{}).(*arrival); ok {
		if err := body.broken.Load(); err != nil {
			return *err
		}
	}
	return nil
}

// Read implements io.Reader.
func (b *arrival) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.gone.Load() {
		return 0, http.ErrBodyReadAfterClose
	}
	n, err := b.ReadCloser.Read(p)
	switch err {
	case nil:
	case io.EOF:
		b.whole.Store(true)
	default:
		b.broken.Store(&err)
	}
	return n, err
}

// Close leaves the rest of the body to the end of the handler.
func (b *arrival) Close() error { return nil }

// earlyAnswer is an answer that may be ahead of its request.
type earlyAnswer struct {
	http.ResponseWriter
	body    *arrival
	conn    *lingerConn // nil = not ours
	decided bool
}

// Unwrap is for http.ResponseController.
func (a *earlyAnswer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (a *earlyAnswer) WriteHeader(status int) {
	if status >= http.StatusOK {
		a.decide()
	}
	a.ResponseWriter.WriteHeader(status)
}

func (a *earlyAnswer) Write(p []byte) (int, error) {
	a.decide()
	return a.ResponseWriter.Write(p)
}

// decide makes the connection end with an answer that comes before the whole request has.
func (a *earlyAnswer) decide() {
	if a.decided || a.body.whole.Load() {
		a.decided = true
		return
	}
	a.decided = true
	a.Header().Set("Connection", "close")
	if a.conn != nil {
		a.conn.linger.Store(true)
	}
}

// end waits until nobody reads the body any more.
func (a *earlyAnswer) end(control *http.ResponseController) {
	a.decide()
	if a.body.whole.Load() {
		return
	}
	a.body.gone.Store(true)
	_ = control.SetReadDeadline(time.Unix(1, 0)) // wakes who waits for more
	a.body.mu.Lock()
	defer a.body.mu.Unlock() // only to have waited
}

type lingerKey struct{}
