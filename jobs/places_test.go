package jobs_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"sandyard/dev/jobsrig"
	"sandyard/egress"
	"sandyard/jobs"
	"sandyard/jobs/kind"
	"sandyard/jobs/worker"
	"sandyard/models"
	"sandyard/providers"
	"sandyard/providers/fake"
)

// called is a provider of another name, with abilities of its own.
type called struct {
	*fake.Provider
	can providers.Capabilities
}

func (c called) Capabilities() providers.Capabilities { return c.can }

// Create knows every name of a template, and has one that is meant where there is none.
func (c called) Create(ctx context.Context, spec providers.Spec) (providers.Instance, error) {
	spec.Image = "fake"
	return c.Provider.Create(ctx, spec)
}

// cloud is what a provider can do that makes sandboxes from templates of its own alone.
func cloud(name string) providers.Capabilities {
	return providers.Capabilities{
		Provider: name, Images: providers.Unsupported, Network: providers.Native, Pause: providers.Unsupported, PauseMemory: providers.Unsupported,
		Background: providers.Unsupported, Code: providers.Unsupported, Stdin: providers.Unsupported, Ports: providers.Unsupported,
	}
}

// places starts a worker at each of two clouds, near and far, between which clients of the result choose.
func (r *rig) places() (client *jobs.Client, near, far *fake.State) {
	r.T.Helper()
	near, far = fake.NewState(), fake.NewState()
	catalog := jobs.Catalog{
		Providers: []string{"near", "far"}, Able: []providers.Capabilities{cloud("near"), cloud("far")},
		Template: "python", Templates: map[string]string{"python": "fake", "other": "fake"},
		Names: map[string]string{"far/python": "python-at-far", "near/other": "other-at-near", "far/x": "mine"},
	}
	for name, state := range map[string]*fake.State{"near": near, "far": far} {
		r.T.Cleanup(state.Close)
		p := called{fake.New(fake.Options{State: state}), cloud(name)}
		r.T.Cleanup(func() { r.Must(p.Close()) })
		r.Worker(4, reconciling(100*time.Millisecond), func(c *worker.Config) { c.Provider, c.Engine, c.Lease = p, "", 3*time.Second })
	}
	return jobs.NewClient(r.Store, r.Queue, catalog, r.Log), near, far
}

func (r *rig) createBy(client *jobs.Client, wish jobs.CreateSandbox) (box models.Sandbox, create models.Job) {
	r.T.Helper()
	out, err := client.Create(r.T.Context(), wish, jobsrig.Options())
	r.Must(err)
	create = r.Wait(out.Jobs[0].ID)
	return r.Sandbox(out.Sandbox.ID), create
}

// TestTheNextProviderMakesIt where the first one has no room, has reached a quota, wants fewer calls or is away; only once, at
// no cost of attempts, and visible in the events.
func TestTheNextProviderMakesIt(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]fake.Fault{
		"no room":                                {Op: fake.OpCreate, Err: providers.Capacity.Errorf("full")},
		"quota":                                  {Op: fake.OpCreate, Err: providers.Quota.Errorf("20 sandboxes run")},
		"rate":                                   {Op: fake.OpCreate, Err: &providers.Error{Class: providers.RateLimited, Message: "too many", RetryAfter: time.Hour}},
		"refused":                                {Err: providers.Refused.Errorf("unknown key")},
		"away":                                   {Err: providers.Unavailable.Errorf("nobody is there")},
		"made, but the answer is lost, and away": {Op: fake.OpCreate, After: true, Err: providers.Unavailable.Errorf("cut")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.Scheduler()
			client, near, far := r.places()
			gone := fault.Op == "" || fault.After
			near.OnCall(func(op fake.Op, _ string) (fake.Fault, bool) {
				if gone && (op == fake.OpList || fault.Op == "") {
					return fake.Fault{Err: providers.Unavailable.Errorf("nobody is there")}, true
				}
				return fault, op == fault.Op
			})
			box, create := r.createBy(client, jobs.CreateSandbox{Providers: []string{"near", "far"}})
			if box.Provider != "far" || box.Image != "python-at-far" || box.State != models.SandboxRunning || create.Tries() != 1 {
				t.Errorf("the sandbox is %s at %s from %q after %d tries: %+v", box.State, box.Provider, box.Image, create.Tries(), create.Error)
			}
			if n := len(far.List()); n != 1 {
				t.Errorf("%d sandboxes at far, want 1", n)
			}
			if _, ok := r.happened(box.ID, "sandbox.moved"); !ok {
				t.Error("no event says that it was moved")
			}
			near.OnCall(nil) // it comes back
			r.Eventually("nothing is left at near", func() bool { return len(near.List()) == 0 })
			exec, err := client.Submit(t.Context(), box.ID, &kind.Exec{Command: "fake:stdout hello"}, jobsrig.Options())
			r.Must(err)
			if j := r.Wait(exec.Jobs[0].ID); j.State != models.Succeeded {
				t.Errorf("a command there ended %s: %+v", j.State, j.Error)
			}
		})
	}
}

