package catalog_test

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"sandyard/providers"
	"sandyard/providers/accounts"
	"sandyard/providers/catalog"
	"sandyard/providers/daytona"
	"sandyard/providers/docker"
	"sandyard/providers/e2b"
	"sandyard/providers/runloop"
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

// TestAccountsAreWhatTheirProviderIs: with keys of tenants, too, a provider whose backend takes no new timeout is none
// that is told of them.
func TestAccountsAreWhatTheirProviderIs(t *testing.T) {
	t.Parallel()
	cfg := catalog.Config{
		E2B: e2b.Config{APIKey: "k", Fleet: "f"}, Daytona: daytona.Config{APIKey: "k", Fleet: "f"},
		Runloop: runloop.Config{APIKey: "k", Fleet: "f"}, Accounts: func(string) accounts.Book { return nil },
	}
	for _, name := range catalog.Keyed() {
		p, err := catalog.Open(t.Context(), name, cfg)
		if err != nil {
			t.Fatal(err)
		}
		_, pauses := p.(providers.Pauser)
		_, timer := p.(providers.Timer)
		_, referrer := p.(providers.Referrer)
		_, pings := p.(providers.Pinger)
		if !pauses || !referrer || !pings || timer != (name != "runloop") {
			t.Errorf("%s: pauses %v, takes timeouts %v, takes ids %v, answers pings %v", name, pauses, timer, referrer, pings)
		}
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}
}
