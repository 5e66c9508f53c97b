package v1

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"sandyard/egress"
	"sandyard/jobs"
	"sandyard/jobs/kind"
	"sandyard/models"
	"sandyard/providers"
	"sandyard/web/middleware"
	"sandyard/web/problem"
	"sandyard/web/rest"
)

// Sandbox is the document of a sandbox. Its environment stays inside.
type Sandbox struct {
	ID                   string            `json:"id"`
	Key                  *string           `json:"key,omitempty" doc:"Your own name for it"`
	State                string            `json:"state" enum:"creating,running,paused,deleting,deleted,failed,lost"`
	Desired              string            `json:"desired" enum:"running,paused,deleted" doc:"The state that pending jobs lead to, else the current one. Once deleted, it stays deleted"`
	Observed             *string           `json:"observed,omitempty" doc:"The state that its provider last reported"`
	ObservedAt           *time.Time        `json:"observed_at,omitempty"`
	Provider             string            `json:"provider"`
	Template             *string           `json:"template,omitempty"`
	Image                string            `json:"image"`
	Labels               map[string]string `json:"labels"`
	Node                 *string           `json:"node,omitempty" doc:"The worker that holds it"`
	Resources            Resources         `json:"resources"`
	Network              bool              `json:"network" doc:"Whether egress allows any connection"`
	Egress               *egress.Policy    `json:"egress,omitempty" doc:"Destinations that it may connect to; absent = none"`
	Ports                []int             `json:"ports,omitempty" doc:"Ports that its template's programs listen on"`
	MCPURL               string            `json:"mcp_url,omitempty" doc:"URL of its template's MCP server, with a token for that port only. Everyone with the URL has access until DELETE …/ports/{port} revokes it or the sandbox ends; then it is absent"`
	VSCodeURL            string            `json:"vscode_url,omitempty" doc:"URL of its template's editor, with a token for that port only. Everyone with the URL has access until DELETE …/ports/{port} revokes it or the sandbox ends; then it is absent"`
	Runtime              string            `json:"runtime,omitempty" doc:"OCI runtime; absent = the server's default"`
	TimeoutSeconds       float64           `json:"timeout_seconds"`
	OnTimeout            string            `json:"on_timeout" enum:"delete,pause"`
	OnLost               string            `json:"on_lost,omitempty" enum:"recreate"`
	Replaces             *string           `json:"replaces,omitempty" doc:"The lost sandbox that this one replaces"`
	ReplacedBy           *string           `json:"replaced_by,omitempty" doc:"The sandbox that replaces this one"`
	AutoResume           bool              `json:"auto_resume" doc:"Traffic and jobs resume it while it is paused"`
	IdleTimeoutSeconds   float64           `json:"idle_timeout_seconds"`
	MaxLifetimeSeconds   float64           `json:"max_lifetime_seconds,omitempty"`
	PausedTimeoutSeconds float64           `json:"paused_timeout_seconds,omitempty"`
	DiesAt               *time.Time        `json:"dies_at,omitempty" doc:"When its max_lifetime_seconds end"`
	PausedAt             *time.Time        `json:"paused_at,omitempty"`
	ExpiresAt            *time.Time        `json:"expires_at,omitempty" doc:"When its timeout ends; absent while it is paused, because a resume restarts the timeout"`
	LastActiveAt         time.Time         `json:"last_active_at"`
	CreatedAt            time.Time         `json:"created_at"`
	StartedAt            *time.Time        `json:"started_at,omitempty"`
	EndedAt              *time.Time        `json:"ended_at,omitempty"`
	EndReason            *string           `json:"end_reason,omitempty"`
	EndActor             *string           `json:"end_actor,omitempty" doc:"The API key or server component that ended it"`
}

// Resources are a sandbox's limits, with defaults filled in.
type Resources struct {
	CPUs     float64 `json:"cpus" doc:"Cores"`
	MemoryMB int64   `json:"memory_mb" doc:"Memory and swap, including the work directory"`
	DiskMB   int64   `json:"disk_mb" doc:"Size of the work directory"`
	Pids     int64   `json:"pids" doc:"Processes and threads"`
}

// resourcesOf is what a sandbox has: what it asked for, else the defaults.
func resourcesOf(asked providers.Resources) Resources {
	r := asked.Or(providers.StandardResources())
	return Resources{CPUs: r.CPUs, MemoryMB: r.MemoryMB, DiskMB: r.DiskMB, Pids: r.Pids}
}

func seconds(milliseconds int64) float64 { return float64(milliseconds) / 1000 }

// sandboxes has the routes of sandboxes.
type sandboxes struct{ *core }

