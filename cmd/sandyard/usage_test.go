package main

import (
	"bytes"
	"os/exec"
	"strings"
	"testing"
)

// TestHelpTellsOfNames also asks for the version in the usual way.
func TestHelpTellsOfNames(t *testing.T) {
	for _, args := range [][]string{{}, {"help"}, {"--help"}, {"-h"}} {
		if said, err := run(t, "", args...); err != nil || !strings.Contains(said, "--help for details") {
			t.Errorf("%v: %v %s", args, err, said)
		}
	}
	for _, args := range [][]string{{"user", "add", "--help"}, {"help", "user", "add"}, {"user", "add", "NAME", "-h"}} {
		if said, err := run(t, "", args...); err != nil || !strings.Contains(said, "--password-stdin") {
			t.Errorf("%v: %v %s", args, err, said)
		}
	}
	if said, err := run(t, "", "user", "help"); err != nil || !strings.Contains(said, "password") {
		t.Errorf("user help: %v %s", err, said)
	}
	if code := dispatch(t.Context(), []string{"--version"}); code != 0 {
		t.Errorf("--version ends with %d", code)
	}
}

// TestUnknownNamesAreRefused: the error names what was meant, or where to look. A command that does not exist ends
// with 2.
func TestUnknownNamesAreRefused(t *testing.T) {
	for _, c := range []struct {
		line, want string
		code       int
	}{
		{"kye", `unknown command "kye"; did you mean key?`, 2},
		{"--once", "unknown flag: --once; see sandyard --help", 2},
		{"help kye", "did you mean key?", 1},
		{"help user ad", "did you mean add?", 1},
		{"tenant", "the name of a command is missing; see sandyard tenant --help", 1},
		{"tenant drop acme", `unknown command "drop"; see sandyard tenant --help`, 1},
		{"node drian --wait w", "did you mean drain?", 1},
		{"key --revok", "unknown flag: --revok; did you mean --revoke?", 1},
		{"key -revoke", "did you mean --revoke?", 1},
		{"key --revoke --rotate key_1", "none of the others can be", 1},
		{"migrate now", `unexpected argument "now"`, 1},
		{"dev now", `unexpected argument "now"`, 1},
		{"version now", `unexpected argument "now"`, 1},
		{"node drain a b", "drain takes one ID; see sandyard node drain --help", 1},
		{"mcp serve", "only init may follow", 1},
	} {
		args := strings.Fields(c.line)
		if said, err := run(t, "", args...); err == nil || !strings.Contains(err.Error(), c.want) || said != "" {
			t.Errorf("%s: %v, want %q; printed %q", c.line, err, c.want, said)
		}
		if code := dispatch(t.Context(), args); code != c.code {
			t.Errorf("%s ends with %d, not %d", c.line, code, c.code)
		}
	}
}

// TestOptionsStandAnywhere: what follows -- is no option.
func TestOptionsStandAnywhere(t *testing.T) {
	t.Setenv("DATABASE_URL", "postgres://127.0.0.1:1/none?connect_timeout=1")
	for _, line := range []string{"key --overlap -1s --rotate key_1", "key key_1 --rotate --overlap=-1s"} {
		if _, err := run(t, "", strings.Fields(line)...); err == nil || !strings.Contains(err.Error(), "--overlap must") {
			t.Errorf("%s: %v", line, err)
		}
	}
	_, err := run(t, "", "key", "ci", "--", "--e2b")
	if err == nil || !strings.Contains(err.Error(), `unknown scope "--e2b"`) {
		t.Errorf("an option behind --: %v", err)
	}
}

// TestCompletionScripts lets each shell that is here read its script.
func TestCompletionScripts(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish"} {
		script, err := run(t, "", "completion", shell)
		if err != nil || !strings.Contains(script, "sandyard") {
			t.Fatalf("%s: %v, %d bytes", shell, err, len(script))
		}
		if _, err := exec.LookPath(shell); err != nil {
			t.Logf("%s is not installed: its script was written and not read", shell)
			continue
		}
		read := exec.Command(shell, "-n")
		read.Stdin = strings.NewReader(script)
		var said bytes.Buffer
		read.Stderr = &said
		if err := read.Run(); err != nil {
			t.Errorf("%s: %v %s", shell, err, &said)
		}
	}
	for line, want := range map[string]string{
		"user r": "remove\t", "mcp init cl": "claude\n", "key --rev": "--revoke\t", "key ci ": ":4\n",
		"dev --dir ": ":16\n",
	} {
		said, err := run(t, "", append([]string{"__complete"}, strings.Split(line, " ")...)...)
		if err != nil || !strings.Contains(said, want) {
			t.Errorf("%s: %v, %q does not have %q", line, err, said, want)
		}
	}
}
