package mcp

import (
	"context"
	"fmt"
	"strings"
	"time"

	"sandyard/jobs"
	"sandyard/jobs/kind"
	"sandyard/models"
	"sandyard/web/middleware"
)

type sandboxCreate struct {
	Template string            `json:"template,omitempty" jsonschema:"Name of a template; default the server's"`
	Image    string            `json:"image,omitempty" jsonschema:"A container image that the operator allows, in place of a template"`
	Key      string            `json:"key,omitempty" jsonschema:"Your name for it: while a sandbox with this key lives, it is returned"`
	Labels   map[string]string `json:"labels,omitempty" jsonschema:"Labels"`
	Env      map[string]string `json:"env,omitempty" jsonschema:"Environment variables of every command in it"`
	CPUs     float64           `json:"cpus,omitempty" jsonschema:"Cores; default 1"`
	MemoryMB int64             `json:"memory_mb,omitempty" jsonschema:"Memory with its files; default 512"`
	Timeout  float64           `json:"timeout_seconds,omitempty" jsonschema:"Timeout: seconds after its start; default 3600"`
	Network  bool              `json:"network,omitempty" jsonschema:"It may connect to public addresses"`
}

// sandboxTools are the tools of sandboxes, their templates and limits.
type sandboxTools struct{ *Server }

func (s *sandboxTools) sandboxCreate(ctx context.Context, c *call, a *sandboxCreate) (*answer, error) {
	o := middleware.RequestOf(ctx).Options()
	o.IdempotencyKey, o.Request = c.session.callKey(c.id), c.content
	done, err := s.c.Jobs.Create(ctx, jobs.CreateSandbox{
		Template: a.Template, Image: a.Image, Key: a.Key, Labels: a.Labels, Env: a.Env, CPUs: a.CPUs, MemoryMB: a.MemoryMB,
		TimeoutSeconds: a.Timeout, Network: a.Network, AutoResume: true,
	}, o)
	if err != nil {
		return nil, err
	}
	job, box, err := s.follow(ctx, c, middleware.Answer(done).ID, patience)
	if err != nil {
		return nil, err
	}
	if job.State.Terminal() && job.State != models.Succeeded {
		return nil, s.failure(job, box)
	}
	doc := describe(box)
	text := fmt.Sprintf("Sandbox %s is %s.", doc.ID, doc.State)
	if done.Existing {
		text = fmt.Sprintf("Sandbox %s has this key already and is %s.", doc.ID, doc.State)
	}
	return &answer{Text: text, Fields: doc}, nil
}

type sandboxList struct {
	Limit int `json:"limit,omitempty" jsonschema:"Most sandboxes to return, at most 100; default 20"`
}

func (s *sandboxTools) sandboxList(ctx context.Context, _ *call, a *sandboxList) (*answer, error) {
	if a.Limit < 0 || a.Limit > 100 {
		return nil, invalid("limit", "must be between 1 and 100")
	}
	if a.Limit == 0 {
		a.Limit = 20
	}
	docs, err := s.live(ctx, a.Limit)
	if err != nil {
		return nil, err
	}
	var b strings.Builder
	for _, doc := range docs {
		fmt.Fprintf(
			&b,
			"%s %s template %s key %q, ends at %s\n",
			doc.ID,
			doc.State,
			doc.Template,
			doc.Key,
			doc.ExpiresAt.Format(time.RFC3339),
		)
	}
	if len(docs) == 0 {
		b.WriteString("There is no live sandbox.")
	}
	return &answer{Text: b.String(), Fields: map[string]any{"sandboxes": docs}}, nil
}

// live describes the newest sandboxes that have not ended.
func (s *Server) live(ctx context.Context, most int) ([]boxDoc, error) {
	list, err := s.c.Store.Sandboxes(ctx, middleware.RequestOf(ctx).Tenant, models.SandboxFilter{Live: true, Limit: most})
	docs := []boxDoc{}
	for _, box := range list {
		docs = append(docs, describe(box))
	}
	return docs, err
}

// changed carries out a job that changes the state or the time of a sandbox.
func (s *sandboxTools) changed(ctx context.Context, c *call, sandboxID string, args kind.Args) (*answer, error) {
	box, err := s.sandbox(ctx, c, sandboxID)
	if err != nil {
		return nil, err
	}
	job, box, err := s.carry(ctx, c, box.ID, args, patience)
	if err != nil {
		return nil, err
	}
	if job.State != models.Succeeded {
		return nil, s.failure(job, box)
	}
	doc := describe(box)
	return &answer{
		Text:   fmt.Sprintf("Sandbox %s is %s and ends at %s.", doc.ID, doc.State, doc.ExpiresAt.Format(time.RFC3339)),
		Fields: doc,
	}, nil
}

func (s *sandboxTools) sandboxPause(ctx context.Context, c *call, a *sandboxOnly) (*answer, error) {
	return s.changed(ctx, c, a.Sandbox, &kind.Pause{})
}

func (s *sandboxTools) sandboxResume(ctx context.Context, c *call, a *sandboxOnly) (*answer, error) {
	return s.changed(ctx, c, a.Sandbox, &kind.Resume{})
}