func (s *core) sandboxDoc(b models.Sandbox) Sandbox {
	spec, _ := kind.SpecOf(b) // what it cannot read stays at its default
	doc := Sandbox{
		ID: b.ID, Key: b.Key, State: string(b.State), Desired: b.Desired, Observed: b.Observed, ObservedAt: b.ObservedAt,
		Provider: b.Provider, Template: b.Template, Image: b.Image, Labels: b.Labels, Node: b.NodeID,
		Resources: resourcesOf(spec.Resources), Network: len(b.Egress) > 0, Egress: kind.EgressOf(b),
		Runtime: spec.Runtime, Ports: spec.Ports, OnTimeout: b.OnTimeout, OnLost: b.OnLost, Replaces: b.Replaces,
		ReplacedBy: b.ReplacedBy, AutoResume: b.AutoResume, TimeoutSeconds: seconds(b.TimeoutMS),
		IdleTimeoutSeconds: seconds(b.IdleTimeoutMS), MaxLifetimeSeconds: seconds(b.MaxLifetimeMS),
		PausedTimeoutSeconds: seconds(b.PausedTimeoutMS), DiesAt: b.DiesAt(),
		ExpiresAt: &b.ExpiresAt, LastActiveAt: b.LastActiveAt, CreatedAt: b.CreatedAt, StartedAt: b.StartedAt,
		EndedAt: b.EndedAt, EndReason: b.EndReason, EndActor: b.EndActor,
	}
	if b.State == models.SandboxPaused {
		doc.PausedAt, doc.ExpiresAt = b.PausedAt, nil
	}
	if doc.Labels == nil {
		doc.Labels = map[string]string{}
	}
	if !b.Ended() {
		if !b.MCPRevoked {
			doc.MCPURL = s.toolURL(b.ID, models.MCP, spec.MCPPort)
		}
		if !b.VSCodeRevoked {
			doc.VSCodeURL = s.toolURL(b.ID, models.VSCode, spec.VSCodePort)
		}
	}
	return doc
}

// CreateBody is the body of a create.
type CreateBody struct {
	jobs.CreateSandbox
	Submit
}

// TimeoutBody is the body of a change of timeout.
type TimeoutBody struct {
	kind.SetTimeout
	Submit
}

type createInput struct {
	SubmitParams
	Body CreateBody
}

type sandboxInput struct {
	ID string `path:"id"`
}

// changeInput is a write on one sandbox that has no arguments of its own.
type changeInput struct {
	SubmitParams
	ID   string `path:"id"`
	Body *Submit
}

func (in *changeInput) fields() Submit {
	if in.Body == nil {
		return Submit{}
	}
	return *in.Body
}

type deleteInput struct {
	WaitParam
	ID    string `path:"id"`
	Force bool   `query:"force" doc:"Delete immediately: queued jobs are cancelled and running jobs are stopped. Otherwise the delete waits for the sandbox's earlier jobs"`
}

type listSandboxesInput struct {
	State    []string `query:"state,explode" doc:"Default live: creating, running, paused and deleting. Or ended (deleted, failed, lost), all, or any of these states; repeat the parameter or separate states with commas" example:"[\"running\",\"paused\"]"`
	Provider string   `query:"provider"`
	Key      string   `query:"key"`
	Label    []string `query:"label,explode" doc:"name=value or name:value; several must all match"`
	rest.PageParams
}

// SandboxPage is one page of a list of sandboxes.
type SandboxPage struct {
	Sandboxes  []Sandbox `json:"sandboxes"`
	NextCursor string    `json:"next_cursor,omitempty" doc:"Absent on the last page"`
}

func (s *sandboxes) addSandboxes() {
	write(s.core, rest.Operation("create-sandbox", "POST /v1/sandboxes", tagSandboxes,
		"Create a sandbox"), s.createSandbox)
	rest.Route(s.api, "list-sandboxes", "GET /v1/sandboxes", tagSandboxes,
		"List sandboxes, newest first; only live ones unless state is set", s.listSandboxes)
	rest.Route(s.api, "get-sandbox", "GET /v1/sandboxes/{id}", tagSandboxes, "Get a sandbox", s.getSandbox)
	write(s.core, rest.Operation("delete-sandbox", "DELETE /v1/sandboxes/{id}", tagSandboxes,
		"Delete a sandbox, in any state"), s.deleteSandbox)
	write(s.core, rest.Operation("pause-sandbox", "POST /v1/sandboxes/{id}/pause", tagSandboxes,
		"Pause a sandbox with its memory"), s.change(func() kind.Args { return &kind.Pause{} }))
	write(s.core, rest.Operation("resume-sandbox", "POST /v1/sandboxes/{id}/resume", tagSandboxes,
		"Resume a paused sandbox"), s.change(func() kind.Args { return &kind.Resume{} }))
	work(s.core, rest.Operation("set-timeout", "POST /v1/sandboxes/{id}/timeout", tagSandboxes,
		"Set a sandbox's timeout"), func(b *TimeoutBody) (kind.Args, Submit) { return &b.SetTimeout, b.Submit })
	write(s.core, rest.Operation("keep-alive", "POST /v1/sandboxes/{id}/keepalive", tagSandboxes,
		"Restart a sandbox's timeout; this also counts as activity"), s.keepAlive)
	s.addEgress()
}

