//go:build chaos

package chaos

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// jobRow is a job as PostgreSQL has it.
type jobRow struct {
	ID, SandboxID, Kind, State string
	Seq                        int64
	Parallel                   bool
	Attempt                    int
	Code                       string // of its error
	QueuedAt                   time.Time
	FinishedAt                 *time.Time
}

func terminal(state string) bool { return state != "queued" && state != "running" && state != "" }

// eventRow is one change of a job.
type eventRow struct {
	ID      int64
	At      time.Time
	JobID   string
	Event   string // without "job."
	Actor   string
	Reason  string
	Attempt int
	Node    string
}

// history is all that PostgreSQL knows in the end.
type history struct {
	jobs   map[string]jobRow
	events map[string][]eventRow // of each job, in order
	boxes  map[string]string     // sandbox → state
	keys   map[string]string     // Idempotency-Key → job
	calls  map[string]string     // job → state of its callback

	schedules []scheduleRow
	runs      map[string][]runRow // of each schedule, by their due times
	builds    []buildRow          // oldest first
	templates []templateRow
	mortals   []mortalRow
}

func readHistory(ctx context.Context, dsn string) (*history, error) {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return nil, err
	}
	defer conn.Close(ctx)
	h := &history{jobs: map[string]jobRow{}, events: map[string][]eventRow{}, boxes: map[string]string{}, keys: map[string]string{}}
	jobs, err := rows[jobRow](ctx, conn, `SELECT id, coalesce(sandbox_id, '') AS sandbox_id, kind, state, seq, parallel, attempt,
		coalesce(error->>'code', '') AS code, queued_at, finished_at FROM jobs`)
	if err != nil {
		return nil, err
	}
	for _, j := range jobs {
		h.jobs[j.ID] = j
	}
	events, err := rows[eventRow](ctx, conn, `SELECT id, at, job_id, substr(event, 5) AS event, actor, coalesce(reason, '') AS reason,
		coalesce((detail->>'attempt')::int, 0) AS attempt, coalesce(detail->>'node', '') AS node
		FROM events WHERE event LIKE 'job.%' AND job_id IS NOT NULL ORDER BY id`)
	if err != nil {
		return nil, err
	}
	for _, e := range events {
		h.events[e.JobID] = append(h.events[e.JobID], e)
	}
	if h.boxes, err = pairs(ctx, conn, `SELECT id AS name, state AS value FROM sandboxes`); err != nil {
		return nil, err
	}
	if h.calls, err = pairs(ctx, conn, `SELECT job_id AS name, state AS value FROM deliveries`); err != nil {
		return nil, err
	}
	if h.keys, err = pairs(ctx, conn, `SELECT key AS name, job_id AS value FROM idempotency_keys`); err != nil {
		return nil, err
	}
	if err := readSchedules(ctx, conn, h); err != nil {
		return nil, err
	}
	if err := readMortals(ctx, conn, h); err != nil {
		return nil, err
	}
	return h, readBuilds(ctx, conn, h)
}

func rows[T any](ctx context.Context, conn *pgx.Conn, query string) ([]T, error) {
	found, err := conn.Query(ctx, query)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(found, pgx.RowToStructByName[T])
}

func pairs(ctx context.Context, conn *pgx.Conn, query string) (map[string]string, error) {
	list, err := rows[struct{ Name, Value string }](ctx, conn, query)
	all := map[string]string{}
	for _, one := range list {
		all[one.Name] = one.Value
	}
	return all, err
}

// tell is the history of one job, as the checks show it.
func (h *history) tell(id string) string {
	j := h.jobs[id]
	var s strings.Builder
	fmt.Fprintf(&s, "%s %s of %s (seq %d, parallel %v) is %s at attempt %d %s", j.Kind, id, j.SandboxID, j.Seq, j.Parallel, j.State, j.Attempt, j.Code)
	for _, e := range h.events[id] {
		fmt.Fprintf(&s, "\n      %s %s by %s, attempt %d on %s: %s", e.At.UTC().Format("15:04:05.000"), e.Event, e.Actor, e.Attempt, e.Node, e.Reason)
	}
	return s.String()
}

// unfinished are the jobs that have not ended.
func (h *history) unfinished() []string {
	var ids []string
	for id, j := range h.jobs {
		if !terminal(j.State) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// first returns the job's first event of that kind.
func (h *history) first(id string, match func(string) bool) (eventRow, bool) {
	for _, e := range h.events[id] {
		if match(e.Event) {
			return e, true
		}
	}
	return eventRow{}, false
}

func isRunning(event string) bool { return event == "running" }

func isEnd(event string) bool {
	switch event {
	case "succeeded", "failed", "timed_out", "cancelled", "lost", "expired":
		return true
	}
	return false
}

// takenAway says whether the sweep has ended an attempt whose worker was silent.
func (h *history) takenAway(id string, attempt int) bool {
	return slices.ContainsFunc(h.events[id], func(e eventRow) bool {
		return e.Event == "requeued" && e.Attempt == attempt && e.Reason == "its worker stopped sending heartbeats"
	})
}

// counted is how many of a job's events match.
func (h *history) counted(id string, match func(string) bool) int {
	n := 0
	for _, e := range h.events[id] {
		if match(e.Event) {
			n++
		}
	}
	return n
}
