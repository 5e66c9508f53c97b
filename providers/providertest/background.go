package providertest

import (
	"bytes"
	"testing"
	"time"

	"sandyard/dev/testenv"
	"sandyard/providers"
	"sandyard/providers/providertest/fixture"
)

// background checks commands that nobody waits for.
func background(t *testing.T, s *fixture.Suite) {
	r := s.NewRoom(t)
	b, ok := r.Sandbox.(providers.Background)
	if !ok {
		t.Skip("skipped: the provider has no background commands")
	}
	say := s.Script
	t.Run("life", func(t *testing.T) { t.Parallel(); backgroundLife(t, s, r, b) })
	t.Run("started once", func(t *testing.T) {
		t.Parallel()
		cmd := providers.Command{Name: fixture.NewID(t), Shell: say.Append("launched", "x") + "; " + say.Sleep(time.Minute)}
		first := launch(t, b, cmd)
		if again := launch(t, b, cmd); again.Pid != first.Pid || !again.Running {
			t.Errorf("the second launch got %+v, the first %+v", again, first)
		}
		testenv.Eventually(
			t,
			"the command has begun",
			func() bool { _, err := r.Stat(t.Context(), "launched"); return err == nil },
		)
		if err := r.Kill(fixture.Within(t), cmd.Name); err != nil {
			t.Fatal(err)
		}
		ended(t, b, cmd.Name)
		if over := launch(t, b, cmd); over.Running {
			t.Errorf("after its end a launch got %+v", over)
		}
		fixture.WantFile(t, r, "launched", "x")
	})
	t.Run("timeout", func(t *testing.T) {
		t.Parallel()
		name := launch(
			t,
			b,
			providers.Command{Name: fixture.NewID(t), Shell: say.Sleep(time.Hour), Timeout: 300 * time.Millisecond},
		).ID
		if e := ended(t, b, name); !e.TimedOut || e.Signal == "" {
			t.Errorf("got %+v", e)
		}
	})
	t.Run("merged", func(t *testing.T) {
		t.Parallel()
		name := launch(
			t,
			b,
			providers.Command{Name: fixture.NewID(t), Shell: say.Print("1", "2") + "; " + say.Print("3", "4"), Merge: true},
		).ID
		if e := ended(t, b, name); e.StdoutBytes != 4 || e.StderrBytes != 0 {
			t.Errorf("got %+v", e)
		}
		if got, _ := fixture.Output(t, b, name, providers.Stdout, 4); got != "1234" {
			t.Errorf("stdout %q", got)
		}
	})
	t.Run("input", func(t *testing.T) { t.Parallel(); s.NeedsSystem(t); backgroundInput(t, b) })
	t.Run("signal", func(t *testing.T) { t.Parallel(); s.NeedsSystem(t); backgroundSignal(t, b) })
	t.Run("the end of much output", func(t *testing.T) { t.Parallel(); s.NeedsSystem(t); backgroundTail(t, b) })
	t.Run("report", func(t *testing.T) { t.Parallel(); s.NeedsSystem(t); backgroundReport(t, b) })
	t.Run("unknown", func(t *testing.T) {
		t.Parallel()
		_, err := b.Exec(fixture.Within(t), fixture.NewID(t), 0)
		fixture.WantClass(t, err, providers.NoExec)
		_, err = b.Output(fixture.Within(t), fixture.NewID(t), providers.OutputQuery{})
		fixture.WantClass(t, err, providers.NoExec)
		_, err = b.Launch(
			fixture.Within(t),
			providers.Command{Name: fixture.NewID(t), Argv: []string{"no-such-program-" + fixture.NewID(t)}},
		)
		fixture.WantClass(t, err, providers.NoCommand)
	})
	t.Run("another worker goes on", func(t *testing.T) { t.Parallel(); backgroundTakeOver(t, s) })
	t.Run("not too many", func(t *testing.T) { t.Parallel(); s.NeedsSystem(t); tooMany(t, s) })
}

