package envd_test

import (
	"testing"
	"time"

	"sandyard/dev/testenv"
	"sandyard/providers"
	"sandyard/providers/envd"
)

func TestAClaimGivesTheEnvironment(t *testing.T) {
	t.Parallel()
	e := startEngine(t, guestAsProcess1(), "-unclaimed", "1m")
	first := e.sandbox(envd.Options{})
	for _, bad := range []string{"", "A=B", "A\x00"} {
		if err := first.Claim(t.Context(), map[string]string{bad: "x"}); providers.AsError(err).Class != providers.Invalid {
			t.Errorf("a claim with variable %q: %v", bad, err)
		}
	}
	must(t, first.Claim(t.Context(), map[string]string{"OWNER": "one", "PATH": ""}))
	must(t, first.Claim(t.Context(), map[string]string{"OWNER": "two", "LATE": "x"}))
	another := e.sandbox(envd.Options{})
	res, err := another.Run(t.Context(), providers.Command{Name: "env", Shell: `echo "$OWNER $LATE"; ls / >/dev/null`})
	if err != nil || res.ExitCode != 0 || string(res.Stdout) != "one \n" {
		t.Errorf("another worker sees %q (%d), %v", res.Stdout, res.ExitCode, err)
	}
}

func TestAGuestOfItsOwnerIsClaimed(t *testing.T) {
	t.Parallel()
	box := newEngine(t).sandbox(envd.Options{})
	must(t, box.Claim(t.Context(), map[string]string{"LATE": "x"}))
	res, err := box.Run(t.Context(), providers.Command{Name: "env", Shell: `echo "[$LATE]"`})
	if err != nil || string(res.Stdout) != "[]\n" {
		t.Errorf("got %q, %v", res.Stdout, err)
	}
}

func TestAnUnclaimedGuestLivesWhileItIsSpokenTo(t *testing.T) {
	testenv.Long(t, "its verdict hangs on the clock")
	t.Parallel()
	const patience = time.Second
	kept := startEngine(t, guestAsProcess1(), "-unclaimed", patience.String()).sandbox(envd.Options{})
	claimed := startEngine(t, guestAsProcess1(), "-unclaimed", patience.String()).sandbox(envd.Options{})
	must(t, claimed.Claim(t.Context(), nil))
	left := startEngine(t, guestAsProcess1(), "-unclaimed", patience.String()).sandbox(envd.Options{})
	must(t, left.Ping(t.Context()))

	tick := time.NewTicker(patience / 10)
	defer tick.Stop()
	for since := time.Now(); time.Since(since) < 2*patience; <-tick.C {
		must(t, kept.Ping(t.Context()))
	}
	select {
	case <-left.Done():
	case <-time.After(10 * patience):
		t.Error("nobody spoke to the guest, and it lives on")
	}
	must(t, claimed.Ping(t.Context()))
}
