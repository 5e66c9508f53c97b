package modal_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"sandyard/dev/testenv"
	"sandyard/providers"
	"sandyard/providers/modal"
	"sandyard/providers/modal/modaltest"
	"sandyard/providers/providertest/fixture"
)

// rig is a stand-in for Modal with the providers of workers.
type rig struct {
	*modaltest.Server

	t   *testing.T
	log testenv.Book
}

func newRig(t *testing.T) *rig {
	t.Helper()
	inner := newMachine()
	t.Cleanup(func() { _ = inner.Close() })
	return &rig{t: t, Server: modaltest.New(t, inner, modaltest.Options{
		Images: map[string]string{"base": "fake-python", "im-1": "fake-python"}, MaxSandboxes: 8,
	})}
}

func (r *rig) config() modal.Config {
	return modal.Config{
		TokenID: r.TokenID, TokenSecret: r.TokenSecret, Server: r.URL, Fleet: "fleet-1", Image: "base",
		Logger: slog.New(slog.NewTextHandler(&r.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
}

func (r *rig) open() *modal.Provider { return r.with(r.config()) }

func (r *rig) with(cfg modal.Config) *modal.Provider {
	r.t.Helper()
	p, err := modal.New(cfg)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = p.Close() })
	return p
}

// refs are the sandboxes that live, by another worker's list.
func (r *rig) refs() (refs []string) {
	r.t.Helper()
	all, err := r.open().List(r.t.Context())
	if err != nil {
		r.t.Error(err)
	}
	for _, i := range all {
		refs = append(refs, i.Ref)
	}
	return refs
}

// leaky is what Modal's error may hold and no error of ours.
const leaky = " vendors words eyJhbGciOiJIUzI1NiJ9.token0123456789"

func (r *rig) clean(err error) {
	r.t.Helper()
	e := providers.AsError(err)
	for _, shown := range []string{e.Error(), r.log.String()} {
		for _, secret := range []string{r.TokenSecret, r.TokenID, "eyJhbGciOiJIUzI1NiJ9"} {
			if strings.Contains(shown, secret) {
				r.t.Errorf("%q is shown in %s", secret, shown)
			}
		}
	}
	if strings.Contains(e.Message, "vendors words") || e.Message == "" {
		r.t.Errorf("the user is told %q", e.Message)
	}
}

// TestADroppedAnswerIsAdopted: Modal makes the sandbox and the answer is lost on its way.
func TestADroppedAnswerIsAdopted(t *testing.T) {
	t.Parallel()
	for _, code := range []codes.Code{codes.Aborted, codes.Unavailable} { // the client tries the second one again
		r := newRig(t)
		r.Fault("SandboxCreateV2", func() error { return modaltest.Dropped(status.Error(code, "lost")) })
		made, err := r.open().Create(t.Context(), providers.Spec{ID: "box1"})
		if err != nil || len(r.Asked()) != 1 || made.ID != "box1" || made.State != providers.StateRunning {
			t.Errorf("%v: got %+v, %v; asked for %d", code, made, err, len(r.Asked()))
		}
		again, err := r.open().Create(t.Context(), providers.Spec{ID: "box1"})
		if err != nil || again.Ref != made.Ref || len(r.refs()) != 1 {
			t.Errorf("another worker: %+v, %v; there are %v", again, err, r.refs())
		}
	}
}

// TestTwoWorkersMakeOne: the name is given once.
func TestTwoWorkersMakeOne(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	var all sync.WaitGroup
	for range 4 {
		p := r.open()
		all.Go(func() {
			if _, err := p.Create(t.Context(), providers.Spec{ID: "box1"}); err != nil {
				t.Errorf("create: %v", err)
			}
		})
	}
	all.Wait()
	if len(r.refs()) != 1 || len(r.Asked()) != 1 {
		t.Errorf("there are %v, of %d", r.refs(), len(r.Asked()))
	}
}

// TestNothingOfOthersIsTouched: an account has sandboxes of other installations.
func TestNothingOfOthersIsTouched(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p := r.open()
	made, err := p.Create(t.Context(), providers.Spec{ID: "box1"})
	if err != nil {
		t.Fatal(err)
	}
	cfg := r.config()
	cfg.Fleet = "another"
	other := r.with(cfg)
	theirs, err := other.Create(t.Context(), providers.Spec{ID: "box2"})
	if err != nil {
		t.Fatal(err)
	}
	if all, err := p.List(t.Context()); err != nil || len(all) != 1 || all[0].Ref != made.Ref ||
		all[0].ID != "box1" || time.Since(all[0].CreatedAt).Abs() > time.Hour {
		t.Errorf("listed %+v, %v", all, err)
	}
	for range 2 {
		p.Remember("box2", theirs.Ref)
		_, err = p.Open(t.Context(), "box2")
		fixture.WantClass(t, err, providers.NotFound)
	}
	p.Remember("box2", theirs.Ref)
	if err := p.Delete(t.Context(), "box2"); err != nil {
		t.Error(err)
	}
	if _, err := other.Open(t.Context(), "box2"); err != nil {
		t.Errorf("the other installation's sandbox: %v", err)
	}
}

// TestTheEndOfASandbox: deleted twice, ended at Modal, remembered by an id that is outdated.
func TestTheEndOfASandbox(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	made, err := r.open().Create(t.Context(), providers.Spec{ID: "box1"})
	if err != nil {
		t.Fatal(err)
	}
	p := r.open()
	p.Remember("box1", "outdated")
	box, err := p.Open(t.Context(), "box1")
	if err != nil {
		t.Fatalf("with an outdated id: %v", err)
	}
	another := r.open()
	if err := errors.Join(another.Delete(t.Context(), "box1"), another.Delete(t.Context(), "box1")); err != nil {
		t.Error(err)
	}
	_, err = box.Run(t.Context(), providers.Command{Name: "late", Shell: "true"})
	fixture.WantClass(t, err, providers.Lost)
	p.Remember("box1", made.Ref)
	for _, id := range []string{"box1", "../x"} {
		_, err = p.Open(t.Context(), id)
		fixture.WantClass(t, err, providers.NotFound)
		if err := p.Delete(t.Context(), id); err != nil {
			t.Error(err)
		}
	}
	again, err := p.Create(t.Context(), providers.Spec{ID: "box1"})
	if err != nil || again.Ref == made.Ref || len(r.refs()) != 1 {
		t.Errorf("made anew: %+v, %v; there are %v", again, err, r.refs())
	}
}

// TestWhatACreateAsksFor has sandboxes with and without a network, of an image's name and of its id.
func TestWhatACreateAsksFor(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p := r.open()
	env := map[string]string{"HOME": "/home/me", "A": "b"}
	for _, spec := range []providers.Spec{
		{ID: "a", Network: true, Env: env, Labels: map[string]string{"team": "x", "sandyard_fleet": "z"}},
		{ID: "b", Image: "im-1", Resources: providers.Resources{CPUs: 1.5, MemoryMB: 700}},
	} {
		if _, err := p.Create(t.Context(), spec); err != nil {
			t.Fatal(err)
		}
	}
	a, b := r.Asked()[0], r.Asked()[1]
	tags := map[string]string{
		"sandyard_sandbox": "a", "sandyard_fleet": "fleet-1", "sandyard_dir": "/workspace", "sandyard_home": "/home/me",
	}
	if a.App != "sandyard" || a.Image != "base" || a.BlockNetwork || a.Timeout != 24*time.Hour || a.CPU != 0 ||
		!maps.Equal(a.Tags, tags) || !maps.Equal(a.Env, env) || !slices.Equal(a.Command, []string{"sleep", "infinity"}) {
		t.Errorf("asked for %+v", a)
	}
	if b.Image != "im-1" || !b.BlockNetwork || b.CPU != 1.5 || b.MemoryMiB != 700 {
		t.Errorf("asked for %+v", b)
	}
	for _, spec := range []providers.Spec{{ID: "c", Image: "none"}, {ID: "c", Image: "im-none"}} {
		_, err := p.Create(t.Context(), spec)
		fixture.WantClass(t, err, providers.ImageMissing)
	}
	_, err := p.Create(t.Context(), providers.Spec{ID: "c", Resources: providers.Resources{CPUs: -1}})
	fixture.WantClass(t, err, providers.Invalid)
}

// TestEveryError has a row for each code that Modal's server answers with.
func TestEveryError(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		method string
		code   codes.Code
		text   string
		class  providers.Class
	}{
		{"SandboxCreateV2", codes.ResourceExhausted, "no capacity", providers.Capacity},
		{"SandboxCreateV2", codes.ResourceExhausted, "rate limit", providers.RateLimited},
		{"SandboxCreateV2", codes.ResourceExhausted, "workspace limit of sandboxes", providers.Quota},
		{"SandboxCreateV2", codes.InvalidArgument, "bad", providers.Invalid},
		{"SandboxCreateV2", codes.NotFound, "no image", providers.ImageMissing},
		{"SandboxCreateV2", codes.PermissionDenied, "no", providers.Refused},
		{"SandboxCreateV2", codes.AlreadyExists, "and is not listed", providers.Busy},
		{"SandboxCreateV2", codes.FailedPrecondition, "no", providers.Busy},
		{"SandboxCreateV2", codes.Unimplemented, "no", providers.NotSupported},
		{"SandboxCreateV2", codes.Aborted, "no", providers.Unavailable},
		{"SandboxCreateV2", codes.DataLoss, "no", providers.Internal},
		{"AppGetOrCreate", codes.PermissionDenied, "no", providers.Refused},
		{"AppGetOrCreate", codes.Unauthenticated, "no", providers.Refused},
		{"AppGetOrCreate", codes.NotFound, "no environment", providers.Refused},
		{"SandboxListV2", codes.NotFound, "no app", providers.Unavailable},
		{"SandboxListV2", codes.PermissionDenied, "no", providers.Refused},
		{"SandboxListV2", codes.Unimplemented, "no", providers.NotSupported},
		{"SandboxTagsGetV2", codes.NotFound, "no", providers.NotFound},
		{"SandboxTerminateV2", codes.PermissionDenied, "no", providers.Refused},
	} {
		t.Run(c.method+" "+c.code.String(), func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.t = t
			p := r.open()
			spec := providers.Spec{ID: "box1"}
			call := func() error { _, err := p.Create(t.Context(), spec); return err }
			if of := map[string]func() error{
				"SandboxListV2":      func() error { _, err := p.List(t.Context()); return err },
				"SandboxTagsGetV2":   func() error { _, err := p.Open(t.Context(), spec.ID); return err },
				"SandboxTerminateV2": func() error { return p.Delete(t.Context(), spec.ID) },
			}[c.method]; of != nil {
				if err := call(); err != nil {
					t.Fatal(err)
				}
				call = of
			}
			for range 3 { // what is looked up again fails again
				r.Fault(c.method, func() error { return status.Error(c.code, c.text+leaky) })
			}
			err := call()
			fixture.WantClass(t, err, c.class)
			r.clean(err)
		})
	}
}

