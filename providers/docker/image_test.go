package docker_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/docker/docker/api/types/container"

	"sandyard/providers"
	"sandyard/providers/docker"
	"sandyard/providers/docker/pool"
)

// victim makes, for as long as the yard is there, a container that never runs and has no network, with a secret in its environment.
func (y *yard) victim(t *testing.T) (name, id string) {
	t.Helper()
	name = "victim-" + newID()
	made, err := y.api.ContainerCreate(t.Context(), &container.Config{
		Image: image, Env: []string{"SECRET=hunter2"}, Entrypoint: []string{"/never"}, NetworkDisabled: true,
		Labels: map[string]string{"sandyard.fleet": y.fleet},
	}, &container.HostConfig{NetworkMode: "none"}, nil, nil, name)
	if err != nil {
		t.Fatal(err)
	}
	return name, made.ID
}

// TestNamesOfImagesReachNothingElse asks for a container by a path, and for images by their ids and by prefixes of them.
func TestNamesOfImagesReachNothingElse(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	p := y.open(t)
	victim, victimID := y.victim(t)
	held, err := y.api.ImageInspect(t.Context(), image)
	if err != nil {
		t.Fatal(err)
	}
	hex := strings.TrimPrefix(held.ID, "sha256:")
	names := []string{
		"../containers/" + victim, "../containers/" + victimID[:6], "sandyard/../../containers/" + victim, "../distribution/127.0.0.1:9/x",
		held.ID, hex, hex[:12], "sha256:" + hex[:8], "sha256:" + hex[:12], image + "?x=y", image + "#", image + "\x00", image + "/..",
	}
	for n := 1; n < 12; n++ { // an engine takes any prefix that only one image has
		names = append(names, hex[:n])
	}
	for _, name := range names {
		found, err := p.Image(t.Context(), name)
		if class := classOf(err); class != providers.Invalid && class != providers.ImageMissing {
			t.Errorf("%q is an image: %v, %+v", name, err, found)
		}
		if err != nil && (strings.Contains(err.Error(), "hunter2") || len(err.Error()) > 700) {
			t.Errorf("%q: %v", name, err)
		}
		_, err = p.Create(t.Context(), providers.Spec{ID: newID(), Image: name})
		if class := classOf(err); class != providers.Invalid && class != providers.ImageMissing {
			t.Errorf("a sandbox of %q: %v", name, err)
		}
		b := y.building(t, "true")
		b.From = name
		err = p.Build(t.Context(), b, &bytes.Buffer{})
		if class := classOf(err); class != providers.Invalid && class != providers.ImageMissing {
			t.Errorf("a build from %q: %v", name, err)
		}
		if err := p.Ensure(t.Context(), name); err == nil {
			t.Errorf("%q is taken for the image of a template", name)
		}
	}
	for _, name := range []string{image, "docker.io/" + image, "index.docker.io/" + image} {
		if _, err := p.Image(t.Context(), name); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestOldEnginesAreRefused: what shares the machine's kernel does not run on an engine that has known escapes.
func TestOldEnginesAreRefused(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	engine, err := y.api.ServerVersion(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if docker.Outdated(engine) == nil {
		t.Skip("skipped: this machine's engine has no known escape")
	}
	p, err := docker.New(t.Context(), docker.Config{Fleet: y.fleet, Guest: guestFiles(t), Pool: pool.Config{Size: 1}})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	_, made := p.Create(t.Context(), providers.Spec{ID: newID(), Image: image})
	built := p.Build(t.Context(), y.building(t, "true"), &bytes.Buffer{})
	for what, err := range map[string]error{"a sandbox": made, "a build": built} {
		if classOf(err) != providers.NotSupported || !strings.Contains(err.Error(), "CVE-") || !strings.Contains(err.Error(), "ENGINE_UNSAFE") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := p.Ensure(t.Context(), image); err != nil || p.Waiting() != 0 {
		t.Errorf("the image: %v, %d wait", err, p.Waiting())
	}
}
