package app

import (
	"log/slog"
	"testing"

	"sandyard/dev/testenv"
	"sandyard/models"
)

// TestInstallationsHaveNamesOfTheirOwn, so that on one engine none removes what is another's.
func TestInstallationsHaveNamesOfTheirOwn(t *testing.T) {
	t.Parallel()
	quiet := slog.New(slog.DiscardHandler)
	name := func(p *Parts, given string) string {
		w := Worker{Fleet: given}
		if err := w.nameFleet(t.Context(), p, quiet); err != nil {
			t.Fatal(err)
		}
		return w.Fleet
	}
	install := func() *Parts {
		store, err := models.Open(t.Context(), testenv.Database(t), 2, models.Limits{Window: 1})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = store.Close() })
		if err := store.Migrate(t.Context(), quiet); err != nil {
			t.Fatal(err)
		}
		return &Parts{Store: store}
	}
	one, other := install(), install()
	if a, b := name(one, ""), name(other, ""); a == "" || a == b || name(one, "") != a {
		t.Errorf("two installations are %q and %q, and the first is %q later", a, b, name(one, ""))
	}
	if given := name(one, "mine"); given != "mine" {
		t.Errorf("one that the operator names is %q", given)
	}
}
