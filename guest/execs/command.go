package execs

import (
	"cmp"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"sandyard/guest/process"
	"sandyard/guest/protocol"
)

// Command is what to start.
type Command struct {
	Name      string // empty = a plain envd command
	Tag       string // envd's own label
	Shell     bool   // Argv is one script for the shell
	Argv      []string
	Env       map[string]string
	Dir       string // empty = the work directory
	Stdin     bool   // false = /dev/null
	TTY       *Size
	Merge     bool  // Stderr is Stdout; without effect on a terminal
	MaxOutput int64 // bytes kept of each stream of a named command; 0 = DefaultMaxOutput

	// Background makes a named command one whose last output is kept, not its first.
	Background bool
	Report     bool          // descriptor 3 is a third output
	Timeout    time.Duration // of a background command, after which it is killed; 0 = none
	Anew       bool          // a background command of that name that has ended makes room for this one
}

// Size is that of a terminal, in characters.
type Size struct{ Cols, Rows uint16 }

const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

func withDefaults(env map[string]string) map[string]string {
	all := map[string]string{}
	maps.Copy(all, env)
	all["PATH"] = cmp.Or(all["PATH"], defaultPath)
	return all
}

// resolve turns the command into what the kernel runs, and finds what can be known to be wrong with it before.
func (r *Registry) resolve(c Command) (process.Spec, error) {
	if err := check(c); err != nil {
		return process.Spec{}, err
	}
	env, workDir := r.Defaults()
	maps.Copy(env, c.Env)
	dir, err := directory(protocol.InHome(c.Dir, cmp.Or(env["HOME"], workDir)), workDir)
	if err != nil {
		return process.Spec{}, err
	}
	argv := c.Argv
	if c.Shell {
		argv = []string{shell(env["PATH"]), "-c", c.Argv[0]}
	}
	path, err := lookup(argv[0], dir, env["PATH"])
	if err != nil {
		return process.Spec{}, err
	}
	return process.Spec{Path: path, Dir: dir, TTY: c.TTY != nil, Argv: argv, Env: environ(env)}, nil
}

func check(c Command) error {
	if c.Name != "" && !protocol.ValidName(c.Name) {
		return protocol.Errorf(protocol.ReasonInvalid, "%q cannot name a command", c.Name)
	}
	if len(c.Argv) == 0 || c.Argv[0] == "" {
		return protocol.Errorf(protocol.ReasonInvalid, "the command is empty")
	}
	if strings.ContainsRune(c.Dir, 0) || slices.ContainsFunc(c.Argv, hasNUL) {
		return protocol.Errorf(protocol.ReasonInvalid, "the command holds a NUL byte")
	}
	return checkEnv(c.Env)
}

func checkEnv(env map[string]string) error {
	for k, v := range env {
		if k == "" || strings.ContainsAny(k, "=\x00") || hasNUL(v) {
			return protocol.Errorf(protocol.ReasonInvalid, "the environment variable %q is not valid", k)
		}
	}
	return nil
}

func hasNUL(s string) bool { return strings.ContainsRune(s, 0) }

func directory(dir, workDir string) (string, error) {
	if !filepath.IsAbs(dir) {
		dir = filepath.Join(workDir, dir)
	}
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrPermission):
		return "", protocol.Errorf(protocol.ReasonNoDir, "no permission to enter cwd '%s'", dir)
	case err != nil:
		return "", protocol.Errorf(protocol.ReasonNoDir, "cwd '%s' does not exist", dir)
	case !info.IsDir():
		return "", protocol.Errorf(protocol.ReasonNoDir, "cwd '%s' is not a directory", dir)
	}
	return dir, nil
}

// shell is bash where the sandbox has it.
func shell(path string) string {
	if _, ok := search("bash", path); ok {
		return "bash"
	}
	return "sh"
}

// lookup finds a program as a shell does: by path from dir, or else along PATH.
func lookup(program, dir, path string) (string, error) {
	if !strings.Contains(program, "/") {
		if found, ok := search(program, path); ok {
			return found, nil
		}
		return "", protocol.Errorf(protocol.ReasonNoCommand, "command '%s' not found", program)
	}
	found := program
	if !filepath.IsAbs(program) {
		found = filepath.Join(dir, program)
	}
	info, err := os.Stat(found)
	switch {
	case errors.Is(err, fs.ErrPermission):
		return "", protocol.Errorf(protocol.ReasonDenied, "no permission to run '%s'", program)
	case err != nil:
		return "", protocol.Errorf(protocol.ReasonNoCommand, "command '%s' not found", program)
	case info.IsDir() || !executable(found):
		return "", protocol.Errorf(protocol.ReasonDenied, "'%s' is not executable", program)
	}
	return found, nil
}

func search(program, path string) (string, bool) {
	for _, dir := range filepath.SplitList(path) {
		found := filepath.Join(dir, program)
		if info, err := os.Stat(found); err == nil && info.Mode().IsRegular() && executable(found) {
			return found, true
		}
	}
	return "", false
}

func executable(path string) bool { return unix.Access(path, unix.X_OK) == nil }

func environ(env map[string]string) []string {
	list := make([]string, 0, len(env))
	for k, v := range env {
		list = append(list, k+"="+v)
	}
	slices.Sort(list)
	return list
}
