//go:build attack

package attack

import (
	"bytes"
	"crypto/rand"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"sandyard/gateway"
)

// maxAnswer is what an answer may hold that gives back no bytes which were asked for.
const maxAnswer = 1 << 20

// intruder is the tenant that attacks.
type intruder struct {
	*caller
	stage atomic.Pointer[stage]
	prey  string // its own sandbox, for routes that want one
}

// do makes a request, whose answer is judged.
func (i *intruder) do(q request) reply {
	r := i.caller.do(q)
	if s := i.stage.Load(); s != nil {
		s.judge(q, r)
	}
	return r
}

func (i *intruder) post(path string, body any, header ...string) reply {
	return i.do(request{method: "POST", path: path, body: body, header: header})
}

func (i *intruder) get(path string) reply { return i.do(request{method: "GET", path: path}) }

// judge breaches where an answer is none that an attack may have.
func (s *stage) judge(q request, r reply) {
	path, _, _ := strings.Cut(r.to, "?")
	if len(path) > 100 {
		path = path[:100] + "…"
	}
	switch {
	case r.leak != "":
		s.breach("%s: shows the neighbour's %s", path, r.leak)
	case r.status >= http.StatusInternalServerError && !permitted(r):
		s.breach("%s: answers %d %s", path, r.status, r.text("code"))
	case r.size > maxAnswer && !q.large && !strings.Contains(path, "redoc.standalone.js"): // the reference's program
		s.breach("%s: answers %d with more than %d bytes", path, r.status, maxAnswer)
	}
}

// permitted are the 5xx that are no fault of the server: it is busy and says until when, it says that there is no such
// function, or the sandbox is full. E2B's clients know by 502 that a sandbox or its port is not there.
func permitted(r reply) bool {
	switch r.status {
	case http.StatusServiceUnavailable:
		return r.header.Get("Retry-After") != ""
	case http.StatusNotImplemented:
		return slices.Contains([]string{"not_supported", ""}, r.text("code"))
	case http.StatusBadGateway:
		return slices.Contains([]string{gateway.NotFound, gateway.PortClosed, gateway.Paused}, r.header.Get(gateway.ReasonHeader))
	case http.StatusInsufficientStorage:
		return r.text("code") == "no_space"
	}
	return false
}

// tidy removes what the attack has left of the intruder's.
func (i *intruder) tidy(t *testing.T) {
	t.Helper()
	i.rig.refresh(t)
	i.prey = ""
	for _, id := range i.live(t) {
		i.caller.do(request{method: "DELETE", path: "/v1/sandboxes/" + id + "?force=true"})
	}
	i.rig.eventually(t, time.Minute, "the intruder's sandboxes end", func() bool {
		return i.rig.count(t,
			"SELECT count(*) FROM sandboxes WHERE tenant_id = $1 AND ended_at IS NULL", other) == 0
	})
}

// own returns a sandbox of the intruder's that runs.
func (i *intruder) own(t *testing.T) string {
	t.Helper()
	if i.prey == "" {
		i.prey = i.box(t, object{"memory_mb": 128, "disk_mb": 32})
	}
	return i.prey
}

// markers are texts that occur nowhere but in what the neighbour owns.
type markers struct{ prefix string }

func newMarkers() *markers { return &markers{"planted" + strings.ToLower(rand.Text()[:10])} }

// of makes the marker of one place.
func (m *markers) of(place string) string { return m.prefix + "x" + place + "x" }

func (m *markers) search() *search { return &search{prefix: []byte(m.prefix)} }

// search looks for markers in what comes in pieces.
type search struct {
	prefix []byte
	rest   []byte
	found  string
}

func (s *search) look(piece []byte) {
	if s.found != "" || len(piece) == 0 {
		return
	}
	all := piece
	if len(s.rest) > 0 {
		all = append(s.rest, piece...)
	}
	if at := bytes.Index(all, s.prefix); at >= 0 {
		s.found = "something"
		if parts := bytes.SplitN(all[at:], []byte("x"), 3); len(parts) == 3 && len(parts[1]) < 20 {
			s.found = string(parts[1])
		}
		return
	}
	s.rest = bytes.Clone(all[max(0, len(all)-len(s.prefix)):])
}
