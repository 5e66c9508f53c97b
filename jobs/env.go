package jobs

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"

	"sandyard/models"
)

// KindEnv is the kind of job that changes the environment of later commands.
const KindEnv = "env"

// maxEnvNames is how many variables a sandbox keeps for later commands. Their size is bounded by maxEnv.
const maxEnvNames = 256

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
func (*SetEnv) Kind() string { return KindEnv }

// Validate implements Args.
func (s *SetEnv) Validate() error {
	if len(s.Env) == 0 && !s.Replace {
		return invalid("env", "is missing; name at least one variable")
	}
	if len(s.Env) > maxEnvNames {
		return invalid("env", "has %d variables; the limit is %d", len(s.Env), maxEnvNames)
	}
	set := map[string]string{}
	for name, value := range s.Env {
		if !envName.MatchString(name) {
			return invalid(
				"env",
				"%.80q is no name of a variable; use up to 255 letters, digits and _, and begin with a letter or _",
				name,
			)
		}
		if value != nil {
			set[name] = *value
		}
	}
	return checkEnv("env", set)
}

// run writes the change down; every attempt writes the same.
func (s *SetEnv) run(ctx context.Context, a *attempt) (result, error) {
	if _, err := a.open(ctx); err != nil { // as of any other job of a sandbox that is paused or gone
		return result{}, err
	}
	err := a.w.store.ChangeEnv(
		ctx,
		a.job,
		models.EnvChange{Set: s.Env, Replace: s.Replace, MostNames: maxEnvNames, MostBytes: maxEnv},
	)
	if large := (*models.EnvTooLargeError)(nil); errors.As(err, &large) {
		return result{state: models.Failed, err: &models.JobError{Code: "env_too_large", Message: fmt.Sprintf(
			"nothing was changed: %v; the limits are %d and %d; remove variables, or write long values to a file",
			large,
			maxEnvNames,
			maxEnv,
		)}}, nil
	}
	done := SetEnvResult{Set: []string{}, Removed: []string{}}
	for _, name := range slices.Sorted(maps.Keys(s.Env)) {
		if s.Env[name] != nil {
			done.Set = append(done.Set, name)
		} else {
			done.Removed = append(done.Removed, name)
		}
	}
	return result{value: done}, err
}
