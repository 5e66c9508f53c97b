package providertest

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"sandyard/dev/testenv"
	"sandyard/providers"
	"sandyard/providers/providertest/fixture"
)

// terminals checks commands that run on one.
func terminals(t *testing.T, s *fixture.Suite) {
	s.NeedsSystem(t)
	r := s.NewRoom(t)
	in, ok := r.Sandbox.(providers.Terminals)
	if !ok {
		t.Skip("skipped: the provider has no terminals")
	}
	t.Run("a shell", func(t *testing.T) { t.Parallel(); terminalShell(t, s, in) })
	t.Run("a slow reader loses nothing", func(t *testing.T) { t.Parallel(); terminalSlowReader(t, in) })
	t.Run("killed while nobody reads on", func(t *testing.T) { t.Parallel(); terminalKilled(t, in) })
	t.Run("without a reader it goes on", func(t *testing.T) { t.Parallel(); terminalAlone(t, in) })
	t.Run("anew", func(t *testing.T) { t.Parallel(); terminalAnew(t, in) })
	t.Run("another worker goes on", func(t *testing.T) { t.Parallel(); terminalTakeOver(t, s) })
	t.Run("between two workers nothing is lost", func(t *testing.T) { t.Parallel(); terminalLosesNothing(t, s) })
	t.Run("not too many", func(t *testing.T) { t.Parallel(); tooManyTerminals(t, s) })
	t.Run("refused", func(t *testing.T) {
		t.Parallel()
		_, err := in.Tail(fixture.Within(t), fixture.NewID(t), 0)
		fixture.WantClass(t, err, providers.NoExec)
		fixture.WantClass(
			t,
			in.Resize(fixture.Within(t), fixture.NewID(t), providers.TerminalSize{Cols: 1, Rows: 1}),
			providers.NoExec,
		)
		plain := launch(t, in, providers.Command{Name: fixture.NewID(t), Shell: "sleep 600"}).ID
		fixture.WantClass(t, in.Resize(fixture.Within(t), plain, providers.TerminalSize{Cols: 1, Rows: 1}), providers.Invalid)
	})
}

func onTerminal(t *testing.T, in providers.Terminals, shell string) string {
	t.Helper()
	e := launch(t, in, providers.Command{
		Name: fixture.NewID(t), Shell: shell, MaxOutput: 512 << 10, Terminal: &providers.TerminalSize{Cols: 80, Rows: 24},
	})
	if !e.Terminal || !e.Running {
		t.Fatalf("launched: %+v", e)
	}
	return e.ID
}

// screen is what somebody has read of a terminal.
type screen struct {
	t    *testing.T
	from providers.Tail
	seen bytes.Buffer
}

func tailOf(t *testing.T, in providers.Terminals, name string, offset int64) *screen {
	t.Helper()
	from, err := in.Tail(fixture.Within(t), name, offset)
	if err != nil {
		t.Fatalf("tail: %v", err)
	}
	t.Cleanup(func() { from.Close() })
	return &screen{t: t, from: from}
}

// until reads on until text has come, and returns what has come since the last call.
func (s *screen) until(text string) string {
	s.t.Helper()
	buf := make([]byte, 1<<10)
	for {
		if before, _, ok := strings.Cut(s.seen.String(), text); ok {
			s.seen.Next(len(before) + len(text))
			return before + text
		}
		n, err := s.from.Read(buf)
		s.seen.Write(buf[:n])
		if err != nil && !strings.Contains(s.seen.String(), text) {
			s.t.Fatalf("no %q in %q: %v", text, s.seen.String(), err)
		}
	}
}

// first reads on until one of the texts has come, and says which. It stays to be read.
func (s *screen) first(texts ...string) string {
	s.t.Helper()
	buf := make([]byte, 1<<10)
	for {
		for _, text := range texts {
			if strings.Contains(s.seen.String(), text) {
				return text
			}
		}
		n, err := s.from.Read(buf)
		s.seen.Write(buf[:n])
		if err != nil {
			s.t.Fatalf("none of %q in %q: %v", texts, s.seen.String(), err)
		}
	}
}

func typeIn(t *testing.T, in providers.Terminals, name, text string) {
	t.Helper()
	if _, err := in.Feed(fixture.Within(t), name, providers.Input{
		ID: fixture.NewID(t), Data: []byte(text),
		Wait: 30 * time.Second,
	}); err != nil {
		t.Fatalf("type %q: %v", text, err)
	}
}

