package providertest

import (
	"testing"
	"time"

	"sandyard/dev/testenv"
	"sandyard/providers"
	"sandyard/providers/providertest/fixture"
)

// ends checks that a command can be ended, with all that it started.
func ends(t *testing.T, s *fixture.Suite) {
	t.Run("timeout", func(t *testing.T) {
		t.Parallel()
		r := s.NewRoom(t)
		begin := time.Now()
		res := fixture.Run(
			t,
			r,
			providers.Command{
				Shell:   s.Script.Print("so far", "") + "; " + s.Script.Sleep(5*time.Minute),
				Timeout: 500 * time.Millisecond,
			},
		)
		if !res.TimedOut || string(res.Stdout) != "so far" {
			t.Errorf("got %s", fixture.Show(res))
		}
		if took := time.Since(begin); took < 400*time.Millisecond || took > 30*time.Second {
			t.Errorf("took %s", took)
		}
	})
	t.Run("kill", func(t *testing.T) { t.Parallel(); kill(t, s) })
	t.Run("nothing survives a timeout", func(t *testing.T) { t.Parallel(); s.NeedsSystem(t); nothingSurvives(t, s) })
	t.Run("a command turns on its keeper", func(t *testing.T) { t.Parallel(); s.NeedsSystem(t); turnsOnKeeper(t, s) })
	t.Run("what a command leaves running stays", func(t *testing.T) {
		t.Parallel()
		s.NeedsSystem(t)
		r := s.NewRoom(t)
		fixture.Shell(t, r, "setsid sleep 4321 >/dev/null 2>&1 </dev/null &")
		testenv.Eventually(
			t,
			"the background process runs",
			func() bool { return fixture.Alive(t, r, "sleep 4321") == "sleep 4321" },
		)
	})
}

func kill(t *testing.T, s *fixture.Suite) {
	r := s.NewRoom(t)
	cmd := providers.Command{
		Name:  fixture.NewID(t),
		Shell: s.Script.Append("begun", "x") + "; " + s.Script.Sleep(5*time.Minute),
	}
	type answer struct {
		res providers.Result
		err error
	}
	ended := make(chan answer, 1)
	go func() {
		res, err := r.Run(t.Context(), cmd)
		ended <- answer{res, err}
	}()
	testenv.Eventually(
		t,
		"the command has begun",
		func() bool { _, err := r.Stat(t.Context(), "begun"); return err == nil },
	)
	for _, name := range []string{cmd.Name, cmd.Name, fixture.NewID(t)} {
		if err := r.Kill(fixture.Within(t), name); err != nil {
			t.Errorf("kill: %v", err)
		}
	}
	a := <-ended
	if a.err != nil || a.res.TimedOut || a.res.ExitCode <= 128 || a.res.Signal == "" {
		t.Errorf("a killed command answers %s, %v", fixture.Show(a.res), a.err)
	}
	fixture.Shell(t, r, s.Script.Exit(0))
}

// nothingSurvives runs programs that do not want to end, each in a sandbox of its own.
func nothingSurvives(t *testing.T, s *fixture.Suite) {
	for name, script := range map[string]string{
		"ignores TERM": `trap "" TERM; while :; do sleep 1234; done`,
		"children":     `sleep 1234 | sleep 1234 | sleep 1234`,
		"setsid":       `setsid sleep 1234 & sleep 1234`,
		"double fork":  `(env -i setsid bash -c 'sleep 1234 & disown; sleep 1234' &) ; sleep 1234`,
		"many":         `for i in $(seq 20); do setsid sleep 1234 & done; wait`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := s.NewRoom(t)
			res := fixture.Run(t, r, providers.Command{Shell: script, Timeout: 700 * time.Millisecond})
			if !res.TimedOut {
				t.Errorf("got %s", fixture.Show(res))
			}
			if left := fixture.Alive(t, r, "sleep 1234"); left != "" {
				t.Errorf("left behind:\n%s", left)
			}
		})
	}
}

// turnsOnKeeper runs commands that attack whatever process of the provider's started them. What such a run answers is
// open; the sandbox must go on and be rid of the command.
func turnsOnKeeper(t *testing.T, s *fixture.Suite) {
	for _, signal := range []string{"KILL", "STOP"} {
		t.Run(signal, func(t *testing.T) {
			t.Parallel()
			r := s.NewRoom(t)
			script := "kill -" + signal + " $PPID; setsid sleep 1234 & sleep 1234"
			res, err := r.Run(fixture.Within(t), providers.Command{Name: fixture.NewID(t), Shell: script, Timeout: time.Second})
			t.Logf("run: %s, %v", fixture.Show(res), err)
			if left := fixture.Alive(t, r, "sleep 1234"); left != "" {
				t.Errorf("left behind:\n%s", left)
			}
		})
	}
}
