package e2b_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"sandyard/providers"
	"sandyard/providers/e2b"
	"sandyard/providers/providertest/fixture"
	"sandyard/providers/remote/remotetest"
)

// TestADroppedAnswerIsAdopted: the vendor makes the sandbox and the answer is lost on its way.
func TestADroppedAnswerIsAdopted(t *testing.T) {
	t.Parallel()
	v := newVendor(t)
	p := v.open()
	if _, err := p.List(t.Context()); err != nil { // the connection is one that was used
		t.Fatal(err)
	}
	v.fault("POST /sandboxes", func(_ http.ResponseWriter, r *http.Request) {
		v.drop(r)
		panic(http.ErrAbortHandler)
	})
	made, err := p.Create(t.Context(), providers.Spec{ID: "box1"})
	if err != nil || v.made != 1 || made.Ref != "vendor1" || made.ID != "box1" || made.State != providers.StateRunning ||
		made.CreatedAt.IsZero() {
		t.Errorf("got %+v, %v", made, err)
	}
	again, err := v.open().Create(t.Context(), providers.Spec{ID: "box1"})
	if err != nil || again.Ref != "vendor1" || len(v.ids()) != 1 {
		t.Errorf("another worker: %+v, %v; there are %v", again, err, v.ids())
	}
}

// TestALostCallerLeavesWhatCanBeFound: the caller leaves while the vendor makes the sandbox.
func TestALostCallerLeavesWhatCanBeFound(t *testing.T) {
	t.Parallel()
	v := newVendor(t)
	p := v.open()
	ctx, leave := context.WithCancel(t.Context())
	v.fault("POST /sandboxes", func(_ http.ResponseWriter, r *http.Request) {
		leave()
		v.drop(r)
		panic(http.ErrAbortHandler)
	})
	_, err := p.Create(ctx, providers.Spec{ID: "box1"})
	fixture.WantClass(t, err, providers.Unavailable)
	if made, err := p.Create(t.Context(), providers.Spec{ID: "box1"}); err != nil || made.Ref != "vendor1" ||
		len(v.ids()) != 1 {
		t.Errorf("got %+v, %v; there are %v", made, err, v.ids())
	}
}

// TestTwoWorkersLeaveOne: the vendor makes two sandboxes for two workers, whose look-ups met nothing. The oldest stays.
func TestTwoWorkersLeaveOne(t *testing.T) {
	t.Parallel()
	v := newVendor(t)
	var both sync.WaitGroup
	both.Add(2)
	for range 2 {
		go func() {
			defer both.Done()
			p := v.open()
			if _, err := p.Create(t.Context(), providers.Spec{ID: "box1"}); err != nil {
				t.Errorf("create: %v", err)
			}
		}()
	}
	both.Wait()
	v.mu.Lock()
	v.made++
	v.boxes = append(v.boxes, &vendorBox{ID: "twin", State: "running", At: time.Now(), Metadata: v.boxes[0].Metadata})
	v.mu.Unlock()
	if _, err := v.open().Create(t.Context(), providers.Spec{ID: "box1"}); err != nil || len(v.ids()) != 1 ||
		v.ids()[0] != "vendor1" {
		t.Errorf("there are %v, %v", v.ids(), err)
	}
	if !strings.Contains(v.log.String(), "made twice") {
		t.Errorf("nothing is logged: %s", v.log.String())
	}
}

// TestAListThatLags does not show a new sandbox at first.
func TestAListThatLags(t *testing.T) {
	t.Parallel()
	v := newVendor(t)
	v.lateBy = 1
	p := v.open()
	if made, err := p.Create(t.Context(), providers.Spec{ID: "box1"}); err != nil || made.Ref != "vendor1" {
		t.Errorf("got %+v, %v", made, err)
	}
	if err := p.Delete(t.Context(), "box1"); err != nil || len(v.ids()) != 0 {
		t.Errorf("after the delete there are %v, %v", v.ids(), err)
	}
}

