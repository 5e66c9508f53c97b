package envd_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"sandyard/providers"
	"sandyard/providers/envd"
)

func run(t *testing.T, s *envd.Sandbox, cmd providers.Command) providers.Result {
	t.Helper()
	r, err := s.Run(deadline(t, 30*time.Second), cmd)
	must(t, err)
	return r
}

func TestRunReportsHowTheCommandEnded(t *testing.T) {
	t.Parallel()
	s := newEngine(t).sandbox(envd.Options{Env: map[string]string{"A": "from the sandbox", "B": "x"}})
	for _, c := range []struct {
		name           string
		cmd            providers.Command
		code           int
		signal         string
		stdout, stderr string
	}{
		{"true", providers.Command{Argv: []string{"true"}}, 0, "", "", ""},
		{"exit", providers.Command{Shell: "echo out; echo err >&2; exit 7"}, 7, "", "out\n", "err\n"},
		{"highest", providers.Command{Shell: "exit 255"}, 255, "", "", ""},
		{"signal", providers.Command{Shell: "kill -9 $$"}, 137, "SIGKILL", "", ""},
		{"term", providers.Command{Shell: "kill -TERM $$"}, 143, "SIGTERM", "", ""},
		{"argv", providers.Command{Argv: []string{"printf", "%s|", "a b", "", "ü"}}, 0, "", "a b||ü|", ""},
		{"env", providers.Command{Shell: `echo "$A $B"`, Env: map[string]string{"B": "own"}}, 0, "", "from the sandbox own\n", ""},
		{"dir", providers.Command{Argv: []string{"pwd"}, Dir: "/tmp"}, 0, "", "/tmp\n", ""},
		{"stdin", providers.Command{Argv: []string{"cat"}, Stdin: []byte("in\x00put")}, 0, "", "in\x00put", ""},
		{"no-stdin", providers.Command{Argv: []string{"cat"}}, 0, "", "", ""},
		{"no-newline", providers.Command{Argv: []string{"printf", "x"}}, 0, "", "x", ""},
		{"binary", providers.Command{Shell: `printf '\000\377\376'`}, 0, "", "\x00\xff\xfe", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.cmd.Name = c.name
			r := run(t, s, c.cmd)
			if r.ExitCode != c.code || r.Signal != c.signal || string(r.Stdout) != c.stdout || string(r.Stderr) != c.stderr {
				t.Errorf("got code %d signal %q stdout %q stderr %q", r.ExitCode, r.Signal, r.Stdout, r.Stderr)
			}
			if r.TimedOut || r.Truncated() || r.OOMKilled {
				t.Errorf("unexpected marks in %+v", r)
			}
		})
	}
}

func TestExecLatency(t *testing.T) {
	s := newEngine(t).sandbox(envd.Options{})
	const n = 200
	times := make([]time.Duration, 0, n)
	for i := range n {
		start := time.Now()
		run(t, s, providers.Command{Name: "latency-" + strings.Repeat("i", i%9) + time.Now().Format("150405.000000000"), Argv: []string{"true"}})
		times = append(times, time.Since(start))
	}
	slices.Sort(times)
	t.Logf("exec of true: p50 %v, p99 %v", times[n/2], times[n*99/100])
}

var _ = errors.Is
var _ context.Context
