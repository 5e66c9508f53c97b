package providertest

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"sandyard/providers"
	"sandyard/providers/providertest/fixture"
)

// exec checks what a command is given and what comes back of it, all in one sandbox at the same time.
func exec(t *testing.T, s *fixture.Suite) {
	r := s.NewRoomWith(t, providers.Spec{Env: map[string]string{"FROM_SPEC": "a b", "BOTH": "spec"}})
	say := s.Script
	t.Run("output", func(t *testing.T) {
		t.Parallel()
		res := fixture.Shell(t, r, say.Print("out", "err")+"; "+say.Exit(3))
		if string(res.Stdout) != "out" || string(res.Stderr) != "err" || res.ExitCode != 3 || res.Signal != "" ||
			res.TimedOut ||
			res.OOMKilled {
			t.Errorf("got %s", fixture.Show(res))
		}
		if res.StdoutBytes != 3 || res.StderrBytes != 3 || res.Truncated() || res.Duration <= 0 {
			t.Errorf(
				"counted %d and %d bytes in %s, truncated %v",
				res.StdoutBytes,
				res.StderrBytes,
				res.Duration,
				res.Truncated(),
			)
		}
	})
	t.Run("truncated", func(t *testing.T) {
		t.Parallel()
		res := fixture.Run(t, r, providers.Command{Shell: say.Print("0123456789", "ab"), MaxOutput: 4})
		if string(res.Stdout) != "0123" || string(res.Stderr) != "ab" || res.StdoutBytes != 10 || res.StderrBytes != 2 ||
			!res.Truncated() {
			t.Errorf("got %s", fixture.Show(res))
		}
	})
	t.Run("merged", func(t *testing.T) { t.Parallel(); merged(t, s, r) })
	t.Run("environment", func(t *testing.T) {
		t.Parallel()
		for name, want := range map[string]string{"FROM_SPEC": "a b", "BOTH": "command", "MINE": "ü=1"} {
			res := fixture.Run(
				t,
				r,
				providers.Command{Shell: say.Env(name), Env: map[string]string{"BOTH": "command", "MINE": "ü=1"}},
			)
			if string(res.Stdout) != want {
				t.Errorf("%s is %q, want %q", name, res.Stdout, want)
			}
		}
		if res := fixture.Shell(t, r, say.Env("BOTH")); string(res.Stdout) != "spec" {
			t.Errorf("one command's environment reached another: %q", res.Stdout)
		}
	})
	t.Run("localhost", func(t *testing.T) { t.Parallel(); s.NeedsSystem(t); localhost(t, r) })
	t.Run("directory", func(t *testing.T) { t.Parallel(); directory(t, s, r) })
	t.Run("stdin", func(t *testing.T) { t.Parallel(); stdin(t, s, r) })
	t.Run("refusals", func(t *testing.T) { t.Parallel(); refusals(t, s, r) })
	t.Run("argv is not read by a shell", func(t *testing.T) {
		t.Parallel()
		s.NeedsSystem(t)
		res := fixture.Run(t, r, providers.Command{Argv: []string{"printf", "%s|", "a b", "$HOME", "", "ü;x"}})
		if string(res.Stdout) != "a b|$HOME||ü;x|" {
			t.Errorf("stdout %q", res.Stdout)
		}
	})
	t.Run("signal", func(t *testing.T) {
		t.Parallel()
		s.NeedsSystem(t)
		if res := fixture.Shell(t, r, "kill -KILL $$"); res.ExitCode != 137 || res.Signal != "SIGKILL" || res.TimedOut {
			t.Errorf("got %s", fixture.Show(res))
		}
		if res := fixture.Shell(t, r, "kill -SEGV $$"); res.ExitCode != 139 || res.Signal != "SIGSEGV" {
			t.Errorf("got %s", fixture.Show(res))
		}
	})
	t.Run("much output", func(t *testing.T) { t.Parallel(); s.NeedsSystem(t); muchOutput(t, r) })
	t.Run("background child holds the output", func(t *testing.T) {
		t.Parallel()
		s.NeedsSystem(t)
		begin := time.Now()
		res := fixture.Shell(t, r, "sleep 60 & echo started")
		if string(res.Stdout) != "started\n" || time.Since(begin) > 20*time.Second {
			t.Errorf("stdout %q after %s", res.Stdout, time.Since(begin))
		}
	})
	t.Run("many at once", func(t *testing.T) { t.Parallel(); manyAtOnce(t, s, r) })
}

