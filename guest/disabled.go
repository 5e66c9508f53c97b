package guest

import (
	"net/http"
	"sync"
)

// disabled is the state of a guest whose limits code in the sandbox has lowered: it would fail every call from then on,
// for reasons that look as if they passed.
type disabled struct {
	once  sync.Once
	ended chan struct{}
}

// Disabled is closed when code in the sandbox has made its guest useless; the process should then end, and the sandbox
// with it.
func (g *Guest) Disabled() <-chan struct{} { return g.disabled.ended }

// noticeDisabled answers no call of a guest that was made useless.
func (g *Guest) noticeDisabled(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if g.host.Lowered() {
			g.disabled.once.Do(func() { close(g.disabled.ended) })
			panic(http.ErrAbortHandler)
		}
		next.ServeHTTP(w, r)
	})
}
