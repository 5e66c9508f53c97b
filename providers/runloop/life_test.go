package runloop_test

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"sandyard/providers"
	"sandyard/providers/providertest/fixture"
	"sandyard/providers/remote/remotetest"
	"sandyard/providers/runloop"
)

// TestADroppedAnswerIsAdopted: Runloop makes the devbox and the answer is lost on its way.
func TestADroppedAnswerIsAdopted(t *testing.T) {
	t.Parallel()
	v := newVendor(t)
	v.late = 1
	p := v.open()
	if _, err := p.List(t.Context()); err != nil { // the connection is one that was used
		t.Fatal(err)
	}
	v.fault("POST /devboxes", func(_ http.ResponseWriter, r *http.Request) {
		v.drop(r)
		panic(http.ErrAbortHandler)
	})
	made, err := p.Create(t.Context(), providers.Spec{ID: "box1"})
	if err != nil || v.made != 1 || made.Ref != "dbx_1" || made.ID != "box1" || made.State != providers.StateRunning ||
		!made.Until.Equal(made.CreatedAt.Add(48*time.Hour)) {
		t.Errorf("got %+v, %v", made, err)
	}
	again, err := v.open().Create(t.Context(), providers.Spec{ID: "box1"})
	if err != nil || again.Ref != "dbx_1" || len(v.ids()) != 1 {
		t.Errorf("another worker: %+v, %v; there are %v", again, err, v.ids())
	}
}

// TestALostCallerLeavesWhatCanBeFound: the caller leaves while Runloop makes the devbox.
func TestALostCallerLeavesWhatCanBeFound(t *testing.T) {
	t.Parallel()
	v := newVendor(t)
	p := v.open()
	ctx, leave := context.WithCancel(t.Context())
	v.fault("POST /devboxes", func(_ http.ResponseWriter, r *http.Request) {
		leave()
		v.drop(r)
		panic(http.ErrAbortHandler)
	})
	_, err := p.Create(ctx, providers.Spec{ID: "box1"})
	fixture.WantClass(t, err, providers.Unavailable)
	if made, err := p.Create(t.Context(), providers.Spec{ID: "box1"}); err != nil || made.Ref != "dbx_1" ||
		len(v.ids()) != 1 {
		t.Errorf("got %+v, %v; there are %v", made, err, v.ids())
	}
}

// TestATwinIsRemoved: the lists lag behind a lost answer, so that the create is made twice; the oldest stays.
func TestATwinIsRemoved(t *testing.T) {
	t.Parallel()
	v := newVendor(t)
	v.lags = 3
	v.fault("POST /devboxes", func(_ http.ResponseWriter, r *http.Request) {
		v.drop(r)
		panic(http.ErrAbortHandler)
	})
	_, err := v.open().Create(t.Context(), providers.Spec{ID: "box1"})
	fixture.WantClass(t, err, providers.Unavailable)
	made, err := v.open().Create(t.Context(), providers.Spec{ID: "box1"})
	if err != nil {
		t.Fatal(err)
	}
	v.change(func() {
		for _, b := range v.boxes {
			b.lags = 0
		}
	})
	if v.made != 2 {
		t.Fatalf("%d devboxes were made: the lists did not lag behind", v.made)
	}
	again, err := v.open().Create(t.Context(), providers.Spec{ID: "box1"})
	if err != nil || again.Ref != "dbx_1" || !slices.Equal(v.ids(), []string{"dbx_1"}) {
		t.Errorf("made %+v, then %+v, %v; there are %v", made, again, err, v.ids())
	}
}

