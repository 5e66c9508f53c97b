package runlooptest

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"sandyard/providers"
	"sandyard/providers/remote/remotetest"
)

// States of a devbox.
const (
	provisioning = "provisioning"
	running      = "running"
	suspending   = "suspending"
	suspended    = "suspended"
	resuming     = "resuming"
	failure      = "failure"
	ended        = "shutdown"
)

// doc is a JSON object.
type doc = map[string]any

// devbox is one sandbox of the inner provider. The server's mutex guards it.
type devbox struct {
	id, inner  string
	spec       providers.Spec // of the inner sandbox
	disk       []byte         // while it is suspended: an archive of its files
	asked      doc            // the body of its create
	status     string
	moves      []doc
	tunnel     doc                   // nil = it has none
	executions map[string]*execution // each by its command's id and by its own
	changed    chan struct{}         // closed at the next change
	changing   sync.Mutex            // held while the inner sandbox changes its state
	gone       bool                  // the inner sandbox is deleted
}

func now() int64 { return time.Now().UnixMilli() }

// find returns the first devbox that is meant; nil = there is none.
func (s *Server) find(meant func(*devbox) bool) *devbox {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.IndexFunc(s.boxes, meant); i >= 0 {
		return s.boxes[i]
	}
	return nil
}

func (s *Server) create(w http.ResponseWriter, r *http.Request) {
	ask, name := read[doc](r), rand.Text()
	b := &devbox{
		id: "dbx_" + name, inner: strings.ToLower(name), asked: ask,
		executions: map[string]*execution{}, changed: make(chan struct{}),
	}
	spec := providers.Spec{
		ID: b.inner, Image: s.o.Image, Env: map[string]string{}, WorkDir: s.o.WorkDir,
		Resources: providers.Resources{Pids: 4096}, // of which Runloop says nothing
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if status, problem := s.prepare(ask, &spec); problem != "" {
		fail(w, status, problem)
		return
	}
	if wish, ok := ask["tunnel"].(doc); ok {
		b.tunnel = newTunnel(wish)
	}
	b.spec = spec
	b.move(provisioning)
	s.boxes = append(s.boxes, b)
	s.later(b, running, func(ctx context.Context) error {
		_, err := s.inner.Create(ctx, spec)
		return err
	})
	remotetest.Tell(w, http.StatusOK, b.view())
}

// prepare completes the spec of a devbox, or says what is wrong with what was asked for.
func (s *Server) prepare(ask doc, spec *providers.Spec) (status int, problem string) {
	living := 0
	for _, b := range s.boxes {
		if b.status != ended && b.status != failure {
			living++
		}
	}
	if s.o.MaxDevboxes > 0 && living >= s.o.MaxDevboxes {
		return http.StatusTooManyRequests, "devbox limit reached"
	}
	for _, name := range []string{"entrypoint", "file_mounts", "secrets", "mounts"} {
		if ask[name] != nil {
			return http.StatusBadRequest, "The stand-in has no " + name
		}
	}
	for _, name := range []string{"blueprint_name", "blueprint_id", "snapshot_id"} {
		if from, ok := ask[name].(string); ok {
			if spec.Image, ok = s.o.Blueprints[from]; !ok {
				return http.StatusNotFound, name + " " + from + " not found"
			}
		}
	}
	launch, _ := ask["launch_parameters"].(doc)
	id, ok := launch["network_policy_id"]
	if ok && id != nil && !slices.ContainsFunc(s.policies, func(p doc) bool { return p["id"] == id }) {
		return http.StatusNotFound, "Network policy not found"
	}
	env, _ := ask["environment_variables"].(doc)
	for name, value := range env {
		spec.Env[name], _ = value.(string)
	}
	return 0, ""
}

// move changes the status, and tells who waits.
func (b *devbox) move(to string) {
	b.status = to
	b.moves = append(b.moves, doc{"status": to, "transition_time_ms": now()})
	b.tell()
}

func (b *devbox) tell() {
	close(b.changed)
	b.changed = make(chan struct{})
}

// later ends the status of now in the background, by another one or by a failure. A shutdown goes first.
func (s *Server) later(b *devbox, to string, do func(context.Context) error) {
	from := b.status
	s.work.Go(func() {
		b.changing.Lock()
		defer b.changing.Unlock()
		if !s.is(b, from) {
			return
		}
		if err := do(s.life); err != nil && s.life.Err() == nil {
			s.t.Logf("devbox %s was %s: %v", b.id, from, err)
			to = failure
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if b.status == from {
			b.move(to)
		}
	})
}

func (s *Server) is(b *devbox, status string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return b.status == status
}

// view is the devbox as the document describes it.
func (b *devbox) view() doc {
	v := doc{
		"id": b.id, "name": b.asked["name"], "status": b.status, "capabilities": []string{},
		"create_time_ms": b.moves[0]["transition_time_ms"], "end_time_ms": nil, "state_transitions": b.moves,
		"launch_parameters": doc{}, "metadata": doc{}, "tunnel": b.tunnel,
		"blueprint_id": b.asked["blueprint_id"], "snapshot_id": b.asked["snapshot_id"],
	}
	for _, name := range []string{"launch_parameters", "metadata"} {
		if b.asked[name] != nil {
			v[name] = b.asked[name]
		}
	}
	last := b.moves[len(b.moves)-1]["transition_time_ms"]
	switch b.status {
	case failure:
		v["failure_reason"], v["end_time_ms"] = "execution_failed", last
	case ended:
		v["shutdown_reason"], v["end_time_ms"] = "api_shutdown", last
	}
	return v
}

func (s *Server) retrieve(w http.ResponseWriter, _ *http.Request, b *devbox) {
	s.mu.Lock()
	defer s.mu.Unlock()
	remotetest.Tell(w, http.StatusOK, b.view())
}

func (s *Server) list(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []doc
	for _, b := range s.boxes {
		all = append(all, b.view())
	}
	tellPage(w, q, "devboxes", all, func(v doc) bool { return !q.Has("status") || v["status"] == q.Get("status") })
}

// tellPage answers with what is wanted of all that follow the cursor, as far as the limit allows.
func tellPage(w http.ResponseWriter, q url.Values, name string, all []doc, wanted func(doc) bool) {
	limit, err := strconv.Atoi(q.Get("limit"))
	if err != nil || limit < 1 {
		limit = 20
	}
	from, after := 0, q.Get("starting_after")
	if after != "" {
		if from = slices.IndexFunc(all, func(v doc) bool { return v["id"] == after }) + 1; from == 0 {
			fail(w, http.StatusBadRequest, "starting_after is unknown")
			return
		}
	}
	total, page, more := 0, []doc{}, false
	for i, v := range all {
		if !wanted(v) {
			continue
		}
		total++
		if i < from {
			continue
		}
		if more = len(page) == min(limit, 100); !more {
			page = append(page, v)
		}
	}
	remotetest.Tell(w, http.StatusOK, doc{name: page, "has_more": more, "total_count": total})
}

func (s *Server) shutdown(w http.ResponseWriter, _ *http.Request, b *devbox) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if b.status == ended {
		fail(w, http.StatusBadRequest, "Devbox is already shut down")
		return
	}
	b.move(ended)
	s.work.Go(func() { s.remove(s.life, b) })
	remotetest.Tell(w, http.StatusOK, b.view())
}

// remove deletes the inner sandbox, once.
func (s *Server) remove(ctx context.Context, b *devbox) {
	b.changing.Lock()
	defer b.changing.Unlock()
	if b.gone {
		return
	}
	err := s.inner.Delete(ctx, s.innerOf(b))
	if b.gone = err == nil; err != nil && ctx.Err() == nil {
		s.t.Errorf("delete of devbox %s: %v", b.id, err)
	}
}

// suspend keeps a devbox's files, as far as the options name their directories, and ends the inner sandbox.
func (s *Server) suspend(w http.ResponseWriter, _ *http.Request, b *devbox) {
	s.change(w, b, running, suspending, suspended, func(ctx context.Context) (err error) {
		s.endProcesses(ctx, b)
		if len(s.o.Disk) > 0 {
			b.disk, err = s.pack(ctx, b)
		}
		return errors.Join(err, s.inner.Delete(ctx, s.innerOf(b)))
	})
}

// resume makes another inner sandbox with these files: all that runs in it is new.
func (s *Server) resume(w http.ResponseWriter, _ *http.Request, b *devbox) {
	s.change(w, b, suspended, resuming, running, func(ctx context.Context) error {
		s.mu.Lock()
		b.inner = newName()
		b.spec.ID = b.inner
		s.mu.Unlock()
		_, err := s.inner.Create(ctx, b.spec)
		if err == nil && len(s.o.Disk) > 0 {
			err = s.unpack(ctx, b)
		}
		return err
	})
}

func (s *Server) innerOf(b *devbox) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return b.inner
}

