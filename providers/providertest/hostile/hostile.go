// Package hostile runs programs that try to break out of a sandbox, exhaust it or harm its neighbours.
package hostile

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"sandyard/dev/testenv"
	"sandyard/providers"
	"sandyard/providers/providertest/fixture"
)

// Run runs hostile programs in real sandboxes of the provider that open returns. Each must fail, and leave a sandbox
// that goes on or has ended cleanly; other sandboxes and the machine stay untouched.
func Run(t *testing.T, open func(t *testing.T) providers.Provider, o fixture.Options) {
	t.Helper()
	s := fixture.New(t, open, o)
	for _, attack := range []struct {
		name string
		run  func(*testing.T, *fixture.Suite)
	}{
		{"fork bomb", forkBomb},
		{"processes are counted", processesAreCounted},
		{"memory hog", memoryHog},
		{"many small hogs", smallHogs},
		{"memory of nobody", keptMemory},
		{"all files at once", allFiller},
		{"disk filler", diskFiller},
		{"filler of temporary files", tempFiller},
		{"filler of inodes", inodeFiller},
		{"open files", fileHoarder},
		{"much output", gibibyteOfOutput},
		{"processor hog", processorHog},
		{"system calls", systemCalls},
		{"the machine's files", machinesFiles},
		{"becoming root", becomingRoot},
		{"network", noNetwork},
		{"links", links},
		{"links that change", flippingLinks},
		{"beset guest", besetGuest},
		{"limited guest", limitedGuest},
		{"killed guest", killedGuest},
		{"forged faults", forgedFaults},
		{"signals without end", signalsWithoutEnd},
		{"false guest", falseGuest},
		{"the guest's calls", guestsCalls},
		{"neighbours", neighbours},
	} {
		t.Run(attack.name, func(t *testing.T) {
			if testing.Short() && !shortHostile(attack.name) {
				t.Skip("left to make verify: not in the short list of hostile programs")
			}
			t.Parallel()
			attack.run(t, s)
		})
	}
}

// shortHostile says whether a hostile program is one of those that also run where tests are to be short: one for each
// resource, and those that go for the guest and for the neighbours.
func shortHostile(name string) bool {
	return slices.Contains([]string{
		"fork bomb", "memory hog", "disk filler", "open files", "becoming root", "network", "links", "killed guest",
		"neighbours",
	}, name)
}

// python is a command that runs a program, with args in sys.argv.
func python(program string, args ...string) providers.Command {
	return providers.Command{Argv: append([]string{"python3", "-c", program}, args...), Timeout: 5 * time.Minute}
}

// goesOn fails unless the sandbox takes commands and files.
func goesOn(t *testing.T, r fixture.Room) {
	t.Helper()
	if res := fixture.Shell(t, r, "echo on"); string(res.Stdout) != "on\n" || res.OOMKilled {
		t.Errorf("afterwards got %s", fixture.Show(res))
	}
	if _, err := r.Stat(fixture.Within(t), "."); err != nil {
		t.Errorf("afterwards stat: %v", err)
	}
}

// endsCleanly fails unless the sandbox is told to have died, can be removed, and was not ended for something else.
func endsCleanly(t *testing.T, r fixture.Room, err error, why string) {
	t.Helper()
	if !errors.Is(err, providers.ErrLost) || !strings.Contains(err.Error(), why) {
		t.Errorf("the command answers %v; want ErrLost that speaks of %q", err, why)
	}
	if _, err := r.Worker.Open(fixture.Within(t), r.ID); !errors.Is(err, providers.ErrLost) {
		t.Errorf("open answers %v, want ErrLost", err)
	}
	fixture.Discard(t, r.Worker, r.ID)
}

// said are the lines that a program printed, as "name rest".
func said(res providers.Result) map[string]string {
	lines := map[string]string{}
	for line := range strings.Lines(string(res.Stdout)) {
		name, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		lines[name] = rest
	}
	return lines
}

// until runs cmd beside the test, and returns when ready is true of the sandbox. The answer comes when it ends.
func until(t *testing.T, r fixture.Room, cmd providers.Command, ready func() bool) <-chan error {
	t.Helper()
	cmd.Name = fixture.NewID(t)
	ended := make(chan error, 1)
	ctx, stop := context.WithCancel(t.Context())
	t.Cleanup(stop)
	go func() {
		_, err := r.Run(ctx, cmd)
		ended <- err
	}()
	testenv.Eventually(t, "the program is at work", ready)
	return ended
}