func backgroundLife(t *testing.T, s *fixture.Suite, r fixture.Room, b providers.Background) {
	say := s.Script
	cmd := providers.Command{Name: fixture.NewID(t), Shell: say.Print("first", "wrong") + "; " + say.Sleep(time.Minute)}
	if e := launch(t, b, cmd); e.ID != cmd.Name || !e.Running || e.Pid == 0 || e.ExitCode != nil {
		t.Errorf("launched: %+v", e)
	}
	if got, e := fixture.Output(t, b, cmd.Name, providers.Stdout, 5); got != "first" || !e.Running {
		t.Errorf("stdout %q of %+v", got, e)
	}
	if out, err := b.Output(fixture.Within(t), cmd.Name, providers.OutputQuery{Offset: 2, Max: 2}); err != nil ||
		string(out.Data) != "rs" ||
		out.Begin != 2 {
		t.Errorf("bytes 2 and 3: %+v, %v", out, err)
	}
	if got, _ := fixture.Output(t, b, cmd.Name, providers.Stderr, 5); got != "wrong" {
		t.Errorf("stderr %q", got)
	}
	if e, err := b.Exec(fixture.Within(t), cmd.Name, 50*time.Millisecond); err != nil || !e.Running {
		t.Errorf("after a short wait: %+v, %v", e, err)
	}
	if !inBackground(t, b, cmd.Name) {
		t.Error("it is not in the list")
	}
	if err := r.Kill(fixture.Within(t), cmd.Name); err != nil {
		t.Fatal(err)
	}
	if e := ended(t, b, cmd.Name); *e.ExitCode != 143 || e.Signal != "SIGTERM" || e.StdoutBytes != 5 {
		t.Errorf("killed: %+v", e)
	}
	if got, e := fixture.Output(t, b, cmd.Name, providers.Stdout, 5); got != "first" || e.Running {
		t.Errorf("afterwards stdout %q of %+v", got, e)
	}
	if _, err := b.Feed(fixture.Within(t), cmd.Name, providers.Input{ID: "late", Data: []byte("x")}); err == nil {
		t.Error("a command that has ended takes input")
	}
	if err := r.Forget(fixture.Within(t), cmd.Name); err != nil {
		t.Fatal(err)
	}
	_, err := b.Exec(fixture.Within(t), cmd.Name, 0)
	fixture.WantClass(t, err, providers.NoExec)
	if inBackground(t, b, cmd.Name) {
		t.Error("a forgotten command is in the list")
	}
}

func backgroundInput(t *testing.T, b providers.Background) {
	name := launch(
		t,
		b,
		providers.Command{Name: fixture.NewID(t), Shell: "cat; echo end", Stdin: []byte("a"), StdinOpen: true},
	).ID
	feed := func(id, data string, eof bool) providers.Fed {
		t.Helper()
		fed, err := b.Feed(
			fixture.Within(t),
			name,
			providers.Input{ID: id, Data: []byte(data), EOF: eof, Wait: 10 * time.Second},
		)
		if err != nil {
			t.Fatalf("feed %q: %v", data, err)
		}
		return fed
	}
	for range 3 {
		feed("one", "b", false) // repeated, as after a lost answer
	}
	if got, _ := fixture.Output(t, b, name, providers.Stdout, 2); got != "ab" {
		t.Fatalf("it read %q", got)
	}
	if fed := feed("two", "c", true); fed.Before[providers.Stdout] != 2 {
		t.Errorf("before the last byte it had written %d", fed.Before[providers.Stdout])
	}
	if e := ended(t, b, name); *e.ExitCode != 0 {
		t.Errorf("got %+v", e)
	}
	if got, _ := fixture.Output(t, b, name, providers.Stdout, 7); got != "abcend\n" {
		t.Errorf("in all it read %q", got)
	}
	feed("two", "c", true) // known, although the command has ended
	_, err := b.Feed(fixture.Within(t), name, providers.Input{ID: "three", Data: []byte("d")})
	fixture.WantClass(t, err, providers.ExecEnded)

	deaf := launch(t, b, providers.Command{Name: fixture.NewID(t), Shell: "sleep 600", StdinOpen: true}).ID
	_, err = b.Feed(
		fixture.Within(t),
		deaf,
		providers.Input{ID: "much", Data: make([]byte, 1<<20), Wait: 200 * time.Millisecond},
	)
	fixture.WantClass(t, err, providers.Busy)
	without := launch(t, b, providers.Command{Name: fixture.NewID(t), Shell: "sleep 600"}).ID
	_, err = b.Feed(fixture.Within(t), without, providers.Input{ID: "a", Data: []byte("a")})
	fixture.WantClass(t, err, providers.Invalid)
}

func backgroundSignal(t *testing.T, b providers.Background) {
	name := launch(
		t,
		b,
		providers.Command{
			Name:  fixture.NewID(t),
			Shell: "trap 'echo caught' USR1; trap 'exit 9' INT; echo ready; while :; do sleep 0.05; done",
		},
	).ID
	if got, _ := fixture.Output(t, b, name, providers.Stdout, 6); got != "ready\n" {
		t.Fatalf("it wrote %q", got)
	}
	for range 2 {
		if err := b.Signal(fixture.Within(t), name, "one", "SIGUSR1"); err != nil {
			t.Fatal(err)
		}
	}
	if got, _ := fixture.Output(t, b, name, providers.Stdout, 13); got != "ready\ncaught\n" {
		t.Errorf("it wrote %q", got)
	}
	if err := b.Signal(fixture.Within(t), name, "two", "SIGINT"); err != nil {
		t.Fatal(err)
	}
	if e := ended(t, b, name); *e.ExitCode != 9 || e.StdoutBytes != 13 {
		t.Errorf("got %+v", e)
	}
	fixture.WantClass(t, b.Signal(fixture.Within(t), name, "three", "SIGINT"), providers.ExecEnded)
}

