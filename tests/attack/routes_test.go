//go:build attack

package attack

import (
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"sandyard/jobs"
	"sandyard/jobs/queue"
	"sandyard/tokens"
	"sandyard/web"
	"sandyard/web/edge"
)

// Doors are the listeners of the installation.
const (
	doorAPI       = "api"
	doorEdge      = "edge"
	doorGuest     = "guest" // the edge's way to a sandbox's own server
	doorWorker    = "worker"
	doorScheduler = "scheduler"
)

// route is one that the installation answers.
type route struct {
	door   string
	method string
	path   string // parameters are written :name
	fields []field
}

// field is one of the body that a route takes.
type field struct{ name, kind string }

func (r route) String() string { return r.door + " " + r.method + " " + r.path }

// parameter is a variable part of a path, and what it names.
var parameter = regexp.MustCompile(`:[a-z_]+`)

// allRoutes asks the server that is built from the same code, so that a new route is attacked without being listed here.
// Those of net/http's multiplexers cannot be asked for.
func (r *rig) allRoutes() []route {
	r.t.Helper()
	all := map[string]route{}
	add := func(one route) {
		all[one.String()] = one
	}
	for _, one := range r.serverRoutes() {
		add(one)
	}
	r.describe(all)
	for _, door := range []string{doorWorker, doorScheduler} {
		for _, path := range []string{"/healthz", "/readyz", "/metrics", "/debug/pprof/", "/"} {
			add(route{door: door, method: "GET", path: path})
		}
	}
	for _, method := range []string{"GET", "POST", "PUT", "DELETE", "OPTIONS"} {
		add(route{door: doorEdge, method: method, path: "/anything"})
	}
	for _, path := range []string{"/files", "/files/compose", "/process.Process/Start", "/filesystem.Filesystem/ListDir"} {
		add(route{door: doorGuest, method: "POST", path: path})
	}
	for _, path := range []string{"/health", "/files", "/metrics", "/envs"} {
		add(route{door: doorGuest, method: "GET", path: path})
	}
	return slices.SortedFunc(maps.Values(all), func(a, b route) int { return strings.Compare(a.String(), b.String()) })
}

// serverRoutes builds a server as the API process does, which listens nowhere. Where it answers everything below a path,
// one such path stands for all.
func (r *rig) serverRoutes() (all []route) {
	r.t.Helper()
	options, err := queue.ParseRedis("unix://" + r.redis)
	must(r.t, err)
	rdb := queue.NewRedis(options)
	defer rdb.Close()
	waiters := queue.NewWaiters(r.t.Context(), r.parts.Store, rdb)
	defer waiters.Close()
	signer := tokens.New(tokens.NewSecret())
	log := slog.New(slog.DiscardHandler)
	way := edge.New(edge.Config{Store: r.parts.Store, Signer: signer, Log: log})
	defer way.Close()
	srv, err := web.New(web.Config{
		Store: r.parts.Store, Jobs: jobs.NewClient(r.parts.Store, r.parts.Queue, jobs.Catalog{}, log), Waiters: waiters, Queue: r.parts.Queue,
		Redis: options, Metrics: prometheus.NewRegistry(), Signer: signer, Inside: way, Log: log,
	})
	must(r.t, err)
	ends := map[string]int{}
	for _, found := range srv.Routes(true) {
		ends[found.Method+found.Path]++
	}
	for _, found := range srv.Routes() {
		path := found.Path
		if ends[found.Method+path]--; ends[found.Method+path] < 0 || strings.HasSuffix(path, "*") {
			path = strings.TrimSuffix(strings.TrimSuffix(path, "*"), "/") + "/anything"
		}
		all = append(all, route{door: doorAPI, method: found.Method, path: path})
	}
	must(r.t, srv.Shutdown(context.Background()))
	return all
}

// describe adds what the running API's document says of bodies. What it describes must be there.
func (r *rig) describe(all map[string]route) {
	r.t.Helper()
	if n := r.describeBy(all, "/openapi.json"); n < 30 {
		r.t.Fatalf("the API's document describes %d paths", n)
	}
	for _, one := range slices.Collect(maps.Values(all)) {
		if strings.HasPrefix(one.path, "/openapi/") && one.method == "GET" {
			r.describeBy(all, one.path)
		}
	}
}

