package v1

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"sandyard/jobs/kind"
	"sandyard/models"
	"sandyard/web/middleware"
	"sandyard/web/problem"
	"sandyard/web/rest"
)

// PortBody is the body of a grant of a port.
type PortBody struct {
	kind.Port
	Submit
}

// PortGrant lets traffic from outside to one port of a sandbox.
type PortGrant struct {
	ID        string     `json:"id"`
	Port      uint16     `json:"port"`
	URL       string     `json:"url,omitempty" doc:"Contains the token, unless the port is public"`
	Token     string     `json:"token,omitempty" doc:"Absent if the port is public"`
	Public    bool       `json:"public"`
	CreatedAt time.Time  `json:"created_at"`
	ExpiresAt *time.Time `json:"expires_at,omitempty" doc:"Absent if the grant ends with the sandbox, like those of mcp_url and vscode_url"`
}

// PortList is the grants of a sandbox that hold.
type PortList struct {
	Ports []PortGrant `json:"ports"`
}

// Revoked names the grants that hold no more.
type Revoked struct {
	Revoked []string `json:"revoked" doc:"Ids of the revoked grants; their streams end within seconds"`
}

type portInput struct {
	ID   string `path:"id"`
	Port int    `path:"port" minimum:"1" maximum:"65535"`
}

// grantInput does not embed portInput: huma fills no embedded struct that is not exported.
type grantInput struct {
	ID    string `path:"id"`
	Port  int    `path:"port" minimum:"1" maximum:"65535"`
	Grant string `path:"grant"`
}

// ports has the routes of ports of sandboxes.
type ports struct{ *core }

func (s *ports) addPorts() {
	open := rest.Operation("open-port", "POST /v1/sandboxes/{id}/ports", tagWork, "Expose a port")
	open.Description = "The job's result holds the URL at which clients reach the port by HTTP and WebSocket. The URL " +
		"is " +
		"private unless `public` is set. Clients send the token in the URL (a browser exchanges it for a cookie), in the cookie " +
		"`sandyard_token` or in the header `X-Sandyard-Token`. The port need not be open yet."
	work(s.core, open, func(b *PortBody) (kind.Args, Submit) { return &b.Port, b.Submit })
	rest.Route(s.api, "list-ports", "GET /v1/sandboxes/{id}/ports", tagWork, "List the exposed ports", s.listPorts)
	rest.Route(s.api, "close-port", "DELETE /v1/sandboxes/{id}/ports/{port}", tagWork,
		"Revoke all grants of a port immediately",
		func(ctx context.Context, in *portInput) (*rest.Output[Revoked], error) { return s.revoke(ctx, *in, "") })
	rest.Route(s.api, "revoke-grant", "DELETE /v1/sandboxes/{id}/ports/{port}/{grant}", tagWork,
		"Revoke one grant of a port immediately",
		func(ctx context.Context, in *grantInput) (*rest.Output[Revoked], error) {
			return s.revoke(ctx, portInput{in.ID, in.Port}, in.Grant)
		})
}

func (s *ports) listPorts(ctx context.Context, in *sandboxInput) (*rest.Output[PortList], error) {
	tenant := middleware.RequestOf(ctx).Tenant
	box, err := s.Store.Sandbox(ctx, tenant, in.ID)
	if err != nil {
		return nil, err
	}
	if box.Ended() {
		return rest.OK(PortList{[]PortGrant{}}), nil
	}
	grants, err := s.Store.PortGrants(ctx, tenant, in.ID)
	if err != nil {
		return nil, err
	}
	return rest.OK(PortList{rest.Docs(grants, s.portDoc)}), nil
}

func (s *core) portDoc(g models.PortGrant) PortGrant {
	doc := PortGrant{ID: g.ID, Port: g.Port, Public: g.Public, CreatedAt: g.CreatedAt, ExpiresAt: g.ExpiresAt}
	doc.URL, doc.Token = s.opened(g.SandboxID, g.Port, g.ID, g.Public)
	return doc
}

// opened is where a port of a sandbox is reached, and by which token; each is empty where there is none.
func (s *core) opened(sandboxID string, port uint16, grant string, public bool) (url, token string) {
	if !public {
		token = s.Signer.Port(sandboxID, grant)
	}
	if !s.Address.IsZero() {
		url = s.Address.URL(sandboxID, port, token)
	}
	return url, token
}

// withToken completes the result of a job that has let traffic to a port: none holds a token where it is stored.
func (s *core) withToken(stored JobResult, sandboxID string) JobResult {
	var res kind.PortResult
	if json.Unmarshal(stored, &res) != nil || res.ID == "" {
		return stored
	}
	res.URL, res.Token = s.opened(sandboxID, res.Port, res.ID, res.Public)
	raw, err := json.Marshal(res)
	if err != nil {
		return stored
	}
	return raw
}

// revoke answers with what it has revoked. That a port has no grant any more is what was wanted; a grant that is named
// and unknown is a mistake.
func (s *ports) revoke(ctx context.Context, in portInput, grant string) (*rest.Output[Revoked], error) {
	tenant := middleware.RequestOf(ctx).Tenant
	if _, err := s.Store.Sandbox(ctx, tenant, in.ID); err != nil {
		return nil, err
	}
	gone, err := s.Store.RevokePort(ctx, tenant, in.ID, uint16(in.Port), grant)
	if err != nil {
		return nil, err
	}
	if len(gone) == 0 && grant != "" {
		return nil, problem.New(
			http.StatusNotFound,
			"grant_not_found",
			"this port has no such valid grant; GET …/ports lists the valid grants",
		)
	}
	out := Revoked{Revoked: []string{}}
	for _, g := range gone {
		out.Revoked = append(out.Revoked, g.ID)
	}
	return rest.OK(out), nil
}

// Port returns how the port is reached that a job has opened.
func (s *core) Port(job models.Job) (kind.PortResult, error) {
	var res kind.PortResult
	if err := json.Unmarshal(s.withToken(JobResult(job.Result), job.SandboxID), &res); err != nil {
		return res, fmt.Errorf("read the result of job %s: %w", job.ID, err)
	}
	return res, nil
}

// toolURL is where the port of a sandbox's tool is reached through the edge, with the token of its grant, also where
// the sandbox's other ports are public: it opens this port alone, until the grant is revoked or the sandbox ends. It is
// empty where there is no edge or no such tool.
func (s *core) toolURL(sandboxID, tool string, port int) string {
	if s.Address.IsZero() || port == 0 {
		return ""
	}
	url, _ := s.opened(sandboxID, uint16(port), models.ToolGrant(tool, sandboxID), false)
	return url
}
