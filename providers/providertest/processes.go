package providertest

import (
	"slices"
	"testing"
	"time"

	"sandyard/providers"
	"sandyard/providers/providertest/fixture"
)

// processes checks that every process is told of and can be sent a signal, where the provider's sandboxes do that.
func processes(t *testing.T, s *fixture.Suite) {
	r := s.NewRoom(t)
	in, ok := r.Sandbox.(providers.Processes)
	b, background := r.Sandbox.(providers.Background)
	if !ok || !background {
		t.Skip("skipped: this provider's sandboxes do not tell of their processes")
	}
	e := launch(t, b, providers.Command{Name: fixture.NewID(t), Shell: s.Script.Sleep(time.Hour)})
	p := findProcess(t, in, func(p providers.Process) bool { return p.Pid == e.Pid })
	if p.ExecID != e.ID || p.Start == 0 || p.Threads != 1 || p.Command == "" || p.Parent == 0 {
		t.Errorf("the command is told of as %+v", p)
	}
	send := func(id string, pid int, start int64) error {
		return in.SignalProcess(fixture.Within(t), providers.ProcessSignal{ID: id, Pid: pid, Start: start, Signal: "SIGTERM"})
	}
	fixture.WantClass(t, send("other", p.Pid, p.Start+1), providers.NoProcess)
	fixture.WantClass(t, send("nobody", 4_000_000, 0), providers.NoProcess)
	fixture.WantClass(t, send("guest", 1, 0), providers.NoProcess)
	if err := send("one", p.Pid, p.Start); err != nil {
		t.Fatal(err)
	}
	if e := ended(t, b, e.ID); e.Signal != "SIGTERM" {
		t.Errorf("it ended as %+v", e)
	}
	if err := send("one", p.Pid, p.Start); err != nil {
		t.Errorf("a signal that is sent again: %v", err)
	}
	fixture.WantClass(t, send("two", p.Pid, p.Start), providers.NoProcess)
	t.Run("each of a command", func(t *testing.T) { t.Parallel(); s.NeedsSystem(t); eachProcess(t, in, b) })
}

// eachProcess stops and ends one process of several, while its command goes on.
func eachProcess(t *testing.T, in providers.Processes, b providers.Background) {
	const script = "sleep 1001 & sleep 1002 & wait %1; echo first is gone; wait"
	e := launch(t, b, providers.Command{Name: fixture.NewID(t), Shell: script})
	first := findProcess(t, in, func(p providers.Process) bool { return p.Command == "sleep 1001" })
	findProcess(t, in, func(p providers.Process) bool {
		return p.Command == "sleep 1002" && p.ExecID == e.ID && p.Parent == e.Pid
	})
	for i, signal := range []string{"SIGSTOP", "SIGKILL"} {
		s := providers.ProcessSignal{ID: e.ID + string(rune('a'+i)), Pid: first.Pid, Start: first.Start, Signal: signal}
		if err := in.SignalProcess(fixture.Within(t), s); err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			findProcess(t, in, func(p providers.Process) bool { return p.Pid == first.Pid && p.State == "T" })
		}
	}
	if got, now := fixture.Output(t, b, e.ID, providers.Stdout, 14); got != "first is gone\n" || !now.Running {
		t.Errorf("it wrote %q and is %+v", got, now)
	}
	list, err := in.Processes(fixture.Within(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range list.Processes {
		if p.Pid == 1 || p.ExecID == "" {
			t.Errorf("of the platform's own is told: %+v", p)
		}
	}
}

// findProcess lists the processes until there is one that fits.
func findProcess(t *testing.T, in providers.Processes, fits func(providers.Process) bool) providers.Process {
	t.Helper()
	ctx := fixture.Within(t)
	for {
		list, err := in.Processes(ctx)
		if err != nil {
			t.Fatalf("list the processes: %v", err)
		}
		if at := slices.IndexFunc(list.Processes, fits); at >= 0 {
			return list.Processes[at]
		}
	}
}