// localhost checks that a command can connect to itself by this name.
func localhost(t *testing.T, r fixture.Room) {
	code := "import socket; s = socket.create_server(('localhost', 0)); at = s.getsockname(); " +
		"print(at[0], socket.create_connection(('localhost', at[1])).getpeername() == at)"
	res := fixture.Run(t, r, providers.Command{Argv: []string{"python3", "-c", code}})
	if string(res.Stdout) != "127.0.0.1 True\n" {
		t.Errorf("got %s", fixture.Show(res))
	}
}

// merged checks that stdout has both outputs in the order of the writes.
func merged(t *testing.T, s *fixture.Suite, r fixture.Room) {
	say := s.Script
	line := say.Print("1", "2") + "; " + say.Print("3", "4") + "; " + say.Exit(3)
	res := fixture.Run(t, r, providers.Command{Shell: line, Merge: true})
	if string(res.Stdout) != "1234" || len(res.Stderr) != 0 || res.StdoutBytes != 4 || res.StderrBytes != 0 ||
		res.ExitCode != 3 {
		t.Errorf("got %s", fixture.Show(res))
	}
	if res := fixture.Run(t, r, providers.Command{Shell: line, Merge: true, MaxOutput: 3}); string(res.Stdout) != "123" ||
		!res.Truncated() {
		t.Errorf("3 bytes of it: %s", fixture.Show(res))
	}
	if !s.System {
		return
	}
	const program = "import os; [os.write(1 + n % 2, b'%d ' % n) for n in range(2000)]"
	res = fixture.Run(t, r, providers.Command{Argv: []string{"python3", "-c", program}, Merge: true})
	var want strings.Builder
	for n := range 2000 {
		fmt.Fprintf(&want, "%d ", n)
	}
	if string(res.Stdout) != want.String() || len(res.Stderr) != 0 {
		t.Errorf("a program's 2000 writes in turn: %s", fixture.Show(res))
	}
}

func directory(t *testing.T, s *fixture.Suite, r fixture.Room) {
	if res := fixture.Shell(t, r, s.Script.Pwd()); string(res.Stdout) != "/workspace" {
		t.Errorf("work directory is %q", res.Stdout)
	}
	if _, err := r.MakeDir(fixture.Within(t), "sub dir/ü"); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"/workspace/sub dir/ü", "sub dir/ü", "~/sub dir/ü"} {
		res := fixture.Run(t, r, providers.Command{Shell: s.Script.Pwd(), Dir: dir})
		if string(res.Stdout) != "/workspace/sub dir/ü" {
			t.Errorf("in %q: %q", dir, res.Stdout)
		}
	}
	_, err := r.Run(
		fixture.Within(t),
		providers.Command{Name: fixture.NewID(t), Shell: s.Script.Pwd(), Dir: "/workspace/none"},
	)
	fixture.WantClass(t, err, providers.NoDir)
}