// TestTheAccountsLimit: beyond it nothing is made.
func TestTheAccountsLimit(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p := r.open()
	for i := range 8 {
		if _, err := p.Create(t.Context(), providers.Spec{ID: "box" + string(rune('a'+i))}); err != nil {
			t.Fatal(err)
		}
	}
	_, err := p.Create(t.Context(), providers.Spec{ID: "onemore"})
	if e := providers.AsError(err); err == nil || e.Class != providers.Capacity && e.Class != providers.Quota {
		t.Errorf("got %v", err)
	}
	if len(r.refs()) != 8 {
		t.Errorf("there are %v", r.refs())
	}
}

// TestAWrongToken is told as that, and is in no error.
func TestAWrongToken(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	cfg := r.config()
	cfg.TokenSecret = "as-wrong0123456789"
	p := r.with(cfg)
	for _, call := range []func() error{
		func() error { return p.Ping(t.Context()) },
		func() error { _, err := p.List(t.Context()); return err },
		func() error { _, err := p.Create(t.Context(), providers.Spec{ID: "box1"}); return err },
	} {
		err := call()
		fixture.WantClass(t, err, providers.Refused)
		if err != nil && strings.Contains(err.Error()+r.log.String(), "as-wrong") {
			t.Errorf("the secret is shown: %v", err)
		}
	}
	if err := r.open().Ping(t.Context()); err != nil {
		t.Errorf("with the right one: %v", err)
	}
}