// TestNothingOfOthersIsTouched: an account has devboxes of others.
func TestNothingOfOthersIsTouched(t *testing.T) {
	t.Parallel()
	v := newVendor(t)
	p := v.open()
	made, err := p.Create(t.Context(), providers.Spec{ID: "box1"})
	if err != nil {
		t.Fatal(err)
	}
	v.change(func() {
		v.boxes = append(v.boxes, &vendorBox{ID: "theirs", Name: "sandyard-box2", Status: "running", Metadata: map[string]string{
			"sandyard_sandbox": "box2", "sandyard_fleet": "another",
		}})
	})
	if all, err := p.List(t.Context()); err != nil || len(all) != 1 || all[0].Ref != made.Ref {
		t.Errorf("listed %+v, %v", all, err)
	}
	p.Remember("box2", "theirs")
	_, err = p.Open(t.Context(), "box2")
	fixture.WantClass(t, err, providers.NotFound)
	p.Remember("box2", "theirs")
	if err := p.Delete(t.Context(), "box2"); err != nil || len(v.ids()) != 2 {
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
	if asked := v.calls(); !slices.Equal(asked, []string{"GET {id}"}) {
		t.Errorf("asked %v", asked)
	}
	p.Remember("box1", "outdated")
	if err := p.Pause(t.Context(), "box1"); err != nil || v.boxes[0].Status != "suspended" {
		t.Errorf("with an outdated id: %v", err)
	}
	_, err = p.Open(t.Context(), "box1")
	fixture.WantClass(t, err, providers.Paused)
	if err := errors.Join(p.Pause(t.Context(), "box1"), p.Resume(t.Context(), "box1"), p.Resume(t.Context(), "box1")); err != nil ||
		v.boxes[0].Status != "running" {
		t.Errorf("resumed: %s, %v", v.boxes[0].Status, err)
	}
	_, err = p.Open(t.Context(), "box2")
	fixture.WantClass(t, err, providers.NotFound)
	if err := errors.Join(p.Delete(t.Context(), "box1"), p.Delete(t.Context(), "box1")); err != nil || len(v.ids()) != 0 {
		t.Errorf("deleted twice: %v, left are %v", err, v.ids())
	}
	p.Remember("box1", made.Ref) // Runloop goes on to show what has ended
	_, err = p.Open(t.Context(), "box1")
	fixture.WantClass(t, err, providers.NotFound)
}

// TestManyPages lists more devboxes than a page holds, in all statuses.
func TestManyPages(t *testing.T) {
	t.Parallel()
	v := newVendor(t)
	p := v.open()
	states := map[string]providers.State{
		"scheduled": providers.StateRunning, "queued": providers.StateRunning, "provisioning": providers.StateRunning,
		"initializing": providers.StateRunning, "running": providers.StateRunning, "suspending": providers.StatePaused,
		"suspended": providers.StatePaused, "resuming": providers.StateRunning, "failure": "", "shutdown": "",
	}
	for state := range states {
		for _, more := range []string{"", "1", "2", "3", "4"} {
			if _, err := p.Create(t.Context(), providers.Spec{ID: state + more}); err != nil {
				t.Fatal(err)
			}
			v.change(func() { b := v.boxes[len(v.boxes)-1]; b.Status, b.late = state, 100 })
		}
	}
	all, err := p.List(t.Context())
	if err != nil || len(all) != 5*(len(states)-2) {
		t.Errorf("got %d, %v", len(all), err)
	}
	for _, i := range all {
		if i.State != states[strings.TrimRight(i.ID, "1234")] || i.Ref == "" {
			t.Errorf("%s is listed as %+v", i.ID, i)
		}
	}
}

// TestWhatACreateAsksFor has sandboxes with and without a network, and of all sorts of templates.
func TestWhatACreateAsksFor(t *testing.T) {
	t.Parallel()
	v := newVendor(t)
	p := v.open()
	spec := providers.Spec{
		ID: "a", Network: true, Env: map[string]string{"HOME": "/home/me"}, Labels: map[string]string{"team": "x"},
	}
	for id, image := range map[string]string{"a": "", "b": "bpt_1", "c": "snp_1"} {
		if spec.ID, spec.Image = id, image; id != "a" {
			spec.Network = false
		}
		if _, err := p.Create(t.Context(), spec); err != nil {
			t.Fatal(err)
		}
		spec.Network = true
	}
	for _, b := range v.bodies {
		labels, _ := b["metadata"].(map[string]any)
		launch, _ := b["launch_parameters"].(map[string]any)
		if labels["team"] != "x" || labels["sandyard_home"] != "/home/me" || labels["sandyard_fleet"] != "fleet-1" ||
			launch["keep_alive_time_seconds"] != 172800.0 || launch["resource_size_request"] != nil || b["tunnel"] != nil {
			t.Errorf("it asks for %v", b)
		}
		switch b["name"] {
		case "sandyard-a":
			if b["blueprint_name"] != "base" || launch["network_policy_id"] != nil {
				t.Errorf("of a blueprint by its name it asks for %v", b)
			}
		case "sandyard-b":
			if b["blueprint_id"] != "bpt_1" || b["blueprint_name"] != nil || launch["network_policy_id"] != "npol_1" {
				t.Errorf("of a blueprint by its id it asks for %v", b)
			}
		case "sandyard-c":
			if b["snapshot_id"] != "snp_1" || b["blueprint_name"] != nil || launch["network_policy_id"] != "npol_1" {
				t.Errorf("of a snapshot it asks for %v", b)
			}
		}
	}
	if len(v.policies) != 1 || v.policies[0]["name"] != "sandyard-no-network" {
		t.Errorf("there are the policies %v", v.policies)
	}
}

// TestSizes: a devbox is never smaller than what was asked for, and always one that Runloop makes.
func TestSizes(t *testing.T) {
	t.Parallel()
	v := newVendor(t)
	p := v.open()
	for i, c := range []struct {
		wish              providers.Resources
		cpu, memory, disk float64
	}{
		{providers.Resources{MemoryMB: 512}, 0.5, 1, 0},
		{providers.Resources{CPUs: 0.6}, 1, 2, 0},
		{providers.Resources{CPUs: 1, MemoryMB: 1025, DiskMB: 1}, 1, 2, 2},
		{providers.Resources{CPUs: 1.5}, 2, 4, 0},
		{providers.Resources{CPUs: 3, MemoryMB: 2048}, 4, 8, 0},
		{providers.Resources{MemoryMB: 64 << 10}, 8, 64, 0},
		{providers.Resources{CPUs: 16, DiskMB: 64 << 10}, 16, 32, 64},
	} {
		if _, err := p.Create(t.Context(), providers.Spec{ID: "box" + string(rune('a'+i)), Resources: c.wish}); err != nil {
			t.Fatal(err)
		}
		l, _ := v.bodies[len(v.bodies)-1]["launch_parameters"].(map[string]any)
		disk, _ := l["custom_disk_size"].(float64)
		if l["resource_size_request"] != "CUSTOM_SIZE" || l["custom_cpu_cores"] != c.cpu || l["custom_gb_memory"] != c.memory ||
			disk != c.disk {
			t.Errorf("%+v is asked for as %v", c.wish, l)
		}
	}
	for _, wish := range []providers.Resources{{CPUs: 17}, {MemoryMB: 65 << 10}, {DiskMB: 65 << 10}, {CPUs: -1}} {
		_, err := p.Create(t.Context(), providers.Spec{ID: "toolarge", Resources: wish})
		fixture.WantClass(t, err, providers.Invalid)
	}
}

// TestPoliciesThatAreNotOurs: a policy of our name that permits something is not used, and one that was deleted is made
// again.
func TestPoliciesThatAreNotOurs(t *testing.T) {
	t.Parallel()
	v := newVendor(t)
	p := v.open()
	if _, err := p.Create(t.Context(), providers.Spec{ID: "box1"}); err != nil {
		t.Fatal(err)
	}
	v.change(func() { v.policies = nil })
	v.fault("POST /devboxes", remotetest.Refusing(400, `{"message":"no such network policy"}`))
	_, err := p.Create(t.Context(), providers.Spec{ID: "box2"})
	fixture.WantClass(t, err, providers.Invalid)
	if _, err := p.Create(t.Context(), providers.Spec{ID: "box2"}); err != nil || len(v.policies) != 1 {
		t.Errorf("%v; there are %v", err, v.policies)
	}
	v.change(func() { v.policies[0]["egress"].(map[string]any)["allowed_hostnames"] = []string{"*"} })
	_, err = v.open().Create(t.Context(), providers.Spec{ID: "box3"})
	fixture.WantClass(t, err, providers.Internal)
	if len(v.ids()) != 2 {
		t.Errorf("there are %v", v.ids())
	}
}

func TestConfiguration(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]runloop.Config{
		"no key": {Fleet: "f"}, "no fleet": {APIKey: "k"}, "key": {APIKey: "a b", Fleet: "f"},
		"url": {APIKey: "k", Fleet: "f", URL: "ftp://x"}, "tunnel": {APIKey: "k", Fleet: "f", Tunnel: "x"},
		"life": {APIKey: "k", Fleet: "f", Life: 49 * time.Hour}, "short": {APIKey: "k", Fleet: "f", Life: time.Second},
	} {
		if _, err := runloop.New(c); providers.AsError(err).Class != providers.Invalid {
			t.Errorf("%s: %v", name, err)
		}
	}
}
