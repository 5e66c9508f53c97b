package web

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"slices"
	"time"

	"sandyard/models"
)

// maxUsageRange bounds one question.
const maxUsageRange = 366 * 24 * time.Hour

// Usage is what was used in one group.
type Usage struct {
	Start            string            `json:"start,omitempty" doc:"Of the hour or day, where these tell groups apart"`
	Tenant           string            `json:"tenant,omitempty"`
	User             *string           `json:"user,omitempty" doc:"The sandbox's label user; without one, who asked for the sandbox or the job: the id of an API key, scheduler, schedule:<id>"`
	Template         *string           `json:"template,omitempty" doc:"Empty = made from an image"`
	Provider         *string           `json:"provider,omitempty"`
	RunningSeconds   float64           `json:"running_seconds" doc:"Of sandboxes, from the end of their creates or resumes on; building images counts as jobs only"`
	PausedSeconds    float64           `json:"paused_seconds"`
	CPUSeconds       float64           `json:"cpu_seconds" doc:"Cores that were allocated to sandboxes while they ran, times that time"`
	MemoryGiBSeconds float64           `json:"memory_gib_seconds" doc:"Memory that was allocated to sandboxes while they ran or were paused, times that time"`
	CPUUsedSeconds   float64           `json:"cpu_used_seconds" doc:"Processor time that the sandboxes' processes have really taken, also those in the background; read every half minute and at the end, and counted in the hour of the reading"`
	MemoryUsed       float64           `json:"memory_used_gib_seconds" doc:"Memory that sandboxes have really held, page cache excepted, times that time; read as often"`
	MemoryPeakMiB    float64           `json:"memory_peak_mib" doc:"The most memory that any one of the sandboxes has held, page cache included where the kernel keeps no other peak"`
	SentBytes        int64             `json:"sent_bytes" doc:"To the outside"`
	ReceivedBytes    int64             `json:"received_bytes"`
	ExecSeconds      float64           `json:"exec_seconds" doc:"Of commands and cells of code, measured inside their sandboxes; background ones excepted"`
	JobCount         int64             `json:"job_count" doc:"Jobs that have ended"`
	Jobs             []models.JobUsage `json:"jobs" doc:"The same by kind and outcome"`
}

// UsagePage is one page of usage.
type UsagePage struct {
	From       time.Time `json:"from"`
	To         time.Time `json:"to"`
	Usage      []Usage   `json:"usage" doc:"Sorted by start, tenant, user, template and provider"`
	NextCursor string    `json:"next_cursor,omitempty" doc:"Absent on the last page"`
}

type usageInput struct {
	From       string   `query:"from" format:"date-time" maxLength:"64" doc:"Begins with the hour (UTC) that this lies in; default 30 days before to"`
	To         string   `query:"to" format:"date-time" maxLength:"64" doc:"Ends before the hour that begins here or next; default now"`
	GroupBy    []string `query:"group_by" enum:"hour,day,tenant,user,template,provider" doc:"What tells groups apart, such as day,user; default nothing, so that the answer is the sum"`
	AllTenants bool     `query:"all_tenants" doc:"Of every tenant; takes a key with the scope operator"`
	Cursor     string   `query:"cursor" maxLength:"4096" doc:"The next_cursor of the page before"`
	Limit      int      `query:"limit" minimum:"1" maximum:"1000" default:"1000"`
}

func (s *Server) addUsage() {
	op := operation("get-usage", http.MethodGet, "/v1/usage", tagServer, "Tell what was used, by hour, day, user, template or provider")
	op.Description = "What has ended is counted with its end, and sandboxes that still run up to now. Usage is kept for ever, also when jobs " +
		"and events are forgotten. Hours and days are those of UTC."
	register(s, op, s.usage)
}

func (s *Server) usage(ctx context.Context, in *usageInput) (*output[UsagePage], error) {
	q, err := in.query(ctx, s.store.Now(ctx))
	if err != nil {
		return nil, err
	}
	rows, err := s.store.Usage(ctx, q)
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
	return &output[UsagePage]{page}, nil
}

// query reads the question; now is the database's.
func (in *usageInput) query(ctx context.Context, now time.Time) (models.UsageQuery, error) {
	r := requestOf(ctx)
	q := models.UsageQuery{Tenant: r.tenant, By: in.GroupBy, Limit: in.Limit + 1}
	if in.AllTenants {
		if !slices.Contains(r.scopes, models.ScopeOperator) {
			return q, forbidden(models.ScopeOperator)
		}
		q.Tenant = ""
	}
	var err error
	if q.To, err = usageMoment("query.to", in.To, now); err != nil {
		return q, err
	}
	if whole := q.To.Truncate(time.Hour); whole.Before(q.To) {
		q.To = whole.Add(time.Hour)
	}
	if q.From, err = usageMoment("query.from", in.From, q.To.Add(-30*24*time.Hour)); err != nil {
		return q, err
	}
	q.From = q.From.Truncate(time.Hour)
	if d := q.To.Sub(q.From); d <= 0 || d > maxUsageRange {
		return q, invalidAt("query.from", "must be before to, and at most 366 days; ask for longer times in parts")
	}
	if in.Cursor != "" {
		key, err := base64.RawURLEncoding.DecodeString(in.Cursor)
		if err != nil || json.Unmarshal(key, &q.After) != nil || len(q.After) != len(models.Usage{}.Key()) || !storable([]byte(joined(q.After))) {
			return q, invalidAt("query.cursor", "must be a next_cursor")
		}
	}
	return q, nil
}

// usageMoment reads a moment that usage can lie in; none stands for a missing one.
func usageMoment(location, text string, none time.Time) (time.Time, error) {
	if text == "" {
		return none, nil
	}
	at, err := time.Parse(time.RFC3339, text)
	if at = at.UTC(); err != nil || at.Year() < 2000 || at.Year() > 9998 {
		return at, invalidAt(location, "must be a time of RFC 3339 in a year between 2000 and 9998")
	}
	return at, nil
}

func joined(list []string) (all string) {
	for _, s := range list {
		all += s
	}
	return all
}

func usageDoc(u models.Usage, by []string) (Usage, error) {
	doc := Usage{
		Start: u.Start, Tenant: u.Tenant, RunningSeconds: u.RunningSeconds, PausedSeconds: u.PausedSeconds, CPUSeconds: u.CPUSeconds,
		MemoryGiBSeconds: u.MemoryGiBSeconds, CPUUsedSeconds: u.CPUUsedSeconds, MemoryUsed: u.MemoryUsed, MemoryPeakMiB: u.MemoryPeakMB,
		SentBytes: u.Sent, ReceivedBytes: u.Received,
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
