package app

import (
	"log/slog"
	"strings"
	"testing"
)

// TestAWorkerWithoutAKeyIsASetting: without it a key that is missing ends the worker, which else could not tell whether the
// operator's sandboxes are there.
func TestAWorkerWithoutAKeyIsASetting(t *testing.T) {
	t.Parallel()
	log := slog.New(slog.DiscardHandler)
	for _, provider := range []string{"e2b", "daytona", "runloop"} {
		for setting, opens := range map[string]bool{"operator": false, "": false, tenantsKeys: true} {
			f := &floor{Worker: Worker{ProviderKeys: setting, Fleet: "fleet"}, parts: &Parts{}, log: log}
			p, err := f.open(t.Context(), provider, log)
			if (err == nil) != opens {
				t.Errorf("%s with PROVIDER_KEYS=%q: %v", provider, setting, err)
			}
			if err == nil {
				err = p.Close()
			}
			if err != nil && !notAway(err) {
				t.Errorf("%s with PROVIDER_KEYS=%q: %v", provider, setting, err)
			}
		}
	}
	for setting, want := range map[string]string{"both": "must be operator or tenants", tenantsKeys: "SECRETS_KEY"} {
		if err := (Worker{ProviderKeys: setting}).Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("PROVIDER_KEYS=%q: %v", setting, err)
		}
	}
}
