//go:build chaos

package chaos

import (
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
)

// hooks receives callbacks. Every fifth is refused, so that it must come again.
type hooks struct {
	server *httptest.Server

	mu    sync.Mutex
	calls int
	ids   map[string]map[string]bool // job → webhook-ids that were taken
}

func startHooks() *hooks {
	h := &hooks{ids: map[string]map[string]bool{}}
	h.server = httptest.NewServer(http.HandlerFunc(h.take))
	return h
}

func (h *hooks) take(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Data struct {
			JobID string `json:"job_id"`
		}
	}
	_ = json.NewDecoder(r.Body).Decode(&body) // what cannot be read is found missing
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.calls++; h.calls%5 == 0 {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	id := body.Data.JobID
	if h.ids[id] == nil {
		h.ids[id] = map[string]bool{}
	}
	h.ids[id][r.Header.Get("webhook-id")] = true
}

func (h *hooks) of(job string) []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Sorted(maps.Keys(h.ids[job]))
}
