package middleware

import (
	"context"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/gofiber/fiber/v2"

	"sandyard/jobs/loop"
	"sandyard/models"
	"sandyard/models/pg"
)

const (
	// trailEvery is how long outcomes and refusals wait for others to be written with.
	trailEvery = 200 * time.Millisecond
	// trailPatience is how long PostgreSQL may take for them.
	trailPatience = 5 * time.Second
	// maxOutcomes and maxRefusals bound what waits while PostgreSQL is away.
	maxOutcomes = 10_000
	maxRefusals = 1_000
	// maxTarget bounds the text of one entry, in bytes.
	maxTarget = 200
)

// trail writes the audit log where the answer does not wait for it: the outcomes of entries that stand already, and
// what changed nothing. Refused requests that are alike and come at about the same time share an entry, so that nobody
// can fill the log with them.
type trail struct {
	store    *models.Store
	report   func(error)
	life     *loop.Life
	work     sync.WaitGroup
	mu       sync.Mutex
	outcomes []models.AuditOutcome
	refused  map[refusal]*models.AuditEntry
}

// refusal is what requests have in common that share an entry.
type refusal struct {
	tenant, actor, action, code string
	status                      int
}

func newTrail(store *models.Store, report func(error)) *trail {
	t := &trail{
		store:   store,
		report:  report,
		life:    loop.NewLife(),
		refused: map[refusal]*models.AuditEntry{},
	}
	t.work.Go(func() {
		t.life.Every(trailEvery, nil, t.flush)
		t.flush()
	})
	return t
}

// close writes what waits.
func (t *trail) close() {
	t.life.End()
	t.work.Wait()
}

// flush writes what has come. What PostgreSQL does not take waits for the next time.
func (t *trail) flush() {
	t.mu.Lock()
	outcomes, refused := t.outcomes, t.refused
	t.outcomes, t.refused = nil, map[refusal]*models.AuditEntry{}
	t.mu.Unlock()
	if len(outcomes) == 0 && len(refused) == 0 {
		return
	}
	var complete []models.AuditEntry
	for _, e := range refused {
		complete = append(complete, *e)
	}
	ctx, cancel := context.WithTimeout(context.Background(), trailPatience)
	defer cancel()
	err := t.store.AuditResults(ctx, outcomes, complete)
	if err == nil || pg.IsRefused(err) {
		return
	}
	t.report(err)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.outcomes = append(outcomes, t.outcomes...)
	t.outcomes = t.outcomes[:min(len(t.outcomes), maxOutcomes)]
	for k, e := range refused {
		t.add(k, *e)
	}
}

func (t *trail) end(o models.AuditOutcome) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.outcomes) < maxOutcomes {
		t.outcomes = append(t.outcomes, o)
	}
}

func (t *trail) refuse(e models.AuditEntry) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.add(refusal{e.TenantID, e.Actor, e.Action, e.Code, *e.Status}, e)
}

// add is called with the lock. What there is no room for shares an entry with all others of its tenant.
func (t *trail) add(k refusal, e models.AuditEntry) {
	if t.refused[k] == nil && len(t.refused) >= maxRefusals {
		k.actor, k.action, k.code = "", "", ""
		e.Actor, e.UserID, e.Action, e.Target, e.Code = "", "", "various", "", "various"
	}
	if same := t.refused[k]; same != nil {
		same.Times += e.Times
		return
	}
	t.refused[k] = &e
}

// Close writes what waits to be written.
func (s *Stack) Close() error {
	s.trail.close()
	return nil
}

// AuditEntry is the entry of this request in the audit log, as far as it is known.
func (r *Request) AuditEntry() *models.AuditEntry {
	if r.entry == nil {
		r.entry = &models.AuditEntry{
			TenantID: r.Tenant, UserID: r.User, Actor: r.Key, Client: r.Client, RequestID: r.ID, Action: r.action(),
			Target: clip(r.target()), Times: 1,
		}
	}
	return r.entry
}

// action is what was asked for: method and route.
func (r *Request) action() string {
	if r.Action == "" {
		return r.Method
	}
	return r.Action
}

var (
	parameter = regexp.MustCompile(`:([A-Za-z_]+)[?*+]?`)
	// named is the part of a path that says what it is about.
	named = regexp.MustCompile(`^/(?:v[0-9]+/)?[a-z-]+/([^/]+)|/((?:sb|job_|key_|usr_|sch_|bld_)[0-9a-v]{26})(?:/|$)`)
)

// Act says which route the request has taken, in Fiber's words.
func (r *Request) Act(method, route string) {
	r.Action = method + " " + parameter.ReplaceAllString(route, "{$1}")
}

// target is the id or name that the path has, unless the handler says what it is about.
func (r *Request) target() string {
	if r.Target != "" || !strings.Contains(r.Action, "{") {
		return r.Target
	}
	m := named.FindStringSubmatch(r.Path)
	if m == nil {
		return ""
	}
	return m[1] + m[2]
}

func clip(text string) string { return strings.ToValidUTF8(text[:min(len(text), maxTarget)], "") }

// Begin writes into the audit log what is about to be changed, before it is: a crash in between leaves an entry without
// an outcome, never a change without an entry. Submissions need no Begin, they write their entries themselves.
func (s *Stack) Begin(ctx context.Context) error {
	r := RequestOf(ctx)
	return s.store.Audit(ctx, r.AuditEntry())
}

// AuditLogin writes a login into the audit log before its tokens are sent: what nobody has was no login.
func (s *Stack) AuditLogin(ctx context.Context) error {
	r, status := RequestOf(ctx), http.StatusOK
	e := r.AuditEntry()
	e.Status = &status
	if err := s.store.Audit(ctx, e); err != nil {
		return err
	}
	e.Written = true
	return nil
}

// EndAudit gives the request's entry its outcome. A request that has none and is no mere look gets one: it changed
// nothing.
func (s *Stack) EndAudit(r *Request, status int) {
	code := ""
	if r.Problem != nil {
		code = r.Problem.Code
	}
	if code == "limit_reached" {
		s.security.Note(
			models.SecurityEvent{
				TenantID: r.Tenant,
				Kind:     models.LimitReached,
				Client:   r.Client,
				Actor:    r.Key,
				Detail:   r.Problem.Limit,
			},
		)
	}
	begun := r.entry != nil && r.entry.ID != 0 && r.entry.Status == nil
	switch {
	case begun: // also where jobs have entries of their own
		s.trail.end(models.AuditOutcome{ID: r.entry.ID, Status: status, Code: code, Target: clip(r.Target)})
	case r.entry != nil && r.entry.Written:
	case r.Tenant == "", looks(r.Method), r.Submits && (status < http.StatusBadRequest || r.Problem == nil):
	default:
		e := *r.AuditEntry()
		e.Status, e.Code = &status, code
		s.trail.refuse(e)
	}
}

func looks(method string) bool {
	return method == fiber.MethodGet || method == fiber.MethodHead || method == fiber.MethodOptions
}
