package daytona_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"sandyard/providers"
	"sandyard/providers/daytona"
	"sandyard/providers/providertest/fixture"
	"sandyard/providers/remote/remotetest"
)

// TestADroppedAnswerIsAdopted: the vendor makes the sandbox and the answer is lost on its way.
func TestADroppedAnswerIsAdopted(t *testing.T) {
	t.Parallel()
	v := newVendor(t)
	v.late = 1
	p := v.open()
	if _, err := p.List(t.Context()); err != nil { // the connection is one that was used
		t.Fatal(err)
	}
	v.fault("POST /sandbox", func(_ http.ResponseWriter, r *http.Request) {
		v.drop(r)
		panic(http.ErrAbortHandler)
	})
	made, err := p.Create(t.Context(), providers.Spec{ID: "box1"})
	if err != nil || v.made != 1 || made.Ref != "vendor1" || made.ID != "box1" || made.State != providers.StateRunning ||
		made.CreatedAt.IsZero() || made.Until.IsZero() {
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
	v.fault("POST /sandbox", func(_ http.ResponseWriter, r *http.Request) {
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

// TestTwoWorkersMakeOne: the name is given once, so the second create finds the first one's sandbox, ready or not.
func TestTwoWorkersMakeOne(t *testing.T) {
	t.Parallel()
	v := newVendor(t)
	v.late = 2
	var all sync.WaitGroup
	for range 4 {
		p := v.open()
		all.Go(func() {
			if made, err := p.Create(t.Context(), providers.Spec{ID: "box1"}); err != nil || made.Ref != "vendor1" {
				t.Errorf("create: %+v, %v", made, err)
			}
		})
	}
	all.Wait()
	if left := v.ids(); !slices.Equal(left, []string{"vendor1"}) {
		t.Errorf("there are %v", left)
	}
}

// TestNothingOfOthersIsTouched: a server shows sandboxes of others in lists, and under a name that is ours.
func TestNothingOfOthersIsTouched(t *testing.T) {
	t.Parallel()
	v := newVendor(t)
	p := v.open()
	made, err := p.Create(t.Context(), providers.Spec{ID: "box1"})
	if err != nil {
		t.Fatal(err)
	}
	v.change(func() {
		v.foreign = true
		v.boxes = append(v.boxes, &vendorBox{ID: "theirs", Name: "theirs", State: "started", Labels: map[string]string{
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
	if err := p.Delete(t.Context(), "box2"); err != nil {
		t.Error(err)
	}
	v.change(func() { v.boxes[0].Labels = map[string]string{} }) // somebody has taken them away
	if err := p.Delete(t.Context(), "box1"); err != nil || !slices.Equal(v.ids(), []string{"vendor1", "theirs"}) {
		t.Errorf("left are %v, %v", v.ids(), err)
	}
	_, err = p.Create(t.Context(), providers.Spec{ID: "box1"})
	fixture.WantClass(t, err, providers.Busy)
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
	if err := p.Pause(t.Context(), "box1"); err != nil || v.boxes[0].State != "stopped" {
		t.Errorf("with an outdated id: %v", err)
	}
	_, err = p.Open(t.Context(), "box2")
	fixture.WantClass(t, err, providers.NotFound)
	if err := errors.Join(p.Delete(t.Context(), "box1"), p.Delete(t.Context(), "box1")); err != nil || len(v.ids()) != 0 {
		t.Errorf("deleted twice: %v, left are %v", err, v.ids())
	}
}

// TestTheVendorsClock: the time to live is asked for in minutes, and no paused sandbox is removed by it.
func TestTheVendorsClock(t *testing.T) {
	t.Parallel()
	v := newVendor(t)
	p := v.open()
	for id, c := range map[string]struct {
		timeout time.Duration
		want    int
	}{"a": {90 * time.Second, 2}, "b": {0, 25 * 60}, "c": {48 * time.Hour, 48 * 60}, "d": {time.Millisecond, 1}} {
		if _, err := p.Create(t.Context(), providers.Spec{ID: id, Timeout: c.timeout}); err != nil ||
			v.boxes[len(v.boxes)-1].ttl != c.want {
			t.Errorf("a timeout of %v is asked for as %d min, %v", c.timeout, v.boxes[len(v.boxes)-1].ttl, err)
		}
	}
	one := v.boxes[0]
	id := one.Labels["sandyard_sandbox"]
	for left, want := range map[time.Duration]int{0: 1, 10 * time.Minute: 10, 61 * time.Second: 2} {
		if err := p.SetTimeout(t.Context(), id, left); err != nil || one.ttl != want {
			t.Errorf("%v is set as %d min, %v", left, one.ttl, err)
		}
	}
	ctx := t.Context()
	err := errors.Join(p.Pause(ctx, id), p.SetTimeout(ctx, id, time.Minute), p.Pause(ctx, id))
	if err != nil || one.ttl != 0 || one.State != "stopped" {
		t.Errorf("while it is paused: %d min, %s, %v", one.ttl, one.State, err)
	}
	_, err = p.Open(ctx, id)
	fixture.WantClass(t, err, providers.Paused)
	if err := errors.Join(p.Resume(ctx, id), p.Resume(ctx, id)); err != nil || one.ttl != 25*60 || one.State != "started" {
		t.Errorf("resumed: %d min, %s, %v", one.ttl, one.State, err)
	}
	v.change(func() { one.ttl = 0 }) // as a worker leaves it that dies between the two calls
	if err := p.Resume(ctx, id); err != nil || one.ttl != 25*60 {
		t.Errorf("resumed once more: %d min, %v", one.ttl, err)
	}
	fixture.WantClass(t, p.SetTimeout(ctx, "none", time.Minute), providers.NotFound)
	fixture.WantClass(t, p.SetTimeout(ctx, "../x", time.Minute), providers.NotFound)
	v.always("POST {id}/ttl", remotetest.Refusing(400, body("the organization's maximum lifespan cannot be disabled")))
	if err := errors.Join(p.Pause(ctx, id), p.Resume(ctx, id)); err != nil {
		t.Errorf("at an account that insists on a time to live: %v", err)
	}
	for _, status := range []int{404, 501} {
		v.always("POST {id}/ttl", remotetest.Refusing(status, body("Cannot POST /ttl/1")))
		if err := errors.Join(p.Pause(ctx, id), p.Resume(ctx, id)); err != nil {
			t.Errorf("at an older server, which answers %d: %v", status, err)
		}
		fixture.WantClass(t, p.SetTimeout(ctx, id, time.Minute), providers.NotSupported)
	}
}

// TestManyPages lists more sandboxes than a page holds, in all states.
func TestManyPages(t *testing.T) {
	t.Parallel()
	v := newVendor(t)
	p := v.open()
	states := map[string]providers.State{
		"started": providers.StateRunning, "creating": providers.StateRunning, "stopped": providers.StatePaused,
		"archived": providers.StatePaused, "error": providers.StateStopped, "destroying": "",
	}
	for state := range states {
		if _, err := p.Create(t.Context(), providers.Spec{ID: strings.ReplaceAll(state, "_", "")}); err != nil {
			t.Fatal(err)
		}
		v.change(func() { b := v.boxes[len(v.boxes)-1]; b.State, b.late = state, 100 })
	}
	all, err := p.List(t.Context())
	if err != nil || len(all) != len(states)-1 {
		t.Errorf("got %+v, %v", all, err)
	}
	for _, i := range all {
		if i.State != states[i.ID] || (i.Ended == "") != (i.ID != "error") {
			t.Errorf("%s is listed as %+v", i.ID, i)
		}
	}
}

// TestWhatACreateAsksFor has sandboxes of snapshots, whose size nobody can choose, and of images.
func TestWhatACreateAsksFor(t *testing.T) {
	t.Parallel()
	v := newVendor(t)
	p := v.open()
	size := providers.Resources{CPUs: 1.5, MemoryMB: 1025, DiskMB: 1024}
	spec := providers.Spec{
		ID: "a", Resources: size, Network: true,
		Env: map[string]string{"HOME": "/home/me"}, Labels: map[string]string{"team": "x"},
	}
	if _, err := p.Create(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	spec.ID, spec.Image, spec.Network = "b", daytona.ImagePrefix+"python:3.12-slim", false
	if _, err := p.Create(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	a, b := v.boxes[0].body, v.boxes[1].body
	for _, field := range []string{"cpu", "memory", "disk", "buildInfo"} {
		if a[field] != nil {
			t.Errorf("of a snapshot %s is asked for: %v", field, a)
		}
	}
	labels, _ := a["labels"].(map[string]any)
	if a["snapshot"] != "base" || a["networkBlockAll"] != false || a["public"] != false || a["target"] != "us" ||
		a["autoStopInterval"] != 0.0 || a["autoDeleteInterval"] != -1.0 || labels["team"] != "x" ||
		labels["sandyard_home"] != "/home/me" || labels["sandyard_fleet"] != "fleet-1" {
		t.Errorf("of a snapshot it asks for %v", a)
	}
	build, _ := b["buildInfo"].(map[string]any)
	if b["snapshot"] != nil || build["dockerfileContent"] != "FROM python:3.12-slim\n" || b["networkBlockAll"] != true ||
		b["cpu"] != 2.0 || b["memory"] != 2.0 || b["disk"] != 1.0 {
		t.Errorf("of an image it asks for %v", b)
	}
}

// scripts is what the spool sees of a sandbox.
type scripts interface {
	Script(ctx context.Context, user, text string, limit int64) ([]byte, error)
}

// TestScripts: what a script prints comes back byte by byte, whatever reads the line and whoever is to run it.
func TestScripts(t *testing.T) {
	t.Parallel()
	v := newVendor(t)
	p := v.open()
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
		`echo sandyard-end`:                           "sandyard-end\n",
		`cat; pwd`:                                    "/\n",
		`true`:                                        "",
	} {
		if out, err := run.Script(t.Context(), "", text, 100); err != nil || string(out) != want {
			t.Errorf("%s: %q, %v", text, out, err)
		}
	}
	_, err = run.Script(t.Context(), "", "yes", 1000)
	fixture.WantClass(t, err, providers.TooLarge)
	for _, user := range []string{"no-such-user-here", "a b", "$(id)"} {
		_, err = run.Script(t.Context(), user, "true", 100)
		fixture.WantClass(t, err, providers.NoUser)
	}
	if os.Getuid() != 0 {
		t.Log("other users are not tried: the tests do not run as root")
		return
	}
	for user, want := range map[string]string{"root": "root\n", "nobody": "nobody\n"} {
		if out, err := run.Script(t.Context(), user, "id -un", 100); err != nil || string(out) != want {
			t.Errorf("as %s: %q, %v", user, out, err)
		}
	}
}

// opened is a sandbox whose work directory is a directory of this machine's /tmp.
func opened(t *testing.T, v *vendor) (box providers.Sandbox, dir string) {
	t.Helper()
	p := v.open()
	if _, err := p.Create(t.Context(), providers.Spec{ID: "box1"}); err != nil {
		t.Fatal(err)
	}
	box, err := p.Open(t.Context(), "box1")
	if err != nil {
		t.Fatal(err)
	}
	if dir, err = os.MkdirTemp("/tmp", "sandyard-test-"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return box, dir
}

// TestFilesOfAnySize go in parts, come by a download or, where the toolbox does not give it, in pieces, and leave nothing.
func TestFilesOfAnySize(t *testing.T) {
	t.Parallel()
	v := newVendor(t)
	box, dir := opened(t, v)
	data := bytes.Repeat([]byte("0123456789abcde\n"), 6<<16) // 6 MiB
	for name, size := range map[string]int{"empty": 0, "typed": 1000, "part": 100_000, "parts": len(data)} {
		at, want := dir+"/deep/"+name, data[:size]
		v.calls()
		if info, err := box.SaveFile(t.Context(), at, bytes.NewReader(want), -1, 0o640); err != nil ||
			info.Size != int64(size) || info.Mode != "0640" || info.Path != at {
			t.Errorf("%s: saved %+v, %v", name, info, err)
		}
		uploads := slices.DeleteFunc(v.calls(), func(what string) bool { return what != "files/bulk-upload" })
		if most := map[string]int{"part": 1, "parts": 2}[name]; len(uploads) != most {
			t.Errorf("%s: %d uploads, want %d", name, len(uploads), most)
		}
		for _, refused := range []bool{false, true} {
			if refused {
				v.fault("files/download", remotetest.Refusing(403, coded("FILE_ACCESS_DENIED", "no")))
			}
			if got, err := box.ReadFile(t.Context(), at, int64(len(data))); err != nil || !bytes.Equal(got, want) {
				t.Errorf("%s, download refused: %v: %d bytes, %v", name, refused, len(got), err)
			}
			v.fault("files/download", nil)
		}
	}
	f, err := box.OpenFile(t.Context(), dir+"/deep/parts", 16, 5<<20)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(f); err != nil || !bytes.Equal(got, data[16:16+5<<20]) || f.Size != int64(len(data)) {
		t.Errorf("a part of it: %d bytes of %d, %v", len(got), f.Size, err)
	}
	if entries, err := os.ReadDir(dir + "/deep"); err != nil || len(entries) != 4 {
		t.Errorf("the directory holds %v, %v", entries, err)
	}
	for _, part := range v.sent {
		if _, err := os.Stat(part); err == nil {
			t.Errorf("%s is left of an upload", part)
		}
	}
}

// TestAFileThatChangesIsNotMixed: what comes in pieces is one file's content, or an error.
func TestAFileThatChangesIsNotMixed(t *testing.T) {
	t.Parallel()
	v := newVendor(t)
	box, dir := opened(t, v)
	at := dir + "/f"
	for _, old := range []bool{true, false} {
		if err := os.WriteFile(at, bytes.Repeat([]byte("old "), 3<<20), 0o600); err != nil {
			t.Fatal(err)
		}
		v.fault("files/download", remotetest.Refusing(404, ""))
		f, err := box.OpenFile(t.Context(), at, 0, -1)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(f, make([]byte, 100)); err != nil {
			t.Fatal(err)
		}
		if !old {
			if err := errors.Join(os.Remove(at), os.WriteFile(at, bytes.Repeat([]byte("new "), 3<<20), 0o600)); err != nil {
				t.Fatal(err)
			}
		}
		if _, err = io.Copy(io.Discard, f); (err == nil) != old {
			t.Errorf("unchanged: %v, read to its end with %v", old, err)
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestWhatIsInADirectory tells names and links of any bytes.
func TestWhatIsInADirectory(t *testing.T) {
	t.Parallel()
	v := newVendor(t)
	box, dir := opened(t, v)
	for _, name := range []string{"plain", "new\nline", "sandyard quote'\"$(x)", "-rf"} {
		if err := os.WriteFile(dir+"/"+name, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.Symlink("a\\nb\nc ", dir+"/link"), os.Mkdir(dir+"/sub", 0o700), os.Symlink("plain", dir+"/sub/up")); err != nil {
		t.Fatal(err)
	}
	list, err := box.ListDir(t.Context(), dir, 2)
	if err != nil || len(list) != 7 {
		t.Fatalf("listed %d, %v: %+v", len(list), err, list)
	}
	for _, f := range list {
		info, err := box.Stat(t.Context(), f.Path)
		if err != nil || info != f {
			t.Errorf("listed as %+v, described as %+v, %v", f, info, err)
		}
		if f.Name == "link" && (f.Type != "symlink" || f.SymlinkTarget != "a\\nb\nc ") || f.Name == "up" && f.SymlinkTarget != "plain" {
			t.Errorf("a link is %+v", f)
		}
	}
}
