package account

import (
	"context"
	"time"

	"sandyard/models"
	"sandyard/web/middleware"
	"sandyard/web/problem"
	"sandyard/web/rest"
)

// SecurityEvent is the document of what has happened in one minute.
type SecurityEvent struct {
	ID        int64     `json:"id" doc:"Grows with time"`
	Kind      string    `json:"kind" enum:"login_failed,login_blocked,key_refused,path_refused,egress_denied,limit_reached,out_of_memory,out_of_disk,sandbox_failing"`
	Minute    time.Time `json:"minute" doc:"The minute in which it happened"`
	Times     int64     `json:"times" doc:"How often in this minute"`
	LastAt    time.Time `json:"last_at"`
	Tenant    string    `json:"tenant,omitempty" doc:"Absent for callers whom nobody knows"`
	Address   string    `json:"address,omitempty" doc:"Of the last time, like all that follows"`
	Actor     string    `json:"actor,omitempty" doc:"The id of an API key, a login or a user"`
	SandboxID string    `json:"sandbox_id,omitempty"`
	Detail    string    `json:"detail,omitempty" doc:"The limit that was reached, or the kind or state of the job"`
}

// SecurityEventPage is one page of security events.
type SecurityEventPage struct {
	Events     []SecurityEvent `json:"events"`
	NextCursor string          `json:"next_cursor,omitempty" doc:"Absent on the last page"`
}

type securityInput struct {
	Kind       string `query:"kind" enum:"login_failed,login_blocked,key_refused,path_refused,egress_denied,limit_reached,out_of_memory,out_of_disk,sandbox_failing"`
	From       string `query:"from" format:"date-time" maxLength:"64" doc:"Minutes from then on"`
	To         string `query:"to" format:"date-time" maxLength:"64" doc:"Minutes before then"`
	AllTenants bool   `query:"all_tenants" doc:"Include every tenant, and callers whom nobody knows; requires the scope operator"`
	Cursor     string `query:"cursor" pattern:"^[0-9]{1,18}$" patternDescription:"a next_cursor" doc:"The next_cursor of the previous page"`
	Limit      int    `query:"limit" minimum:"1" maximum:"100" default:"50"`
}

func (s *Server) addSecurityEvents() {
	rest.Route(s.api, "list-security-events", "GET /v1/security-events", Tag,
		"List what may be an attack, by kind and minute, newest first (scope admin)", s.listSecurityEvents)
}

func (s *Server) listSecurityEvents(ctx context.Context, in *securityInput) (*rest.Output[SecurityEventPage], error) {
	r := middleware.RequestOf(ctx)
	f := models.SecurityFilter{Tenant: r.Tenant, All: in.AllTenants, Kind: in.Kind, Limit: in.Limit + 1}
	if in.AllTenants && !models.Opens(r.Scopes, models.ScopeOperator) {
		return nil, problem.Forbidden(models.ScopeOperator)
	}
	var err error
	if f.From, f.To, err = rest.ReadSpan(in.From, in.To); err != nil {
		return nil, err
	}
	if f.Before, err = rest.ReadNumber(in.Cursor); err != nil {
		return nil, err
	}
	list, err := s.store.SecurityEvents(ctx, f)
	if err != nil {
		return nil, err
	}
	page, next := rest.CutPage(list, in.Limit, func(e models.SecurityEvent) int64 { return e.ID })
	docs := rest.Docs(page, func(e models.SecurityEvent) SecurityEvent {
		return SecurityEvent{e.ID, e.Kind, e.Minute, e.Times, e.LastAt, e.TenantID, e.Client, e.Actor, e.SandboxID, e.Detail}
	})
	return rest.OK(SecurityEventPage{docs, next}), nil
}