func terminalShell(t *testing.T, suite *fixture.Suite, in providers.Terminals) {
	name := onTerminal(t, in, "PS1='> ' exec bash --norc")
	s := tailOf(t, in, name, 0)
	s.until("> ")
	typeIn(t, in, name, "stty size; tty | cut -c1-9\r")
	s.until("24 80\r\n/dev/pts/\r\n> ")
	if err := in.Resize(fixture.Within(t), name, providers.TerminalSize{Cols: 132, Rows: 50}); err != nil {
		t.Fatal(err)
	}
	typeIn(t, in, name, "stty size\r")
	s.until("50 132\r\n> ")
	typeIn(t, in, name, "echo be''gun; sed -u '/stop/q; s/^/read-/'\r")
	s.until("begun\r\n") // bash has given the terminal back its line ends
	typeIn(t, in, name, "a line\r")
	s.until("read-a line\r\n") // so it is what the terminal interrupts
	typeIn(t, in, name, "\x03")
	code := 130
	if suite.OwnKernel && s.first("\x03", "> ") == "\x03" { // gVisor's kernel of 2022 interrupts nothing, but hands it on
		code = 0
		typeIn(t, in, name, "stop\r") // neither does it know the end of an input
	}
	s.until("> ")
	typeIn(t, in, name, "echo \"got $?\"\r")
	s.until(fmt.Sprintf("got %d\r\n> ", code))
	_, err := in.Feed(fixture.Within(t), name, providers.Input{ID: fixture.NewID(t), Data: []byte("x"), EOF: true})
	fixture.WantClass(t, err, providers.Invalid)
	typeIn(t, in, name, "\x04")
	if rest, err := io.ReadAll(s.from); err != nil {
		t.Errorf("behind %q: %v", rest, err)
	}
	if e := ended(t, in, name); *e.ExitCode != 0 {
		t.Errorf("it ended as %+v", e)
	}
	fixture.WantClass(t, in.Resize(fixture.Within(t), name, providers.TerminalSize{Cols: 1, Rows: 1}), providers.ExecEnded)
	replay := tailOf(t, in, name, 1<<40) // more than there ever was
	if rest, err := io.ReadAll(replay.from); err != nil || len(rest) > 0 {
		t.Errorf("behind its end: %q, %v", rest, err)
	}
}

// terminalSlowReader reads late, and gets everything: meanwhile the command has waited.
func terminalSlowReader(t *testing.T, in providers.Terminals) {
	const lines = 1 << 20 // of 8 bytes with the terminal's line end: 8 MiB, of which 512 KiB could be kept
	name := onTerminal(t, in, fmt.Sprintf("read go; yes 012345 | head -n %d; echo THE-END", lines))
	s := tailOf(t, in, name, 0)
	typeIn(t, in, name, "\r")
	s.until("\r\n")
	s.until("012345\r\n")
	waits(t, in, name)
	if e, err := in.Exec(fixture.Within(t), name, 0); err != nil || !e.Running || e.StdoutBytes > 4<<20 {
		t.Errorf("nobody reads, and it stands so: %+v, %v", e, err)
	}
	rest, err := io.ReadAll(io.MultiReader(&s.seen, s.from))
	if want := 8*lines - 8 + len("THE-END\r\n"); err != nil || len(rest) != want ||
		!bytes.HasSuffix(rest, []byte("THE-END\r\n")) {
		t.Errorf("%d bytes came, not %d, ending %q, %v", len(rest), want, rest[max(0, len(rest)-20):], err)
	}
	if bytes.Count(rest, []byte("012345\r\n")) != lines-1 {
		t.Error("they are not what was written")
	}
}

// waits returns when a command that writes much has stopped, for nobody reads on.
func waits(t *testing.T, in providers.Terminals, name string) {
	t.Helper()
	var before int64
	testenv.Eventually(t, "the command waits", func() bool {
		e, err := in.Exec(fixture.Within(t), name, 300*time.Millisecond)
		if err != nil {
			t.Fatal(err)
		}
		still := e.StdoutBytes == before
		before = e.StdoutBytes
		return still
	})
}

// terminalKilled kills a command whose reader has stopped in the middle, which holds up neither the kill nor the end.
func terminalKilled(t *testing.T, in providers.Terminals) {
	name := onTerminal(t, in, "read go; yes 012345 | head -n 500000; echo THE-END")
	s := tailOf(t, in, name, 0)
	typeIn(t, in, name, "\r")
	s.until("012345\r\n")
	waits(t, in, name)
	if err := in.Kill(fixture.Within(t), name); err != nil {
		t.Fatal(err)
	}
	if e := ended(t, in, name); e.Running {
		t.Errorf("it ended as %+v", e)
	}
}

// terminalAlone leaves a command that writes: it ends all the same, and the end of its output is kept.
func terminalAlone(t *testing.T, in providers.Terminals) {
	name := onTerminal(t, in, "read go; yes 012345 | head -n 300000; echo THE-END")
	s := tailOf(t, in, name, 0)
	typeIn(t, in, name, "\r")
	s.until("\r\n")
	s.until("012345\r\n")
	if err := s.from.Close(); err != nil {
		t.Fatal(err)
	}
	e := ended(t, in, name)
	if e.StdoutBytes != 2+8*300_000+9 {
		t.Errorf("it ended as %+v", e)
	}
	late := tailOf(t, in, name, 16)
	rest, err := io.ReadAll(late.from)
	if err != nil || len(rest) != 512<<10 || late.from.Begin != e.StdoutBytes-512<<10 ||
		!bytes.HasSuffix(rest, []byte("\nTHE-END\r\n")) {
		t.Errorf("%d bytes from %d on, ending %q, %v", len(rest), late.from.Begin, rest[max(0, len(rest)-20):], err)
	}
}