// TestNoOtherProviderIsAsked about what is wrong with the request, or when the order has come to its end.
func TestNoOtherProviderIsAsked(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.Scheduler()
	client, near, far := r.places()
	near.Inject(fake.Fault{Op: fake.OpCreate, Err: providers.Invalid.Errorf("wrong")})
	if box, create := r.createBy(client, jobs.CreateSandbox{Providers: []string{"near", "far"}}); box.Provider != "near" || create.State != models.Failed {
		t.Errorf("a create that near refuses: %s at %s", create.State, box.Provider)
	}
	for _, state := range []*fake.State{near, far} {
		state.Inject(fake.Fault{Op: fake.OpCreate, Times: 2, Err: providers.Capacity.Errorf("full")})
	}
	box, create := r.createBy(client, jobs.CreateSandbox{Providers: []string{"near", "far"}})
	if box.Provider != "far" || create.State != models.Succeeded || create.Tries() != 3 {
		t.Errorf("the last of the order has no room twice: %s at %s after %d tries", create.State, box.Provider, create.Tries())
	}
}

// TestWhichProvider: the request decides before the template, the template before the tenant, and the tenant before the server.
func TestWhichProvider(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.Scheduler()
	client, _, _ := r.places()
	want := func(wish jobs.CreateSandbox, provider string) {
		t.Helper()
		if box, create := r.createBy(client, wish); box.Provider != provider || create.State != models.Succeeded {
			t.Errorf("%+v: %s at %s, want %s: %+v", wish, create.State, box.Provider, provider, create.Error)
		}
	}
	want(jobs.CreateSandbox{}, "near")
	r.Must(r.Store.SetProviders(t.Context(), jobsrig.Tenant, []string{"far"}))
	want(jobs.CreateSandbox{}, "far")
	mine := models.Template{Name: "mine", Image: "fake", Definition: models.Definition{
		Providers: []string{"far"}, Names: map[string]string{"far": "mine"},
	}}
	r.Must(client.CheckTemplate(t.Context(), models.Owner{Tenant: jobsrig.Tenant}, mine))
	_, err := r.Store.PutTemplate(t.Context(), models.Owner{Tenant: jobsrig.Tenant}, mine)
	r.Must(err)
	r.Must(r.Store.SetProviders(t.Context(), jobsrig.Tenant, []string{"near"}))
	want(jobs.CreateSandbox{Template: "mine"}, "far")
	want(jobs.CreateSandbox{Template: "other"}, "near")
	want(jobs.CreateSandbox{Provider: "far"}, "far")
	refused := func(field, text string, err error) {
		t.Helper()
		var wrong *kind.InvalidError
		if !errors.As(err, &wrong) || wrong.Field != field || !strings.Contains(wrong.Message, text) {
			t.Errorf("answered %v, want %s: %s", err, field, text)
		}
	}
	for _, c := range []struct {
		field, text string
		wish        jobs.CreateSandbox
	}{
		{"providers", "unknown provider", jobs.CreateSandbox{Providers: []string{"near", "nowhere"}}},
		{"providers", "twice", jobs.CreateSandbox{Providers: []string{"near", "near"}}},
		{"providers", "give either", jobs.CreateSandbox{Provider: "near", Providers: []string{"far"}}},
		{"template", "has no name at provider far", jobs.CreateSandbox{Template: "other", Providers: []string{"near", "far"}}},
		{"image", "makes no sandboxes from images", jobs.CreateSandbox{Image: "x", Provider: "near"}},
		{"egress", "as a whole", jobs.CreateSandbox{Provider: "near", Egress: policy("example.com")}},
		{"on_timeout", "cannot pause", jobs.CreateSandbox{Provider: "near", OnTimeout: "pause"}},
	} {
		_, err := client.Create(t.Context(), c.wish, jobsrig.Options())
		refused(c.field, c.text, err)
	}
	mine.Definition.Names = map[string]string{"near": "somebody-elses"}
	refused("names", "not allowed", client.CheckTemplate(t.Context(), models.Owner{Tenant: jobsrig.Tenant}, mine))
	r.Must(client.CheckTemplate(t.Context(), models.Owner{}, mine)) // the operator's own
}

// TestWhatAProviderCannotDoIsRefusedAtOnce: no job is written down.
func TestWhatAProviderCannotDoIsRefusedAtOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.Scheduler()
	client, _, _ := r.places()
	box, _ := r.createBy(client, jobs.CreateSandbox{})
	for _, args := range []kind.Args{
		&kind.Pause{}, &kind.Exec{Command: "true", Background: true}, &kind.Exec{Command: "true", Stdin: "x"},
		&kind.Code{Code: "1"}, &kind.SetEgress{},
	} {
		_, err := client.Submit(t.Context(), box.ID, args, jobsrig.Options())
		if !errors.Is(err, &providers.Error{Class: providers.NotSupported}) {
			t.Errorf("%T answers %v", args, err)
		}
	}
	list, err := r.Store.Jobs(t.Context(), jobsrig.Tenant, models.JobFilter{Limit: 100})
	r.Must(err)
	if slices.ContainsFunc(list, func(j models.Job) bool { return j.Kind != models.KindCreate }) {
		t.Errorf("written down: %+v", list)
	}
}

func policy(allow ...string) *egress.Policy { return &egress.Policy{Allow: allow} }