type scripts interface {
	Script(ctx context.Context, user, text string, limit int64) ([]byte, error)
	Send(ctx context.Context, file string, data []byte) error
}

// TestScripts: what a script prints and what is sent comes back byte by byte.
func TestScripts(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p := r.open()
	if _, err := p.Create(t.Context(), providers.Spec{ID: "box1"}); err != nil {
		t.Fatal(err)
	}
	box, err := p.Open(t.Context(), "box1")
	if err != nil {
		t.Fatal(err)
	}
	run := box.(scripts)
	for text, want := range map[string]string{
		`printf 'a\0b\377\n'; echo aside >&2; exit 3`: "a\x00b\xff\n",
		`printf "%s" 'it'\''s "$HOME" '`:              `it's "$HOME" `,
		`cat; pwd`:                                    "/\n",
		`true`:                                        "",
	} {
		if out, err := run.Script(t.Context(), "", text, 100); err != nil || string(out) != want {
			t.Errorf("%s: %q, %v", text, out, err)
		}
	}
	_, err = run.Script(t.Context(), "", "yes | head -c 5000", 1000)
	fixture.WantClass(t, err, providers.TooLarge)
	data := bytes.Repeat([]byte("0\x00\xff123456789abc\n"), 3<<16) // 3 MiB
	file := t.TempDir() + "/f"
	if err := run.Send(t.Context(), file, data); err != nil {
		t.Fatal(err)
	}
	out, err := run.Script(t.Context(), "", "cat "+file+" "+file, 7<<20) // too long for one answer
	if err != nil || !bytes.Equal(out, append(bytes.Clone(data), data...)) {
		t.Errorf("%d bytes came, %v", len(out), err)
	}
	fixture.WantClass(t, run.Send(t.Context(), "/none/f", data[:100]), providers.Unavailable)
	fixture.WantClass(t, run.Send(t.Context(), "/dev/full", data[:100]), providers.NoSpace)
}