func (s *sandboxes) createSandbox(ctx context.Context, in *createInput) (*acceptedOutput, error) {
	return s.submit(ctx, in.SubmitParams, in.Body.Submit, func(o jobs.Options) (models.Submitted, error) {
		return s.Jobs.Create(ctx, in.Body.CreateSandbox, o)
	})
}

func (s *sandboxes) getSandbox(ctx context.Context, in *sandboxInput) (*rest.Output[Sandbox], error) {
	box, err := s.Store.Sandbox(ctx, middleware.RequestOf(ctx).Tenant, in.ID)
	if err != nil {
		return nil, err
	}
	return rest.OK(s.sandboxDoc(box)), nil
}

func (s *sandboxes) deleteSandbox(ctx context.Context, in *deleteInput) (*acceptedOutput, error) {
	return s.submit(ctx, SubmitParams{WaitParam: in.WaitParam}, Submit{}, func(o jobs.Options) (models.Submitted, error) {
		return s.Jobs.Delete(ctx, in.ID, in.Force, o)
	})
}

func (s *core) change(args func() kind.Args) func(context.Context, *changeInput) (*acceptedOutput, error) {
	return func(ctx context.Context, in *changeInput) (*acceptedOutput, error) {
		return s.submit(ctx, in.SubmitParams, in.fields(), func(o jobs.Options) (models.Submitted, error) {
			return s.Jobs.Submit(ctx, in.ID, args(), o)
		})
	}
}

func (s *sandboxes) keepAlive(ctx context.Context, in *changeInput) (*acceptedOutput, error) {
	return s.submit(ctx, in.SubmitParams, in.fields(), func(o jobs.Options) (models.Submitted, error) {
		return s.Jobs.KeepAlive(ctx, in.ID, o)
	})
}

func (s *sandboxes) listSandboxes(ctx context.Context, in *listSandboxesInput) (*rest.Output[SandboxPage], error) {
	labels, err := parseLabels(in.Label)
	if err != nil {
		return nil, err
	}
	states, err := sandboxStates(in.State)
	if err != nil {
		return nil, err
	}
	list, err := s.Store.Sandboxes(ctx, middleware.RequestOf(ctx).Tenant, models.SandboxFilter{
		States: states, Live: onlyLive(states), Provider: in.Provider, Key: in.Key, Labels: labels,
		Before: in.Cursor, Limit: in.Limit + 1,
	})
	if err != nil {
		return nil, err
	}
	page, next := rest.CutPage(list, min(in.Limit, fitting(list)), func(b models.Sandbox) string { return b.ID })
	return rest.OK(SandboxPage{rest.Docs(page, s.sandboxDoc), next}), nil
}

// fitting is how many of the sandboxes a page of less than 1 MiB holds, at least one: their labels and policies are
// long where their tenant makes them so.
func fitting(list []models.Sandbox) int {
	const most, others = 1 << 20, 2 << 10 // bytes of a page, and of the other fields of a sandbox
	size := 0
	for i, b := range list {
		size += others + len(b.Egress)
		for name, value := range b.Labels {
			size += len(name) + problem.WrittenSize(value) + len(`"":"",`)
		}
		if size > most {
			return max(i, 1)
		}
	}
	return len(list)
}

func parseLabels(given []string) (map[string]string, error) {
	labels := map[string]string{}
	for _, pair := range given {
		i := strings.IndexAny(pair, "=:")
		if i < 1 {
			return nil, problem.Invalid("query.label", "must be name=value or name:value")
		}
		labels[pair[:i]] = pair[i+1:]
	}
	return labels, nil
}

func liveStates() []models.SandboxState {
	return []models.SandboxState{
		models.SandboxCreating,
		models.SandboxRunning,
		models.SandboxPaused,
		models.SandboxDeleting,
	}
}

// onlyLive says whether none of the states is one of ended sandboxes; no states are all.
func onlyLive(states []models.SandboxState) bool {
	return len(states) > 0 &&
		!slices.ContainsFunc(states, func(s models.SandboxState) bool { return !slices.Contains(liveStates(), s) })
}

// sandboxStates reads the parameter state of a list of sandboxes: states, or words for several of them. Without it the
// list holds the live ones.
func sandboxStates(given []string) ([]models.SandboxState, error) {
	live, ended := liveStates(), []models.SandboxState{models.SandboxDeleted, models.SandboxFailed, models.SandboxLost}
	if len(given) == 0 {
		return live, nil
	}
	var states []models.SandboxState
	for _, word := range strings.Split(strings.Join(given, ","), ",") {
		switch state := models.SandboxState(word); {
		case word == "all":
			return nil, nil
		case word == "live":
			states = append(states, live...)
		case word == "ended":
			states = append(states, ended...)
		case slices.Contains(live, state), slices.Contains(ended, state):
			states = append(states, state)
		default:
			return nil, problem.Invalid(
				"query.state",
				fmt.Sprintf("has %q; use all, live, ended or any of creating, running, paused, deleting, deleted, "+
					"failed, lost, with commas between them", word),
			)
		}
	}
	return states, nil
}