// pack is an archive of a devbox's disk.
func (s *Server) pack(ctx context.Context, b *devbox) ([]byte, error) {
	box, err := s.inner.Open(ctx, s.innerOf(b))
	if err != nil {
		return nil, err
	}
	res, err := box.Run(ctx, providers.Command{
		Name: newName(), MaxOutput: maxDisk, // what is in the directories, which are not the user's own
		Shell: "find " + strings.Join(s.o.Disk, " ") + " -mindepth 1 -maxdepth 1 -print0 | tar --null -T - -cPf -",
	})
	if err == nil && (res.ExitCode > 1 || res.StdoutBytes > maxDisk) { // 1 = a file was changed meanwhile
		err = fmt.Errorf("tar ended with %d after %d bytes: %s", res.ExitCode, res.StdoutBytes, res.Stderr)
	}
	return res.Stdout, err
}

func (s *Server) unpack(ctx context.Context, b *devbox) error {
	box, err := s.inner.Open(ctx, s.innerOf(b))
	if err != nil {
		return err
	}
	const file = "/tmp/.disk.tar"
	if _, err := box.SaveFile(ctx, file, bytes.NewReader(b.disk), int64(len(b.disk)), 0); err != nil {
		return err
	}
	res, err := box.Run(ctx, providers.Command{
		Name: newName(), Shell: "tar -xPf " + file + "; r=$?; rm -f " + file + "; exit $r",
	})
	if err == nil && res.ExitCode != 0 {
		err = fmt.Errorf("tar ended with %d: %s", res.ExitCode, res.Stderr)
	}
	return err
}