// backgroundTail checks that of more output than is kept the end is.
func backgroundTail(t *testing.T, b providers.Background) {
	name := launch(
		t,
		b,
		providers.Command{Name: fixture.NewID(t), Shell: "yes 0123456 | head -c 3000000; printf THE-END", MaxOutput: 100_000},
	).ID
	e := ended(t, b, name)
	if e.StdoutBytes != 3_000_007 {
		t.Errorf("counted %d bytes", e.StdoutBytes)
	}
	out, err := b.Output(fixture.Within(t), name, providers.OutputQuery{})
	if err != nil || len(out.Data) != 100_000 || out.Begin != 2_900_007 ||
		!bytes.HasSuffix(out.Data, []byte("0123456\nTHE-END")) {
		t.Errorf(
			"got %d bytes from %d on, ending %.20q, %v",
			len(out.Data),
			out.Begin,
			out.Data[max(0, len(out.Data)-20):],
			err,
		)
	}
	out, err = b.Output(fixture.Within(t), name, providers.OutputQuery{Offset: 3_000_000})
	if err != nil || string(out.Data) != "THE-END" || out.Begin != 3_000_000 {
		t.Errorf("the end: %+v, %v", out, err)
	}
}

func backgroundReport(t *testing.T, b providers.Background) {
	name := launch(
		t,
		b,
		providers.Command{Name: fixture.NewID(t), Shell: "echo out; echo told >&3; exit 0", Report: true},
	).ID
	ended(t, b, name)
	if got, _ := fixture.Output(t, b, name, providers.Report, 5); got != "told\n" {
		t.Errorf("the report is %q", got)
	}
	if got, _ := fixture.Output(t, b, name, providers.Stdout, 4); got != "out\n" {
		t.Errorf("stdout is %q", got)
	}
	name = launch(t, b, providers.Command{Name: fixture.NewID(t), Shell: "echo told >&3"}).ID
	if e := ended(t, b, name); *e.ExitCode == 0 {
		t.Errorf("without a report descriptor 3 is open: %+v", e)
	}
}

func backgroundTakeOver(t *testing.T, s *fixture.Suite) {
	r := s.NewRoom(t)
	b := r.Sandbox.(providers.Background)
	cmd := providers.Command{
		Name:  fixture.NewID(t),
		Shell: s.Script.Print("one", "") + "; " + s.Script.Sleep(2*time.Second) + "; " + s.Script.Print("two", ""),
	}
	pid := launch(t, b, cmd).Pid
	second := fixture.MustOpen(t, s.Open(t), r.ID).(providers.Background)
	if e, err := second.Exec(fixture.Within(t), cmd.Name, 0); err != nil || e.Pid != pid {
		t.Errorf("the second worker sees %+v, %v", e, err)
	}
	if e := ended(t, second, cmd.Name); *e.ExitCode != 0 {
		t.Errorf("got %+v", e)
	}
	if got, _ := fixture.Output(t, second, cmd.Name, providers.Stdout, 6); got != "onetwo" {
		t.Errorf("the second worker read %q", got)
	}
}

func tooMany(t *testing.T, s *fixture.Suite) {
	r := s.NewRoomWith(t, providers.Spec{Resources: providers.Resources{Pids: 512}})
	b := r.Sandbox.(providers.Background)
	for n := range 1000 {
		_, err := b.Launch(fixture.Within(t), providers.Command{Name: fixture.NewID(t), Argv: []string{"sleep", "600"}})
		if err == nil {
			continue
		}
		fixture.WantClass(t, err, providers.TooManyExecs)
		if n < 16 {
			t.Errorf("only %d commands may run", n)
		}
		fixture.Shell(t, r, "true") // what is waited for is not counted
		return
	}
	t.Error("1000 commands run in the background")
}

func launch(t *testing.T, b providers.Background, cmd providers.Command) providers.Exec {
	t.Helper()
	e, err := b.Launch(fixture.Within(t), cmd)
	if err != nil {
		t.Fatalf("launch %.80q: %v", cmd.Shell, err)
	}
	return e
}

// ended returns a command that has ended.
func ended(t *testing.T, b providers.Background, name string) providers.Exec {
	t.Helper()
	for {
		e, err := b.Exec(fixture.Within(t), name, 10*time.Second)
		if err != nil {
			t.Fatalf("look at %s: %v", name, err)
		}
		if !e.Running {
			return e
		}
		if e.AgeMS > 120_000 {
			t.Fatalf("still running: %+v", e)
		}
	}
}

func inBackground(t *testing.T, b providers.Background, name string) bool {
	t.Helper()
	list, err := b.Execs(fixture.Within(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		if e.ID == name {
			return true
		}
	}
	return false
}