func stdin(t *testing.T, s *fixture.Suite, r fixture.Room) {
	if s.Caps.Stdin == providers.Unsupported {
		t.Skip("skipped: the provider declares stdin unsupported")
	}
	if res := fixture.Shell(t, r, s.Script.Cat()); len(res.Stdout) != 0 {
		t.Errorf("without stdin a command reads %q", res.Stdout)
	}
	text := []byte("line\nü\x00\xff no newline")
	if res := fixture.Run(t, r, providers.Command{Shell: s.Script.Cat(), Stdin: text}); !bytes.Equal(res.Stdout, text) {
		t.Errorf("got %q, want %q", res.Stdout, text)
	}
	if !s.System {
		return
	}
	large := fixture.Pattern(1 << 20)
	res := fixture.Run(t, r, providers.Command{Argv: []string{"sha256sum"}, Stdin: large})
	if want := sum(large); !strings.HasPrefix(string(res.Stdout), want) {
		t.Errorf("1 MiB of stdin has the sum %q, want %s", res.Stdout, want)
	}
	// A program that does not read its input must still be allowed to end.
	if res := fixture.Run(t, r, providers.Command{Shell: "exit 4", Stdin: large}); res.ExitCode != 4 {
		t.Errorf("exit code %d, want 4", res.ExitCode)
	}
}

func refusals(t *testing.T, s *fixture.Suite, r fixture.Room) {
	_, err := r.Run(
		fixture.Within(t),
		providers.Command{Name: fixture.NewID(t), Argv: []string{"no-such-program-" + fixture.NewID(t)}},
	)
	fixture.WantClass(t, err, providers.NoCommand)
	_, err = r.Run(fixture.Within(t), providers.Command{Name: fixture.NewID(t), Shell: s.Script.Exit(0), User: "root"})
	fixture.WantClass(t, err, providers.NoUser)
	_, err = r.Run(fixture.Within(t), providers.Command{Name: fixture.NewID(t), Argv: []string{"echo", "a\x00b"}})
	fixture.WantClass(t, err, providers.Invalid)
	_, err = r.Run(fixture.Within(t), providers.Command{Name: fixture.NewID(t)})
	fixture.WantClass(t, err, providers.Invalid)
}

func muchOutput(t *testing.T, r fixture.Room) {
	const size = 5 << 20
	script := `python3 -c 'import sys,os
b=bytes((i*i+i//251)&255 for i in range(1<<16))
for _ in range(80): sys.stdout.buffer.write(b)'`
	var want []byte
	for range 80 {
		want = append(want, fixture.Pattern(1<<16)...)
	}
	res := fixture.Run(t, r, providers.Command{Shell: script, MaxOutput: size})
	if !bytes.Equal(res.Stdout, want) || res.Truncated() {
		t.Errorf(
			"5 MiB of binary output came back as %d bytes, counted %d, same: %v",
			len(res.Stdout),
			res.StdoutBytes,
			bytes.Equal(res.Stdout, want),
		)
	}
	res = fixture.Run(t, r, providers.Command{Shell: script + "; printf end >&2", MaxOutput: 1000})
	if !bytes.Equal(res.Stdout, want[:1000]) || res.StdoutBytes != size || !res.Truncated() ||
		string(res.Stderr) != "end" {
		t.Errorf(
			"kept %d bytes of %d, stderr %q; want the first 1000 of %d",
			len(res.Stdout),
			res.StdoutBytes,
			res.Stderr,
			size,
		)
	}
}

func manyAtOnce(t *testing.T, s *fixture.Suite, r fixture.Room) {
	type answer struct {
		want, got string
		err       error
	}
	answers := make(chan answer)
	for range 20 {
		want := fixture.NewID(t)
		go func() {
			cmd := providers.Command{Name: want, Shell: s.Script.Print(want, "")}
			res, err := r.Run(t.Context(), cmd)
			// A vendor's sandbox may have no room for the scripts of all. A job that is told so is tried again.
			for tries := 1; tries < 6 && !s.Caps.PerNode && errors.Is(err, &providers.Error{Class: providers.Busy}); tries++ {
				res, err = r.Run(t.Context(), cmd)
			}
			answers <- answer{want, string(res.Stdout), err}
		}()
	}
	for range 20 {
		if a := <-answers; a.err != nil || a.got != a.want {
			t.Errorf("got %q, %v; want %q", a.got, a.err, a.want)
		}
	}
}

func sum(data []byte) string {
	s := sha256.Sum256(data)
	return hex.EncodeToString(s[:])
}
