package local_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sandyard/providers"
	"sandyard/providers/local"
	"sandyard/providers/providertest"
	"sandyard/providers/providertest/fixture"
	"sandyard/providers/providertest/hostile"
)

func TestConformance(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	providertest.Run(t, func(t *testing.T) providers.Provider { t.Helper(); return y.open(t) }, fixture.Options{
		Image:  image,
		Script: fixture.Bash(),
		System: true,
		Limits: true,
	})
}

func TestHostile(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	hostile.Run(t, func(t *testing.T) providers.Provider { t.Helper(); return y.open(t) }, fixture.Options{
		Image:  image,
		System: true,
		Limits: true,
	})
}

func TestEngine(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	a, b, other := y.open(t), y.open(t), newYard(t).open(t)
	idA, errA := a.EngineID(t.Context())
	idB, errB := b.EngineID(t.Context())
	if errA != nil || errB != nil || idA == "" || idA != idB {
		t.Errorf("two workers see the directory as %q (%v) and %q (%v)", idA, errA, idB, errB)
	}
	if id, err := other.EngineID(t.Context()); err != nil || id == idA {
		t.Errorf("another directory is %q, %v", id, err)
	}
	err := a.Ensure(t.Context(), "sandyard/none:none")
	if classOf(err) != providers.ImageMissing || !strings.Contains(err.Error(), "make tree") {
		t.Errorf("ensure of what is missing answers %v", err)
	}
	for _, name := range []string{".", "..", "../images", "a/../b", "%2e%2e"} {
		if err := a.Ensure(t.Context(), name); classOf(err) != providers.Invalid {
			t.Errorf("ensure of %q answers %v", name, err)
		}
	}
}

func TestItSaysWhatItIsNot(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	var log bytes.Buffer
	p := y.openWith(t, local.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if got := log.String(); !strings.Contains(got, "NOT A PRODUCTION BOUNDARY") || !strings.Contains(got, "level=WARN") {
		t.Errorf("the log says %q", got)
	}
	if p.Capabilities().Warning == "" {
		t.Error("the capabilities hold no warning")
	}
	if free, err := p.DiskFree(t.Context()); err != nil || free <= 0 {
		t.Errorf("of its disk %d bytes are free: %v", free, err)
	}
}

func TestOtherFleetsAreLeftAlone(t *testing.T) {
	t.Parallel()
	mine := newYard(t)
	theirs := &yard{dir: mine.dir, fleet: mine.fleet + "-theirs"}
	p, q := mine.open(t), theirs.open(t)
	id, box := create(t, q)
	defer func() {
		if err := q.Delete(context.WithoutCancel(t.Context()), id); err != nil {
			t.Error(err)
		}
	}()
	if _, err := p.Open(t.Context(), id); !errors.Is(err, providers.ErrNotFound) {
		t.Errorf("open answers %v", err)
	}
	if err := p.Delete(t.Context(), id); err != nil {
		t.Errorf("delete: %v", err)
	}
	if found, err := p.List(t.Context()); err != nil || len(found) != 0 {
		t.Errorf("listed %v, %v", found, err)
	}
	if got := shell(t, box, "echo on"); got != "on" {
		t.Errorf("the other fleet's sandbox says %q", got)
	}
	// The same id in both is two sandboxes.
	if _, err := p.Create(t.Context(), providers.Spec{ID: id, Image: image}); err != nil {
		t.Fatal(err)
	}
	shell(t, open(t, p, id), "touch mine")
	if got := shell(t, box, "ls"); got != "" {
		t.Errorf("the other fleet's sandbox holds %q", got)
	}
}

func TestWorkDirectory(t *testing.T) {
	t.Parallel()
	p := newYard(t).open(t)
	id := newID()
	if _, err := p.Create(t.Context(), providers.Spec{ID: id, Image: image, WorkDir: "/data/my work"}); err != nil {
		t.Fatal(err)
	}
	box := open(t, p, id)
	if info, err := box.WriteFile(t.Context(), "sub/f", []byte("x"), 0); err != nil || info.Path != "/data/my work/sub/f" {
		t.Errorf("write: %+v, %v", info, err)
	}
	if got := shell(t, box, `pwd; echo "$HOME"; cat sub/f`); got != "/data/my work\n/data/my work\nx" {
		t.Errorf("got %q", got)
	}
	for _, dir := range []string{"/", "/usr", "/proc/x", "/tmp", "/.sandyard", "/a/../etc", "/a:b", "rel"} {
		if _, err := p.Create(t.Context(), providers.Spec{ID: newID(), Image: image, WorkDir: dir}); classOf(err) != providers.Invalid {
			t.Errorf("work directory %q: %v, want class %s", dir, err, providers.Invalid)
		}
	}
}

func TestDialPort(t *testing.T) {
	t.Parallel()
	_, box := create(t, newYard(t).open(t))
	dialer, ok := box.(interface {
		DialPort(ctx context.Context, port uint16) (net.Conn, error)
	})
	if !ok {
		t.Fatal("the sandbox reaches no ports")
	}
	if _, err := dialer.DialPort(t.Context(), 8000); classOf(err) != providers.Invalid {
		t.Errorf("dialling a port nobody listens on answers %v", err)
	}
	shell(t, box, "echo hello >index.html; setsid python3 -m http.server -b 127.0.0.1 8000 >/dev/null 2>&1 </dev/null &")
	web := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return dialer.DialPort(ctx, 8000)
	}}}
	defer web.CloseIdleConnections()
	var page []byte
	await(t, func() bool {
		answer, err := web.Get("http://sandbox/")
		if err != nil {
			return false
		}
		defer answer.Body.Close()
		page, err = io.ReadAll(answer.Body)
		return err == nil
	})
	if string(page) != "hello\n" {
		t.Errorf("got %q", page)
	}
}

// TestImageCannotLeadMountsAstray gives the image links where the sandbox mounts its own things.
func TestImageCannotLeadMountsAstray(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	p := y.open(t)
	outside := t.TempDir()
	tree := y.addImage(t, "trap")
	for _, name := range []string{"proc", "sys", "dev", "tmp", "etc", "workspace", ".sandyard"} {
		if err := os.Symlink(outside, filepath.Join(tree, name)); err != nil {
			t.Fatal(err)
		}
	}
	id := newID()
	if _, err := p.Create(t.Context(), providers.Spec{ID: id, Image: "trap"}); err != nil {
		t.Fatal(err)
	}
	box := open(t, p, id)
	if _, err := box.WriteFile(t.Context(), "/workspace/f", []byte("x"), 0); err != nil {
		t.Error(err)
	}
	res, err := box.Run(t.Context(), providers.Command{Name: "own", Argv: []string{"/.sandyard/guest", "version"}})
	if err != nil || res.ExitCode != 0 {
		t.Errorf("the guest's own program: %+v, %v", res, err)
	}
	if found, err := os.ReadDir(outside); err != nil || len(found) != 0 {
		t.Errorf("the host's directory holds %v, %v", found, err)
	}
}