// TestACallThatIsGivenUp ends, though the program goes on.
func TestACallThatIsGivenUp(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p := r.open()
	if _, err := p.Create(t.Context(), providers.Spec{ID: "box1"}); err != nil {
		t.Fatal(err)
	}
	box, err := p.Open(t.Context(), "box1")
	if err != nil {
		t.Fatal(err)
	}
	ctx, leave := context.WithCancel(t.Context())
	r.Fault("TaskExecStdioRead", func() error { leave(); return nil })
	_, err = box.(scripts).Script(ctx, "", "sleep 1000", 100)
	fixture.WantClass(t, err, providers.Unavailable)
}

func TestBadSettings(t *testing.T) {
	t.Parallel()
	good := modal.Config{TokenID: "ak-1", TokenSecret: "as-1", Fleet: "f"}
	for name, change := range map[string]func(*modal.Config){
		"MODAL_TOKEN_ID":     func(c *modal.Config) { c.TokenID = "" },
		"MODAL_TOKEN_SECRET": func(c *modal.Config) { c.TokenSecret = "a b\n" },
		"installation":       func(c *modal.Config) { c.Fleet = "" },
		"MODAL_LIFE":         func(c *modal.Config) { c.Life = 25 * time.Hour },
		"MODAL_SERVER_URL":   func(c *modal.Config) { c.Server = "nonsense" },
	} {
		c := good
		change(&c)
		_, err := modal.New(c)
		fixture.WantClass(t, err, providers.Invalid)
		if err != nil && !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if p, err := modal.New(good); err != nil || p.Close() != nil {
		t.Error(err)
	}
}