// TestNothingOfOthersIsTouched: a server that ignores the filter lists sandboxes of others.
func TestNothingOfOthersIsTouched(t *testing.T) {
	t.Parallel()
	v := newVendor(t)
	v.foreign = true
	v.boxes = []*vendorBox{
		{
			ID:       "theirs",
			State:    "running",
			At:       time.Now(),
			Metadata: map[string]string{"sandyard_sandbox": "box1", "sandyard_fleet": "another"},
		},
		{ID: "nobodys", State: "running", At: time.Now(), Metadata: map[string]string{}},
	}
	p := v.open()
	p.Remember("box1", "theirs")
	_, err := p.Open(t.Context(), "box1")
	fixture.WantClass(t, err, providers.NotFound)
	p.Remember("box1", "theirs")
	if err := p.Delete(t.Context(), "box1"); err != nil {
		t.Error(err)
	}
	made, err := p.Create(t.Context(), providers.Spec{ID: "box1"})
	if err != nil || made.Ref != "vendor1" {
		t.Errorf("created %+v, %v", made, err)
	}
	if all, err := p.List(t.Context()); err != nil || len(all) != 1 || all[0].Ref != "vendor1" {
		t.Errorf("listed %+v, %v", all, err)
	}
	if err := p.Delete(t.Context(), "box1"); err != nil || !slices.Equal(v.ids(), []string{"theirs", "nobodys"}) {
		t.Errorf("left are %v, %v", v.ids(), err)
	}
}

// TestWhatIsRememberedIsNotSearched: the row knows the vendor's id, which may be outdated.
func TestWhatIsRememberedIsNotSearched(t *testing.T) {
	t.Parallel()
	v := newVendor(t)
	made, err := v.open().Create(t.Context(), providers.Spec{ID: "box1"})
	if err != nil {
		t.Fatal(err)
	}
	p := v.open()
	v.calls()
	p.Remember("box1", made.Ref)
	p.Remember("box2", "../bad")
	if _, err := p.Open(t.Context(), "box1"); err != nil {
		t.Error(err)
	}
	if err := p.SetTimeout(t.Context(), "box1", 90*time.Second); err != nil {
		t.Error(err)
	}
	if asked := v.calls(); !slices.Equal(asked, []string{"GET {id}", "POST {id}/timeout"}) {
		t.Errorf("asked %v", asked)
	}
	p.Remember("box1", "outdated")
	if err := p.Pause(t.Context(), "box1"); err != nil || v.boxes[0].State != "paused" {
		t.Errorf("with an outdated id: %v", err)
	}
	_, err = p.Open(t.Context(), "box2")
	fixture.WantClass(t, err, providers.NotFound)
}

func TestTimeouts(t *testing.T) {
	t.Parallel()
	v := newVendor(t)
	p := v.open()
	if _, err := p.Create(t.Context(), providers.Spec{ID: "box1", Timeout: 1500 * time.Millisecond}); err != nil ||
		v.boxes[0].timeout != 2 {
		t.Errorf("created with a timeout of %d s, %v", v.boxes[0].timeout, err)
	}
	if _, err := p.Create(t.Context(), providers.Spec{ID: "box3", Timeout: 2 * time.Hour}); err != nil || v.boxes[1].timeout != 3600 {
		t.Errorf("created with a timeout of %d s, %v", v.boxes[1].timeout, err)
	}
	if _, err := p.Create(t.Context(), providers.Spec{ID: "box2"}); err != nil || v.boxes[2].timeout != 3600 {
		t.Errorf("created with a timeout of %d s, %v", v.boxes[2].timeout, err)
	}
	for left, want := range map[time.Duration]int64{0: 1, 10 * time.Second: 10, 100 * 365 * 24 * time.Hour: 3600} {
		if err := p.SetTimeout(t.Context(), "box1", left); err != nil || v.boxes[0].timeout != want {
			t.Errorf("%v is set as %d s, %v", left, v.boxes[0].timeout, err)
		}
	}
	ctx := t.Context()
	if err := errors.Join(p.Pause(ctx, "box1"), p.SetTimeout(ctx, "box1", time.Minute), p.Pause(ctx, "box1")); err != nil {
		t.Errorf("while it is paused: %v", err)
	}
	fixture.WantClass(t, p.SetTimeout(t.Context(), "none", time.Minute), providers.NotFound)
	fixture.WantClass(t, p.SetTimeout(t.Context(), "../x", time.Minute), providers.NotFound)
}

