package mcp

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"sandyard/jobs"
	"sandyard/web/problem"
)

// envFile has the variables that later commands get: lines that bash runs before a command. Bash reads the file that
// BASH_ENV names; each line unsets that first, so that scripts of a command keep what the command has set.
const envFile = "$HOME/.sandyard_env"

// givenEnv names the variables that a call has given itself, which the lines of the file leave alone.
const givenEnv = "SANDYARD_GIVEN_ENV"

// withKeptEnv is the environment of a command with the variables that were set for later ones. The call's own come first.
func withKeptEnv(own map[string]string) map[string]string {
	env := map[string]string{"BASH_ENV": envFile}
	if len(own) > 0 {
		env[givenEnv] = " " + strings.Join(slices.Sorted(maps.Keys(own)), " ") + " "
	}
	maps.Copy(env, own)
	return env
}

// envLine sets a variable, or removes it where value is nil.
func envLine(name string, value *string) string {
	do := "unset " + name
	if value != nil {
		do = "export " + name + "=" + quoted(*value)
	}
	return fmt.Sprintf(`unset BASH_ENV; case "$%s" in *" %s "*) ;; *) %s ;; esac`, givenEnv, name, do)
}

type envSet struct {
	Name  string  `json:"name" jsonschema:"Name of the variable"`
	Value *string `json:"value,omitempty" jsonschema:"Its value; absent = remove the variable"`
	in
}

// envName is the form of names that shells know.
var envName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

func (s *Server) envSet(ctx context.Context, c *call, a *envSet) (*answer, error) {
	if !envName.MatchString(a.Name) || a.Name == "BASH_ENV" || a.Name == givenEnv {
		return nil, invalid("name", "must have letters, digits and _, and not begin with a digit; BASH_ENV and "+givenEnv+" are taken")
	}
	text := "Removed " + a.Name + "."
	if a.Value != nil {
		text = "Set " + a.Name + " for later commands."
	}
	box, err := s.sandbox(ctx, c, a.Sandbox)
	if err != nil {
		return nil, err
	}
	// One write at the end of the file: of two at once neither is lost.
	exec := &jobs.Exec{Argv: []string{"sh", "-c", "umask 077; cat >>\"" + envFile + "\""}, Stdin: envLine(a.Name, a.Value) + "\n"}
	r, err := s.command(ctx, c, box.ID, exec, patience)
	if err != nil {
		return nil, err
	}
	if r.ExitCode == nil || *r.ExitCode != 0 {
		return nil, problem.New(422, "not_written", "the variable was not set: "+strings.TrimSpace(r.Stderr))
	}
	return &answer{text: text, fields: map[string]any{"name": a.Name, "sandbox_id": box.ID}}, nil
}

// quoted is a value as a word of bash, on one line.
func quoted(value string) string {
	return "$'" + strings.NewReplacer(`\`, `\\`, "'", `\'`, "\n", `\n`, "\r", `\r`).Replace(value) + "'"
}

type envGet struct {
	Name string `json:"name,omitempty" jsonschema:"Name of the variable; default all"`
	in
}

func (s *Server) envGet(ctx context.Context, c *call, a *envGet) (*answer, error) {
	box, err := s.sandbox(ctx, c, a.Sandbox)
	if err != nil {
		return nil, err
	}
	r, err := s.command(ctx, c, box.ID, &jobs.Exec{Command: "env -0", Env: withKeptEnv(nil)}, patience)
	if err != nil {
		return nil, err
	}
	all, text := map[string]string{}, ""
	for pair := range strings.SplitSeq(r.Stdout, "\x00") {
		name, value, ok := strings.Cut(pair, "=")
		if ok && name != "BASH_ENV" && name != givenEnv && name != "_" && (a.Name == "" || a.Name == name) {
			all[name] = value
			text += name + "=" + value + "\n"
		}
	}
	if text == "" {
		text = fmt.Sprintf("%s is not set.", a.Name)
	}
	return &answer{text: text, fields: map[string]any{"env": all, "sandbox_id": box.ID}}, nil
}
