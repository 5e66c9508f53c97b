package account

import (
	"context"
	"time"

	"sandyard/models"
	"sandyard/web/middleware"
	"sandyard/web/problem"
	"sandyard/web/rest"
)

// AuditEntry is the document of an entry of the audit log.
type AuditEntry struct {
	ID        int64     `json:"id" doc:"Grows with time"`
	At        time.Time `json:"at"`
	Tenant    string    `json:"tenant"`
	Actor     string    `json:"actor" doc:"The id of the API key or of the login that the request came with"`
	User      string    `json:"user,omitempty" doc:"The id of the user whose key or login it is"`
	Address   string    `json:"address" doc:"Where the request came from; a proxy in front is one address for all"`
	RequestID string    `json:"request_id" doc:"The X-Request-ID of the answer; the first one's where times is above 1"`
	Action    string    `json:"action" doc:"Method and route" example:"POST /v1/sandboxes"`
	Target    string    `json:"target,omitempty" doc:"The id or name of what the request is about"`
	JobID     string    `json:"job_id,omitempty" doc:"The job that it submitted"`
	Outcome   string    `json:"outcome" enum:"done,refused,failed,unknown" doc:"done: status below 400, and for jobs that they were accepted; refused: below 500; unknown: the server ended before its answer"`
	Status    int       `json:"status,omitempty" doc:"The status of the answer; 202 for every accepted job"`
	Code      string    `json:"code,omitempty" doc:"The code of the error"`
	Times     int       `json:"times" doc:"How many refused requests that are alike the entry stands for"`
}

// AuditPage is one page of the audit log.
type AuditPage struct {
	Entries    []AuditEntry `json:"entries"`
	NextCursor string       `json:"next_cursor,omitempty" doc:"Absent on the last page"`
}

type auditInput struct {
	From       string `query:"from" format:"date-time" maxLength:"64" doc:"Entries from then on"`
	To         string `query:"to" format:"date-time" maxLength:"64" doc:"Entries before then"`
	Actor      string `query:"actor" maxLength:"100" doc:"The id of an API key, a login or a user"`
	Action     string `query:"action" maxLength:"200" doc:"Method and route, such as POST /v1/keys"`
	Target     string `query:"target" maxLength:"200" doc:"The id or name of what requests were about, or the id of a job"`
	Outcome    string `query:"outcome" enum:"done,refused,failed,unknown"`
	AllTenants bool   `query:"all_tenants" doc:"Include every tenant; requires the scope operator"`
	Cursor     string `query:"cursor" pattern:"^[0-9]{1,18}$" patternDescription:"a next_cursor" doc:"The next_cursor of the previous page"`
	Limit      int    `query:"limit" minimum:"1" maximum:"100" default:"50"`
}

func (s *Server) addAudit() {
	op := rest.Operation("list-audit", "GET /v1/audit", Tag,
		"List who changed what and who logged in, newest first (scope admin)")
	op.Description = "Every request that may change something has an entry, also one that was refused to a valid key. " +
		"Entries hold neither bodies nor queries."
	rest.Register(s.api, op, s.listAudit)
}

func (s *Server) listAudit(ctx context.Context, in *auditInput) (*rest.Output[AuditPage], error) {
	f, err := in.filter(ctx)
	if err != nil {
		return nil, err
	}
	list, err := s.store.AuditLog(ctx, f)
	if err != nil {
		return nil, err
	}
	page, next := rest.CutPage(list, in.Limit, func(e models.AuditEntry) int64 { return e.ID })
	return rest.OK(AuditPage{rest.Docs(page, auditDoc), next}), nil
}

func (in *auditInput) filter(ctx context.Context) (f models.AuditFilter, err error) {
	r := middleware.RequestOf(ctx)
	f = models.AuditFilter{
		Tenant:  r.Tenant,
		Actor:   in.Actor,
		Action:  in.Action,
		Target:  in.Target,
		Outcome: in.Outcome,
		Limit:   in.Limit + 1,
	}
	if in.AllTenants {
		if !models.Opens(r.Scopes, models.ScopeOperator) {
			return f, problem.Forbidden(models.ScopeOperator)
		}
		f.Tenant = ""
	}
	if f.From, f.To, err = rest.ReadSpan(in.From, in.To); err != nil {
		return f, err
	}
	f.Before, err = rest.ReadNumber(in.Cursor)
	return f, err
}

func auditDoc(e models.AuditEntry) AuditEntry {
	doc := AuditEntry{
		ID: e.ID, At: e.At, Tenant: e.TenantID, Actor: e.Actor, User: e.UserID, Address: e.Client, RequestID: e.RequestID,
		Action: e.Action,
		Target: e.Target, JobID: e.JobID, Outcome: models.AuditUnknown, Code: e.Code, Times: e.Times,
	}
	if e.Status == nil {
		return doc
	}
	switch doc.Status = *e.Status; {
	case doc.Status < 400:
		doc.Outcome = models.AuditDone
	case doc.Status < 500:
		doc.Outcome = models.AuditRefused
	default:
		doc.Outcome = models.AuditFailed
	}
	return doc
}
