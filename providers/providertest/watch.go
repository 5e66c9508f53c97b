package providertest

import (
	"context"
	"errors"
	"testing"

	"sandyard/providers"
	"sandyard/providers/providertest/fixture"
)

// watch checks that a directory tells what happens to it, where the provider's sandboxes can be watched.
func watch(t *testing.T, s *fixture.Suite) {
	if s.Caps.Files == providers.Unsupported {
		t.Skip("skipped: the provider declares files unsupported")
	}
	r := s.NewRoom(t)
	w, ok := r.Sandbox.(providers.Watcher)
	if !ok {
		t.Skip("skipped: this provider's sandboxes cannot be watched")
	}
	fixture.MustWrite(t, r, "watched/f", "x")
	fixture.WantClass(
		t,
		w.Watch(fixture.Within(t), "none", false, func(providers.FileEvent) error { return nil }),
		providers.FileNotFound,
	)
	fixture.WantClass(
		t,
		w.Watch(fixture.Within(t), "../etc", false, func(providers.FileEvent) error { return nil }),
		providers.InvalidPath,
	)
	seen, changed := map[providers.FileEvent]bool{}, make(chan error, 1)
	err := w.Watch(fixture.Within(t), "watched", true, func(e providers.FileEvent) error {
		if e.Op == providers.FileReady {
			go func() {
				_, err := r.Run(
					fixture.Within(t),
					providers.Command{
						Name:  fixture.NewID(t),
						Shell: "cd watched && mkdir -p a/b && echo x >a/b/new && echo y >>f && mv f g && rm g",
					},
				)
				changed <- err
			}()
		}
		seen[e] = true
		if e == (providers.FileEvent{Op: providers.FileRemoved, Name: "g"}) {
			return fixture.ErrSeen
		}
		return nil
	})
	if failed := <-changed; failed != nil || !errors.Is(err, fixture.ErrSeen) {
		t.Errorf("watch: %v, %v", err, failed)
	}
	for _, e := range []providers.FileEvent{
		{Op: "ready"},
		{Op: "create", Name: "a"},
		{Op: "create", Name: "a/b"},
		{Op: "create", Name: "a/b/new"},
		{Op: "write", Name: "f"},
		{Op: "rename", Name: "f"},
		{Op: "create", Name: "g"},
	} {
		if !seen[e] {
			t.Errorf("%v was not told", e)
		}
	}
	ctx, cancel := context.WithCancel(fixture.Within(t))
	err = w.Watch(ctx, "watched", false, func(providers.FileEvent) error { cancel(); return nil })
	if err == nil || ctx.Err() == nil {
		t.Errorf("a watch that was given up: %v", err)
	}
	err = w.Watch(fixture.Within(t), "watched", false, func(e providers.FileEvent) error {
		if e.Op == providers.FileReady {
			return r.Remove(fixture.Within(t), "watched")
		}
		return nil
	})
	fixture.WantClass(t, err, providers.FileNotFound)
}