// describeBy adds what one document says, and returns how many paths it has.
func (r *rig) describeBy(all map[string]route, where string) int {
	r.t.Helper()
	var document openAPI
	answer := r.neighbour.do(request{method: "GET", path: where})
	must(r.t, answer.err)
	must(r.t, json.Unmarshal([]byte(answer.head), &document))
	braces := regexp.MustCompile(`\{([^}]*)\}`)
	for path, operations := range document.Paths {
		for method, op := range operations {
			one := route{door: doorAPI, method: strings.ToUpper(method), path: braces.ReplaceAllString(path, ":$1")}
			if _, ok := all[one.String()]; !ok {
				r.t.Errorf("%s describes %v, which the server does not have", where, one)
				continue
			}
			one.fields = document.fields(op.RequestBody.Content["application/json"].Schema)
			all[one.String()] = one
		}
	}
	return len(document.Paths)
}

// openAPI is what is read of the document.
type openAPI struct {
	Paths map[string]map[string]struct {
		RequestBody struct {
			Content map[string]struct{ Schema schema }
		}
	}
	Components struct{ Schemas map[string]schema }
}

type schema struct {
	Ref        string `json:"$ref"`
	Type       any
	Properties map[string]schema
}

func (d openAPI) fields(s schema) []field {
	if name, ok := strings.CutPrefix(s.Ref, "#/components/schemas/"); ok {
		s = d.Components.Schemas[name]
	}
	var all []field
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		of := s.Properties[name]
		kind, _ := of.Type.(string)
		if types, ok := of.Type.([]any); ok && len(types) > 0 {
			kind, _ = types[0].(string)
		}
		if of.Ref != "" {
			kind = "object"
		}
		all = append(all, field{name, kind})
	}
	return all
}

// named says what a parameter of a path names: what stands before it, or its own name where several follow each other.
func named(path, parameter string) string {
	parts := strings.Split(path, "/")
	at := slices.Index(parts, parameter)
	if at < 1 || strings.HasPrefix(parts[at-1], ":") {
		return strings.TrimPrefix(parameter, ":")
	}
	return parts[at-1]
}

// fill puts values in the place of a route's parameters.
func (r route) fill(value func(what string) string) string {
	return parameter.ReplaceAllStringFunc(r.path, func(p string) string { return value(named(r.path, p)) })
}

// request makes one for the route, whose parameters have the values.
func (r *rig) request(to route, body any, value func(what string) string, header ...string) request {
	q := request{method: to.method, path: to.fill(value), body: body, header: header}
	switch to.door {
	case doorEdge:
		q.host, q.as = r.edge, "8000-"+value("sandboxes")+".localhost"
	case doorGuest:
		q.host = r.edge
		q.header = append(q.header, "E2b-Sandbox-Id", value("sandboxes"), "E2b-Sandbox-Port", "49983", "X-Access-Token", "x")
	case doorWorker, doorScheduler:
		q.host = r.health[to.door]
	}
	return q
}

// escape makes an id part of a path as a client's library does.
func escape(id string) string { return url.PathEscape(id) }

// wellFormed returns values that name nothing.
func wellFormed(what string) string {
	return map[string]string{
		"sandboxes": "sb0000000000000000000000000a", "jobs": "job_0000000000000000000000000a", "schedules": "sch_0000000000000000000000000a",
		"builds": "bld_0000000000000000000000000a", "ports": "8000", "templates": "nothing", "files": "read", "keys": "key_0000000000000000000000000a",
	}[what]
}

// mustKnow fails where a route has a parameter of which the walks do not know what it names.
func (r *rig) mustKnow(t *testing.T) {
	t.Helper()
	known := slices.Collect(maps.Keys(r.neighbour.owns.ids))
	for _, one := range r.routes {
		for _, p := range parameter.FindAllString(one.path, -1) {
			if what := named(one.path, p); !slices.Contains(known, what) {
				t.Errorf("%v: the walks do not know what %s names; give the neighbour one (%s) in belongings_test.go", one, p, what)
			}
		}
	}
}
