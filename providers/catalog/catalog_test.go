package catalog_test

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"sandyard/providers"
	"sandyard/providers/catalog"
	"sandyard/providers/docker"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestUnknownNameSaysWhichThereAre(t *testing.T) {
	t.Parallel()
	_, err := catalog.Open(t.Context(), "dokcer", catalog.Config{})
	e := providers.AsError(err)
	if e.Class != providers.Invalid || !strings.Contains(e.Message, "docker") {
		t.Errorf("got %v", err)
	}
}

func TestConfigReachesItsProvider(t *testing.T) {
	t.Parallel()
	if !slices.Contains(catalog.Names(), "docker") {
		t.Fatalf("names: %v", catalog.Names())
	}
	dir := t.TempDir()
	_, err := catalog.Open(t.Context(), "docker", catalog.Config{Docker: docker.Config{Fleet: "f", Guest: os.DirFS(dir)}})
	var e *providers.Error
	if !errors.As(err, &e) || !strings.Contains(e.Message, "no guest binary in "+dir) {
		t.Errorf("got %v, want a complaint about the missing guest", err)
	}
}