type sandboxExtend struct {
	Seconds float64 `json:"seconds" jsonschema:"From now on, at most 86400; an end that is later stays"`
	in
}

func (s *sandboxTools) sandboxExtend(ctx context.Context, c *call, a *sandboxExtend) (*answer, error) {
	return s.changed(ctx, c, a.Sandbox, &kind.SetTimeout{TimeoutSeconds: a.Seconds, OnlyLater: true})
}

type sandboxDelete struct {
	Sandbox string `json:"sandbox" jsonschema:"The id of the sandbox, also for the session's own"`
}

func (s *sandboxTools) sandboxDelete(ctx context.Context, _ *call, a *sandboxDelete) (*answer, error) {
	if err := s.c.Calls.Delete(ctx, a.Sandbox); err != nil {
		return nil, err
	}
	return &answer{
		Text:   "Deleted sandbox " + a.Sandbox + ".",
		Fields: map[string]any{"id": a.Sandbox, "state": models.SandboxDeleted},
	}, nil
}

// infoProgram describes the work directory, a line for each thing: name, tab, value.
const infoProgram = `say() { printf '%s\t%s\n' "$1" "$2"; }
say directory "$(pwd)"
say user "$(id -un 2>/dev/null || id -u)"
say system "$(uname -sm)"
df -Pk . 2>/dev/null | { read -r head; read -r device all used free rest; say free_kb "$free"; say size_kb "$all"; }
for tool in bash python3 node npm git curl pip; do
	found=$(command -v $tool 2>/dev/null) && say "$tool" "$found"
done
exit 0`

func (s *sandboxTools) workspaceInfo(ctx context.Context, c *call, a *sandboxOnly) (*answer, error) {
	box, err := s.sandbox(ctx, c, a.Sandbox)
	if err != nil {
		return nil, err
	}
	r, err := s.command(ctx, c, box.ID, &kind.Exec{Argv: []string{"sh", "-c", infoProgram}}, patience)
	if err != nil || r.ExitCode == nil {
		return nil, err
	}
	fields := map[string]string{"sandbox_id": box.ID}
	for line := range strings.Lines(r.Stdout) {
		name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		fields[name] = value
	}
	return &answer{Text: r.Stdout, Fields: fields}, nil
}

func (s *sandboxTools) workspaceHealth(ctx context.Context, c *call, a *sandboxOnly) (*answer, error) {
	box, err := s.sandbox(ctx, c, a.Sandbox)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	r, err := s.command(ctx, c, box.ID, &kind.Exec{Argv: []string{"true"}}, patience)
	if err != nil {
		return nil, err
	}
	healthy := r.ExitCode != nil && *r.ExitCode == 0
	text := fmt.Sprintf("Sandbox %s runs commands.", box.ID)
	if !healthy {
		text = fmt.Sprintf("Sandbox %s did not run a command: see job %s.", box.ID, r.ExecID)
	}
	return &answer{
		Text:   text,
		Fields: map[string]any{"healthy": healthy, "sandbox_id": box.ID, "took_ms": time.Since(began).Milliseconds()},
	}, nil
}

type nothing struct{}

// templateDoc describes a template.
type templateDoc struct {
	Name   string `json:"name"`
	Image  string `json:"image,omitempty"`
	Shared bool   `json:"shared"`
	Is     bool   `json:"default"`
}

// maxTemplates is how many templates a list has.
const maxTemplates = 200

func (s *Server) templates(ctx context.Context) ([]templateDoc, error) {
	list, err := s.c.Jobs.Templates(ctx, middleware.RequestOf(ctx).Tenant, "", maxTemplates)
	docs := []templateDoc{}
	for _, t := range list {
		docs = append(docs, templateDoc{t.Name, t.Image, t.TenantID == nil, t.Name == s.c.Jobs.Catalog().Template})
	}
	return docs, err
}

func (s *sandboxTools) templateList(ctx context.Context, _ *call, _ *nothing) (*answer, error) {
	docs, err := s.templates(ctx)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, doc := range docs {
		names = append(names, doc.Name)
	}
	return &answer{Text: "Templates: " + strings.Join(names, ", "), Fields: map[string]any{"templates": docs}}, nil
}

// limitDoc is a limit with what is in use of it.
type limitDoc struct {
	Limit     string   `json:"limit"`
	Used      *float64 `json:"used,omitempty"`
	Max       *float64 `json:"max,omitempty"` // absent = no limit
	PerSecond *float64 `json:"per_second,omitempty"`
}

func (s *sandboxTools) usageLimits(ctx context.Context, _ *call, _ *nothing) (*answer, error) {
	uses, err := s.c.Limits(ctx)
	if err != nil {
		return nil, err
	}
	docs, text := []limitDoc{}, ""
	for _, u := range uses {
		docs = append(docs, limitDoc{u.Name, u.Used, u.Max, u.PerSecond})
		if u.Max != nil && u.Used != nil {
			text += fmt.Sprintf("%s: %g of %g in use\n", u.Name, *u.Used, *u.Max)
		}
	}
	return &answer{Text: text, Fields: map[string]any{"limits": docs}}, nil
}
