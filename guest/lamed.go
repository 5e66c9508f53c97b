package guest

import (
	"net/http"
	"sync"
)

// lamed is the state of a guest whose limits code in the sandbox has lowered: it would fail every call from then on, for
// reasons that look as if they passed.
type lamed struct {
	once  sync.Once
	ended chan struct{}
}

// Lamed is closed when code in the sandbox has made its guest useless; the process should then end, and the sandbox with it.
func (g *Guest) Lamed() <-chan struct{} { return g.lamed.ended }

// noticeLamed answers no call of a guest that was made useless.
func (g *Guest) noticeLamed(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if g.host.Lowered() {
			g.lamed.once.Do(func() { close(g.lamed.ended) })
			panic(http.ErrAbortHandler)
		}
		next.ServeHTTP(w, r)
	})
}
