// Package spool runs named commands in sandboxes whose backend can only run a short script and return what it prints:
// the output lies in files of the sandbox, and whoever comes later finds the command there, running or ended.
//
// A sandbox needs sh, setsid, env, awk, base64, cat, dd, grep, head, id, ls, mkfifo, mv, rm, sed, sleep and wc, as
// coreutils and util-linux or busybox have them, a /proc of Linux and a /tmp that lives as long as the sandbox.
// Commands of another user than the sandbox's need stat, too.
//
// A sandbox may have no room for another process at any time, which ends the script that wants one. The directory run
// of a command says how far it has come: leader, that it has begun, and is made by it or by its keeper, never by both;
// unbegun, that the keeper was first, and the next try is in again; rc, how the command ended, or that it or its output
// is lost. Where none of them is and the keeper is gone, nobody knows whether it has begun: it is not started again.
//
// What marks a command's processes is a variable of their environment, their session, the pipes of the output, and
// their descent. One that gives up all of them outlives the command's end; only a guest could hold that.
package spool

import (
	"context"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"sandyard/providers"
)

// Shell is what a backend must be able to do.
type Shell interface {
	// Script runs text by sh and returns what it has printed to its standard output, byte by byte; more than limit bytes
	// are providers.TooLarge. It has no input. An empty user is the sandbox's own; one that there is not answers
	// providers.NoUser. A ctx that ends lets go of the script, which may go on or not. Text holds no NUL, is UTF-8 and
	// not longer than MaxScript.
	Script(ctx context.Context, user, text string, limit int64) ([]byte, error)
	// Put makes or replaces a file below /tmp that every user of the sandbox can read.
	Put(ctx context.Context, path string, data []byte) error
}

// MaxScript is the length of the longest script in bytes: Linux takes no argument of 128 KiB.
const MaxScript = 120 << 10

const (
	defaultMaxOutput = 1 << 20
	maxOutput        = 256 << 20
	maxArgument      = 128<<10 - 1
	maxArguments     = 1 << 20 // together
	maxHead          = 4 << 10 // what a script prints before the output
)

// Options describe the sandbox.
type Options struct {
	WorkDir string // absolute: where commands start and relative directories begin
	Home    string // absolute: what ~ is; the HOME of the sandbox's user
	// Patience is how long a script may wait: the backend ends those that take long. 0 = one that starts a command waits
	// for its end, however long that takes.
	Patience time.Duration
	Lasting  bool // /tmp may not outlive a stop of the sandbox: the spool is in /var/tmp where that can be written to
}

// Spool implements providers.Commands and providers.Starter.
type Spool struct {
	shell Shell
	o     Options
}

// New returns the commands of the sandbox that shell runs scripts in.
func New(shell Shell, o Options) *Spool { return &Spool{shell: shell, o: o} }

var (
	_ providers.Commands = (*Spool)(nil)
	_ providers.Starter  = (*Spool)(nil)

	names  = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$`)
	owners = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_.-]{0,31}$`)
)

// check refuses what no command can be.
func check(cmd providers.Command) error {
	switch {
	case !names.MatchString(cmd.Name):
		return providers.Invalid.Errorf("the command's name %.200q is not valid", cmd.Name)
	case (cmd.Shell == "") == (len(cmd.Argv) == 0):
		return providers.Invalid.Errorf("give either a shell line or an argument list")
	case cmd.User != "" && !owners.MatchString(cmd.User):
		return providers.NoUser.Errorf("user %.80q is not available", cmd.User)
	case len(cmd.Argv) > 0 && (cmd.Argv[0] == "" || strings.Contains(cmd.Argv[0], "=")):
		return providers.NoCommand.Errorf("there is no program %.200q", cmd.Argv[0])
	}
	sum := 0
	for _, text := range append([]string{cmd.Shell, cmd.Dir}, cmd.Argv...) {
		if !plain(text) {
			return providers.Invalid.Errorf("the command holds a NUL byte or is not UTF-8")
		}
		if sum += len(text); len(text) > maxArgument {
			return tooLong()
		}
	}
	for k, v := range cmd.Env {
		if k == "" || strings.Contains(k, "=") || strings.HasPrefix(k, "-") || !plain(k) || !plain(v) {
			return providers.Invalid.Errorf("the environment variable %.200q is not valid", k)
		}
		if sum += len(k) + len(v) + 1; len(k)+len(v)+1 > maxArgument {
			return tooLong()
		}
	}
	if sum > maxArguments {
		return tooLong()
	}
	return nil
}

