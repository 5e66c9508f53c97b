package guest

import (
	"net/http"
	"time"

	"sandyard/guest/dialect"
)

// restAfter is how long nothing must be asked before memory is given back.
const restAfter = time.Second

// rest gives the guest's free memory back to the sandbox when nobody has asked for anything for a moment, once. The
// questions of a worker whether the guest is alive do not count, so an idle guest does nothing at all.
type rest struct {
	timer *time.Timer
}

func newRest() *rest { return &rest{timer: time.AfterFunc(restAfter, giveBack)} }

// watch puts the rest off at the beginning and the end of every call.
func (r *rest) watch(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.URL.Path != dialect.HealthPath {
			r.timer.Reset(restAfter)
			defer r.timer.Reset(restAfter)
		}
		next.ServeHTTP(w, req)
	})
}

func (r *rest) close() { r.timer.Stop() }
