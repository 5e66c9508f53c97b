package docker_test

import (
	"context"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sandyard/providers"
)

// TestErrorsDoNotNameTheSocket: users read these errors, and where the engine listens is none of theirs.
func TestErrorsDoNotNameTheSocket(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	p, x := y.behindProxy(t)
	id, box := create(t, p)
	check := func(what string, err error) {
		t.Helper()
		if err == nil {
			t.Errorf("%s: no error", what)
			return
		}
		if said := providers.AsError(err).Message; strings.Contains(said, t.Name()) || strings.Contains(said, filepath.Base(x.host)) {
			t.Errorf("%s says where: %s", what, said)
		}
	}
	late, stop := context.WithTimeout(t.Context(), time.Millisecond)
	defer stop()
	<-late.Done()
	_, err := p.List(late)
	check("a list too late", err)
	ended := make(chan error, 1)
	go func() {
		_, err := box.Run(t.Context(), providers.Command{Name: "long", Shell: "touch begun; sleep 600"})
		ended <- err
	}()
	await(t, func() bool { _, err := box.Stat(t.Context(), "begun"); return err == nil })
	x.cutAt(func(r *http.Request) cutPoint {
		return map[bool]cutPoint{true: before}[strings.HasSuffix(r.URL.Path, "/pause")]
	})
	check("a pause that breaks off", p.Pause(t.Context(), id))
	check("a command whose link ends", <-ended)
	_, err = p.List(t.Context())
	check("list", err)
	_, err = p.Create(t.Context(), providers.Spec{ID: newID(), Image: image})
	check("create", err)
	_, err = p.Open(t.Context(), id)
	check("open", err)
	check("delete", p.Delete(t.Context(), id))
	_, err = box.Stat(t.Context(), "begun")
	check("a file call", err)
	_, err = p.Built(t.Context())
	check("images", err)
}