// TestManyPages lists more sandboxes than a page holds.
func TestManyPages(t *testing.T) {
	t.Parallel()
	v := newVendor(t)
	p := v.open()
	for _, id := range []string{"a", "b", "c", "d", "e"} {
		if _, err := p.Create(t.Context(), providers.Spec{ID: id}); err != nil {
			t.Fatal(err)
		}
	}
	all, err := p.List(t.Context())
	if err != nil || len(all) != 5 || all[0].ID != "a" || all[4].Ref != "vendor5" {
		t.Errorf("got %+v, %v", all, err)
	}
}

// TestOldTemplates: an envd from before raw uploads gets forms, and one from before default users is told the user.
func TestOldTemplates(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]string{
		"0.6.13": "raw /tmp/f ", "0.5.7": "raw /tmp/f ", "0.5.6": "form /tmp/f ",
		"0.4.0": "form /tmp/f ", "0.3.9": "form /tmp/f user", "": "raw /tmp/f ",
	} {
		v := newVendor(t)
		v.envd = version
		p := v.open()
		if _, err := p.Create(t.Context(), providers.Spec{ID: "box1"}); err != nil {
			t.Fatal(err)
		}
		box, err := p.Open(t.Context(), "box1")
		if err != nil {
			t.Fatal(err)
		}
		got := make(chan string, 10)
		v.mu.Lock()
		v.inside = func(w http.ResponseWriter, r *http.Request) {
			kind, body := "raw", io.Reader(r.Body)
			if in, err := r.MultipartReader(); err == nil {
				part, err := in.NextPart()
				if err != nil || part.FormName() != "file" || part.FileName() != "f" {
					t.Errorf("a form with %v, %v", part, err)
				}
				kind, body = "form", part
			}
			if text, err := io.ReadAll(body); err != nil || string(text) != "content" ||
				kind == "form" && r.ContentLength < 100 {
				t.Errorf("version %q: %q, length %d, %v", version, text, r.ContentLength, err)
			}
			got <- kind + " " + r.URL.Query().Get("path") + " " + r.URL.Query().Get("username")
			remotetest.Tell(w, 200, []any{})
		}
		v.mu.Unlock()
		if err := box.(interface {
			Put(ctx context.Context, path string, data []byte) error
		}).Put(t.Context(), "/tmp/f", []byte("content")); err != nil {
			t.Errorf("version %q: %v", version, err)
		}
		if made := <-got; made != want {
			t.Errorf("version %q: %s, want %s", version, made, want)
		}
	}
}

// TestATenantsMetadataIsNotOurs: what a tenant calls a sandbox does not say where its files are.
func TestATenantsMetadataIsNotOurs(t *testing.T) {
	t.Parallel()
	v := newVendor(t)
	labels := map[string]string{"sandyard_home": "/etc", "sandyard_dir": "/etc", "team": "x"}
	if _, err := v.open().Create(t.Context(), providers.Spec{ID: "box1", Labels: labels}); err != nil {
		t.Fatal(err)
	}
	if has := v.boxes[0].Metadata; has["sandyard_home"] != "" || has["sandyard_dir"] == "/etc" || has["team"] != "x" {
		t.Errorf("the sandbox has %v", has)
	}
}

// TestATenantsAccountHasItsOwnTimeout: what the operator's account permits says nothing about a tenant's.
func TestATenantsAccountHasItsOwnTimeout(t *testing.T) {
	t.Parallel()
	v := newVendor(t)
	p, err := e2b.New(e2b.Config{
		APIKey: apiKey, Secret: "KEY", URL: v.http.URL, DataURL: v.http.URL + "/inside", Fleet: "fleet-1", Timeout: 24 * time.Hour,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	_, err = p.Create(t.Context(), providers.Spec{ID: "box1", Timeout: 2 * time.Hour})
	if err != nil || v.boxes[0].timeout != 3600 {
		t.Errorf("asked for %v, %v", v.boxes[0].timeout, err)
	}
}
