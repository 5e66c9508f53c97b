package kind

import (
	"regexp"
)

// NameEnv is the kind of job that changes the environment of later commands.
const NameEnv = "env"

// MaxEnvNames is how many variables a sandbox keeps for later commands. Their size is bounded by maxEnv.
const MaxEnvNames = 256

// maxVariable is the largest one that the kernel gives to a program, in bytes, as NAME=value with a NUL behind it. With
// a larger one no later command could start.
const maxVariable = 128 << 10

// envName is the form of names that every shell knows.
var envName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,254}$`)

// SetEnv changes the variables that later commands of the sandbox get. Its place in the sandbox's order counts: what
// was submitted before it runs without the change.
type SetEnv struct {
	Env     map[string]*string `json:"env" doc:"Variables for later commands; null removes one that was set so"`
	Replace bool               `json:"replace,omitempty" doc:"Remove all other variables that were set so"`
}

// SetEnvResult says what was changed.
type SetEnvResult struct {
	Set     []string `json:"set" doc:"Names of variables that were set"`
	Removed []string `json:"removed" doc:"Names of variables that are not set any more"`
}

// Kind implements Args.
func (*SetEnv) Kind() string { return NameEnv }

// Validate implements Args.
func (s *SetEnv) Validate() error {
	if len(s.Env) == 0 && !s.Replace {
		return Invalid("env", "is missing; name at least one variable")
	}
	if len(s.Env) > MaxEnvNames {
		return Invalid("env", "has %d variables; the limit is %d", len(s.Env), MaxEnvNames)
	}
	set := map[string]string{}
	for name, value := range s.Env {
		if !envName.MatchString(name) {
			return Invalid(
				"env",
				"%.80q is no name of a variable; use up to 255 letters, digits and _, and begin with a letter or _",
				name,
			)
		}
		if value == nil {
			continue
		}
		if size := len(name) + len(*value); size > maxVariable-len("=\x00") {
			return Invalid("env", "%.80s has %d bytes with its name; the limit is %d, or no program could start",
				name, size, maxVariable-len("=\x00"))
		}
		set[name] = *value
	}
	return CheckEnv("env", set)
}
