package envd_test

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"sandyard/dev/testenv"
	"sandyard/providers"
	"sandyard/providers/envd"
)

func TestTimeoutKillsEverything(t *testing.T) {
	t.Parallel()
	for name, script := range map[string]string{
		"ignores-term":  `trap "" TERM; echo $$ > pids; while :; do sleep 0.05; done`,
		"children":      `sleep 1000 & echo $! > pids; sleep 1000 | cat & wait`,
		"setsid":        `setsid sleep 1000 & echo $! > pids; wait`,
		"double-fork":   `(setsid env -i sh -c 'sleep 1000 & echo $! > pids' &) ; sleep 1000`,
		"stopped":       `sleep 1000 & kill -STOP $!; echo $! > pids; kill -STOP $$`,
		"kills-own-sup": `(setsid sleep 1000 & echo $! > pids); while [ ! -s pids ]; do sleep 0.01; done; kill -9 $PPID; sleep 1000`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newEngine(t)
			s := e.sandbox(envd.Options{})
			keeper := "sleep 1000 >/dev/null 2>&1 & echo $! > keeper"
			run(t, s, providers.Command{Name: "keeper", Shell: keeper})
			r := run(t, s, providers.Command{Name: "victim", Shell: script, Timeout: 500 * time.Millisecond})
			if name != "kills-own-sup" && (!r.TimedOut || r.Signal == "") {
				t.Errorf("got %+v", r)
			}
			left := run(t, s, providers.Command{Name: "look", Shell: "for p in $(cat pids); do grep State /proc/$p/status; done 2>/dev/null; true"})
			if strings.Contains(string(left.Stdout), "State") {
				t.Errorf("left over: %s", left.Stdout)
			}
			alive := run(t, s, providers.Command{Name: "alive", Shell: "kill -0 $(cat keeper)"})
			if alive.ExitCode != 0 {
				t.Errorf("the background process of another command is gone: %s", alive.Stderr)
			}
		})
	}
}

func TestTimeoutWithoutOthersUsesOneSignal(t *testing.T) {
	t.Parallel()
	e := newEngine(t)
	s := e.sandbox(envd.Options{})
	r := run(t, s, providers.Command{Name: "bomb", Shell: "f() { sleep 1 & sleep 1 & f; }; trap '' TERM; for i in 1 2 3; do (while :; do setsid sleep 1000 & sleep 0.01; done) & done; wait", Timeout: 400 * time.Millisecond})
	if !r.TimedOut {
		t.Errorf("got %+v", r)
	}
	look := `for p in /proc/[0-9]*; do read -r line < $p/stat && echo "$line"; done 2> /dev/null; true`
	var left []string
	for line := range strings.Lines(string(run(t, s, providers.Command{Name: "look", Shell: look}).Stdout)) {
		if !dead.MatchString(line) {
			left = append(left, line)
		}
	}
	// The guest, its supervisors and the look itself.
	if len(left) == 0 || len(left) > 8 {
		t.Errorf("%d processes are left:\n%s", len(left), strings.Join(left, ""))
	}
}

// dead matches /proc/PID/stat of a process that has ended and that process 1 has yet to collect.
var dead = regexp.MustCompile(`\) [ZX] `)

func TestKillEndsWithinItsGrace(t *testing.T) {
	t.Parallel()
	s := newEngine(t).sandbox(envd.Options{})
	ctx := patient(t)
	results := make(chan providers.Result, 1)
	go func() {
		r, err := s.Run(ctx, providers.Command{Name: "polite", Shell: `trap "echo bye; exit 9" TERM; echo up > up; while :; do sleep 0.02; done`})
		if err != nil {
			t.Error(err)
		}
		results <- r
	}()
	testenv.Eventually(t, "the command is up", func() bool {
		_, err := s.Stat(ctx, "up")
		return err == nil
	})
	must(t, s.Kill(ctx, "polite"))
	if r := <-results; r.ExitCode != 9 || string(r.Stdout) != "bye\n" || r.TimedOut {
		t.Errorf("got %+v", r)
	}
	must(t, s.Kill(ctx, "polite"))
	must(t, s.Kill(ctx, "unknown"))
}
