package v1

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"slices"
	"time"

	"sandyard/models"
	"sandyard/web/middleware"
	"sandyard/web/problem"
	"sandyard/web/rest"
)

// maxUsageRange bounds one question.
const maxUsageRange = 366 * 24 * time.Hour

// Usage is what was used in one group.
type Usage struct {
	Start            string            `json:"start,omitempty" doc:"Start of the hour or day, when grouped by hour or day"`
	Tenant           string            `json:"tenant,omitempty"`
	User             *string           `json:"user,omitempty" doc:"The sandbox's label user; without it, who submitted the sandbox or the job: the id of an API key, scheduler, schedule:<id>"`
	Template         *string           `json:"template,omitempty" doc:"Empty = created from an image"`
	Provider         *string           `json:"provider,omitempty"`
	RunningSeconds   float64           `json:"running_seconds" doc:"Running time of sandboxes, from the end of their create or resume; image builds count as jobs only"`
	PausedSeconds    float64           `json:"paused_seconds"`
	CPUSeconds       float64           `json:"cpu_seconds" doc:"Cores allocated to running sandboxes, times that time"`
	MemoryGiBSeconds float64           `json:"memory_gib_seconds" doc:"Memory allocated to running or paused sandboxes, times that time"`
	CPUUsedSeconds   float64           `json:"cpu_used_seconds" doc:"CPU time actually used by all processes of the sandboxes, including background ones. Sampled every 30 s and at the end, and counted in the hour of the sample"`
	MemoryUsed       float64           `json:"memory_used_gib_seconds" doc:"Memory actually used by sandboxes without the page cache, times that time; sampled as often"`
	MemoryPeakMiB    float64           `json:"memory_peak_mib" doc:"Peak memory of any single sandbox; includes the page cache if the kernel keeps no other peak"`
	SentBytes        int64             `json:"sent_bytes" doc:"Sent by sandboxes through egress"`
	ReceivedBytes    int64             `json:"received_bytes"`
	ExecSeconds      float64           `json:"exec_seconds" doc:"Run time of commands and code cells, measured inside their sandboxes; without background execs"`
	JobCount         int64             `json:"job_count" doc:"Jobs that have ended"`
	Jobs             []models.JobUsage `json:"jobs" doc:"The jobs by kind and outcome"`
}

// UsagePage is one page of usage.
type UsagePage struct {
	From       time.Time `json:"from"`
	To         time.Time `json:"to"`
	Usage      []Usage   `json:"usage" doc:"Sorted by start, tenant, user, template and provider"`
	NextCursor string    `json:"next_cursor,omitempty" doc:"Absent on the last page"`
}

type usageInput struct {
	From       string   `query:"from" format:"date-time" maxLength:"64" doc:"Start, rounded down to the hour (UTC); default 30 days before to"`
	To         string   `query:"to" format:"date-time" maxLength:"64" doc:"End (exclusive), rounded up to the hour; default now"`
	GroupBy    []string `query:"group_by" enum:"hour,day,tenant,user,template,provider" doc:"Dimensions to group by, such as day,user; default none, which returns the total"`
	AllTenants bool     `query:"all_tenants" doc:"Include every tenant; requires a key with the scope operator"`
	Cursor     string   `query:"cursor" maxLength:"4096" doc:"The next_cursor of the previous page"`
	Limit      int      `query:"limit" minimum:"1" maximum:"1000" default:"1000"`
}

// usages has the routes of what tenants have used.
type usages struct{ *core }

func (s *usages) addUsage() {
	op := rest.Operation("get-usage", "GET /v1/usage", tagServer, "Get usage by hour, day, user, template or provider")
	op.Description = "Ended jobs and sandboxes count with their end, running sandboxes up to now. Usage is kept " +
		"forever, even after jobs " +
		"and events are deleted. Hours and days are in UTC."
	rest.Register(s.api, op, s.usage)
}

func (s *usages) usage(ctx context.Context, in *usageInput) (*rest.Output[UsagePage], error) {
	q, err := in.query(ctx, s.Store.Now(ctx))
	if err != nil {
		return nil, err
	}
	rows, err := s.Store.Usage(ctx, q)
	if err != nil {
		return nil, err
	}
	page := UsagePage{From: q.From, To: q.To, Usage: []Usage{}}
	if len(rows) > in.Limit {
		rows = rows[:in.Limit]
		key, err := json.Marshal(rows[in.Limit-1].Key())
		if err != nil {
			return nil, err
		}
		page.NextCursor = base64.RawURLEncoding.EncodeToString(key)
	}
	for _, row := range rows {
		doc, err := usageDoc(row, in.GroupBy)
		if err != nil {
			return nil, err
		}
		page.Usage = append(page.Usage, doc)
	}
	return rest.OK(page), nil
}

// query reads the question; now is the database's.
func (in *usageInput) query(ctx context.Context, now time.Time) (models.UsageQuery, error) {
	r := middleware.RequestOf(ctx)
	q := models.UsageQuery{Tenant: r.Tenant, By: in.GroupBy, Limit: in.Limit + 1}
	if in.AllTenants {
		if !models.Opens(r.Scopes, models.ScopeOperator) {
			return q, problem.Forbidden(models.ScopeOperator)
		}
		q.Tenant = ""
	}
	var err error
	if q.To, err = rest.ReadMoment("query.to", in.To, now); err != nil {
		return q, err
	}
	if whole := q.To.Truncate(time.Hour); whole.Before(q.To) {
		q.To = whole.Add(time.Hour)
	}
	if q.From, err = rest.ReadMoment("query.from", in.From, q.To.Add(-30*24*time.Hour)); err != nil {
		return q, err
	}
	q.From = q.From.Truncate(time.Hour)
	if d := q.To.Sub(q.From); d <= 0 || d > maxUsageRange {
		return q, problem.Invalid("query.from", "must be before to, by at most 366 days; split longer ranges")
	}
	if in.Cursor != "" {
		key, err := base64.RawURLEncoding.DecodeString(in.Cursor)
		if err != nil || json.Unmarshal(key, &q.After) != nil || len(q.After) != len(models.Usage{}.Key()) ||
			!middleware.Storable([]byte(joined(q.After))) {
			return q, problem.Invalid("query.cursor", "must be the next_cursor of an earlier page")
		}
	}
	return q, nil
}

func joined(list []string) (all string) {
	for _, s := range list {
		all += s
	}
	return all
}

func usageDoc(u models.Usage, by []string) (Usage, error) {
	doc := Usage{
		Start: u.Start, Tenant: u.Tenant, RunningSeconds: u.RunningSeconds, PausedSeconds: u.PausedSeconds,
		CPUSeconds:       u.CPUSeconds,
		MemoryGiBSeconds: u.MemoryGiBSeconds, CPUUsedSeconds: u.CPUUsedSeconds, MemoryUsed: u.MemoryUsed,
		MemoryPeakMiB: u.MemoryPeakMB,
		SentBytes:     u.Sent, ReceivedBytes: u.Received,
	}
	for name, field := range map[string]struct {
		to   **string
		from string
	}{"user": {&doc.User, u.User}, "template": {&doc.Template, u.Template}, "provider": {&doc.Provider, u.Provider}} {
		if slices.Contains(by, name) {
			*field.to = &field.from
		}
	}
	if err := json.Unmarshal(u.Jobs, &doc.Jobs); err != nil {
		return doc, err
	}
	for _, j := range doc.Jobs {
		doc.JobCount += j.Count
		doc.ExecSeconds += j.ExecSeconds
	}
	return doc, nil
}