// change begins what leads from one status over the next to the last.
func (s *Server) change(
	w http.ResponseWriter, b *devbox, from, over, to string, do func(context.Context) error,
) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if b.status != from {
		fail(w, http.StatusBadRequest, "Devbox is not "+from)
		return
	}
	b.move(over)
	s.later(b, to, do)
	remotetest.Tell(w, http.StatusOK, b.view())
}

// wish is what a caller waits for.
type wish struct {
	Statuses []string `json:"statuses"`
	Seconds  *int     `json:"timeout_seconds"`
}

func (s *Server) waitForStatus(w http.ResponseWriter, r *http.Request, b *devbox) {
	ask := read[wish](r)
	met := func() bool { return slices.Contains(ask.Statuses, b.status) }
	if s.await(r.Context(), b, seconds(ask.Seconds, 30), met) {
		s.retrieve(w, r, b)
		return
	}
	tellTimeout(w)
}

// await waits until met, which is asked at every change of the devbox.
func (s *Server) await(ctx context.Context, b *devbox, limit time.Duration, met func() bool) bool {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for {
		s.mu.Lock()
		done, changed := met(), b.changed
		s.mu.Unlock()
		if done {
			return true
		}
		select {
		case <-changed:
		case <-timer.C:
			return false
		case <-ctx.Done():
			return false
		}
	}
}

// seconds is how long a caller wants to wait; without a word it is the most that is allowed.
func seconds(wanted *int, most int) time.Duration {
	if wanted == nil {
		wanted = &most
	}
	return time.Duration(min(*wanted, most)) * time.Second
}

func tellTimeout(w http.ResponseWriter) {
	w.Header().Set("X-Should-Retry", "true")
	fail(w, http.StatusRequestTimeout, "Timed out waiting for the status")
}

// createPolicy keeps a network policy. It has no effect on devboxes.
func (s *Server) createPolicy(w http.ResponseWriter, r *http.Request) {
	ask := read[doc](r)
	s.mu.Lock()
	defer s.mu.Unlock()
	if slices.ContainsFunc(s.policies, func(p doc) bool { return p["name"] == ask["name"] }) {
		fail(w, http.StatusConflict, "A network policy with this name already exists")
		return
	}
	p := doc{
		"id": "np_" + rand.Text(), "name": ask["name"], "description": ask["description"],
		"create_time_ms": now(), "update_time_ms": now(),
		"egress": wanted(ask, doc{
			"allow_all": false, "allow_agent_gateway": false, "allow_devbox_to_devbox": ask["allow_all"] == true,
			"allow_mcp_gateway": false, "allow_runloop_mirrors": false, "allowed_cidrs": []any{}, "allowed_hostnames": []any{},
		}),
	}
	s.policies = append(s.policies, p)
	remotetest.Tell(w, http.StatusOK, p)
}

// wanted puts what was asked for in place of defaults.
func wanted(ask, defaults doc) doc {
	for name := range defaults {
		if ask[name] != nil {
			defaults[name] = ask[name]
		}
	}
	return defaults
}

func (s *Server) listPolicies(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	s.mu.Lock()
	defer s.mu.Unlock()
	tellPage(w, q, "network_policies", s.policies, func(p doc) bool {
		return strings.Contains(p["name"].(string), q.Get("name")) && (!q.Has("id") || p["id"] == q.Get("id"))
	})
}