func tooLong() error {
	return providers.Invalid.Errorf(
		"the command is too long: an argument or variable holds at most %d bytes, and all together %d",
		maxArgument,
		maxArguments,
	)
}

func plain(text string) bool { return utf8.ValidString(text) && strings.IndexByte(text, 0) < 0 }

// kept is how much of each output is kept.
func kept(cmd providers.Command) int64 {
	if cmd.MaxOutput <= 0 {
		return defaultMaxOutput
	}
	return min(cmd.MaxOutput, maxOutput)
}

// dir is where a command starts.
func (s *Spool) dir(cmd providers.Command) string {
	switch d := cmd.Dir; {
	case d == "" || d == ".":
		return s.o.WorkDir
	case d == "~":
		return s.o.Home
	case strings.HasPrefix(d, "~/"):
		return s.o.Home + d[1:]
	case strings.HasPrefix(d, "/"):
		return d
	default:
		return s.o.WorkDir + "/" + d
	}
}

// Quote makes text one word of a shell's line.
func Quote(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }

// command is the script that becomes the command. It runs in the command's directory of the spool.
func (s *Spool) command(cmd providers.Command) string {
	var b strings.Builder
	line := func(parts ...string) { b.WriteString(strings.Join(parts, "") + "\n") }
	// No part of it forks: what has no room for processes must not end between the keeper and the command.
	line(`sy_dir=$PWD sy_run=$PWD/$1`)
	line(`refuse() { echo "$1" >"$sy_run/refused"; exit 126; }`)
	line(`found() { [ -f "$1" ] && [ -x "$1" ]; }
where() {
	sy_found=
	IFS=:
	for sy_at in $PATH; do if [ -z "$sy_found" ] && found "$sy_at/$1"; then sy_found=$sy_at/$1; fi; done
	unset IFS
	[ -n "$sy_found" ]
}`)
	line(`where env; sy_env=$sy_found`)
	line(`where bash || where sh; sy_shell=$sy_found`)
	line(`umask 022`)
	line(`cd `, Quote(s.dir(cmd)), ` 2>/dev/null || refuse dir`)
	if path, ok := cmd.Env["PATH"]; ok {
		line(`PATH=`, Quote(path))
	}
	program := `"$sy_shell" -c ` + Quote(cmd.Shell)
	if len(cmd.Argv) > 0 {
		line(`sy_program=`, Quote(cmd.Argv[0]))
		line(`case $sy_program in */*) found "$sy_program" ;; *) where "$sy_program" ;; esac || refuse program`)
		program = words(cmd.Argv)
	}
	env := []string{}
	if _, own := cmd.Env["HOME"]; !own && cmd.User == "" {
		env = append(env, "HOME="+s.o.Home)
	}
	for _, k := range slices.Sorted(maps.Keys(cmd.Env)) {
		env = append(env, k+"="+cmd.Env[k])
	}
	// Who makes the file decides: the command, which begins now, or its keeper, which has given it up.
	line(`set -C; { :; } 2>/dev/null >"$sy_run/leader" || exit 126; set +C`)
	line(`echo $$ >"$sy_run/leader"`)
	if cmd.Merge {
		program += " 2>&1"
	}
	line(`exec "$sy_env" `, words(env), ` "SANDYARD_SPOOL=$sy_dir/" `, program)
	return b.String()
}

func words(list []string) string {
	quoted := make([]string, len(list))
	for i, w := range list {
		quoted[i] = Quote(w)
	}
	return strings.Join(quoted, " ")
}

// hundredths rounds up.
func hundredths(d time.Duration) int64 {
	return int64((max(d, 0) + 10*time.Millisecond - 1) / (10 * time.Millisecond))
}
