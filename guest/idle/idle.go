// Package idle frees the guest's memory when nobody has asked it for anything for a moment.
package idle

import (
	"net/http"
	"time"

	"sandyard/guest/protocol"
)

// idleAfter is how long there must be no call before memory is freed.
const idleAfter = time.Second

// Timer frees the guest's unused memory once, when there was no call for a moment. A worker's health checks do not
// count, so an idle guest does nothing at all.
type Timer struct {
	timer *time.Timer
}

// NewTimer starts the timer.
func NewTimer() *Timer { return &Timer{timer: time.AfterFunc(idleAfter, freeMemory)} }

// Watch resets the timer at the beginning and the end of every call.
func (t *Timer) Watch(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != protocol.HealthPath {
			t.timer.Reset(idleAfter)
			defer t.timer.Reset(idleAfter)
		}
		next.ServeHTTP(w, r)
	})
}

// Close stops the timer.
func (t *Timer) Close() { t.timer.Stop() }