func terminalAnew(t *testing.T, in providers.Terminals) {
	cmd := providers.Command{
		Name:     fixture.NewID(t),
		Shell:    "echo $$; read line; exit 3",
		Anew:     true,
		Terminal: &providers.TerminalSize{Cols: 80, Rows: 24},
	}
	first := launch(t, in, cmd)
	if again := launch(t, in, cmd); again.Pid != first.Pid {
		t.Errorf("while it runs, a launch got %+v, the first %+v", again, first)
	}
	typeIn(t, in, cmd.Name, "x\r")
	if e := ended(t, in, cmd.Name); *e.ExitCode != 3 {
		t.Errorf("it ended as %+v", e)
	}
	second := launch(t, in, cmd)
	if second.Pid == first.Pid || !second.Running {
		t.Errorf("after its end, a launch got %+v, the first %+v", second, first)
	}
	tailOf(t, in, cmd.Name, 0).until(fmt.Sprintf("%d\r\n", second.Pid))
	if !inBackground(t, in, cmd.Name) {
		t.Error("the second is not in the list")
	}
	if err := in.Kill(fixture.Within(t), cmd.Name); err != nil {
		t.Fatal(err)
	}
	cmd.Anew = false
	if e := launch(t, in, cmd); e.Running || e.Pid != second.Pid {
		t.Errorf("a launch that is not to start it anew got %+v", e)
	}
}

// terminalTakeOver types through one worker, and goes on through the next.
func terminalTakeOver(t *testing.T, s *fixture.Suite) {
	r := s.NewRoom(t)
	first := r.Sandbox.(providers.Terminals)
	name := onTerminal(t, first, "PS1='> ' exec bash --norc")
	before := tailOf(t, first, name, 0)
	before.until("> ")
	typeIn(t, first, name, "kept=this; echo o''ne\r")
	before.until("one\r\n> ")
	second := fixture.MustOpen(t, s.Open(t), r.ID).(providers.Terminals)
	after := tailOf(t, second, name, 0)
	after.until("one\r\n> ")
	if _, err := io.ReadAll(before.from); err == nil {
		t.Error("what the first worker reads ends as if it were the command's end")
	}
	typeIn(t, second, name, "echo $kept\r")
	after.until("this\r\n> ")
}

// terminalLosesNothing takes a sandbox over while its terminal waits for a reader. The next reader goes on where the
// first had got, although much more is written than is kept.
func terminalLosesNothing(t *testing.T, s *fixture.Suite) {
	const lines = 1 << 18 // 2 MiB
	r := s.NewRoom(t)
	first := r.Sandbox.(providers.Terminals)
	name := onTerminal(t, first, fmt.Sprintf("stty -echo; read go; yes 012345 | head -n %d; echo THE-END", lines))
	before := tailOf(t, first, name, 0)
	typeIn(t, first, name, "\r")
	got := len(before.until("012345\r\n"))
	second := fixture.MustOpen(t, s.Open(t), r.ID).(providers.Terminals)
	if _, err := second.Exec(fixture.Within(t), name,
		time.Second); err != nil { // over the new link, with time to write on
		t.Fatal(err)
	}
	after := tailOf(t, second, name, int64(got))
	rest, err := io.ReadAll(after.from)
	if n := bytes.Count(rest, []byte("012345\r\n")); err != nil || after.from.Begin != int64(got) || n != lines-1 {
		t.Errorf("%d lines came from byte %d on, not %d from %d on: %v", n, after.from.Begin, lines-1, got, err)
	}
	name = onTerminal(t, second, "yes 012345 | head -n 100000; sleep 600")
	left := tailOf(t, second, name, 0)
	if err := left.from.Close(); err != nil { // one who leaves in order holds nobody up
		t.Fatal(err)
	}
	testenv.Eventually(t, "it goes on", func() bool {
		e, err := second.Exec(fixture.Within(t), name, 0)
		if err != nil {
			t.Fatal(err)
		}
		return e.StdoutBytes == 800_000
	})
}

func tooManyTerminals(t *testing.T, s *fixture.Suite) {
	r := s.NewRoom(t)
	in := r.Sandbox.(providers.Terminals)
	for n := range 100 {
		_, err := in.Launch(
			fixture.Within(t),
			providers.Command{
				Name:     fixture.NewID(t),
				Argv:     []string{"sleep", "600"},
				Terminal: &providers.TerminalSize{Cols: 1, Rows: 1},
			},
		)
		if err == nil {
			continue
		}
		fixture.WantClass(t, err, providers.TooManyExecs)
		if n != 16 {
			list, err := in.Execs(fixture.Within(t))
			t.Errorf("%d terminals may run: %+v, %v", n, list, err)
		}
		launch(t, in, providers.Command{Name: fixture.NewID(t), Argv: []string{"sleep", "600"}}) // other commands still may
		return
	}
	t.Error("100 terminals run")
}
