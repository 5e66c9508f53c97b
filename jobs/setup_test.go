package jobs_test

import (
	"errors"
	"strings"
	"testing"

	"sandyard/dev/jobsrig"
	"sandyard/egress"
	"sandyard/jobs"
	"sandyard/jobs/kind"
)

// TestPreparationsThatCannotWorkAreRefused before a sandbox is written down for them.
func TestPreparationsThatCannotWorkAreRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	open := &egress.Policy{Allow: []string{"*"}}
	const repository = "https://git.test/tools.git"
	for _, c := range []struct {
		field, text string
		wish        jobs.CreateSandbox
	}{
		{"git.url", "https://", jobs.CreateSandbox{Git: &kind.Git{URL: "git@git.test:tools.git"}}},
		{"git.url", "https://", jobs.CreateSandbox{Git: &kind.Git{URL: "file:///etc"}}},
		{"git.url", "secret", jobs.CreateSandbox{Git: &kind.Git{URL: "https://me:pass@git.test/tools.git"}}},
		{"git.ref", "branch", jobs.CreateSandbox{Git: &kind.Git{URL: repository, Ref: "--upload-pack=x"}}},
		{"git.path", "below", jobs.CreateSandbox{Git: &kind.Git{URL: repository, Path: "/etc"}}},
		{"git.path", "below", jobs.CreateSandbox{Git: &kind.Git{URL: repository, Path: "a/../../b"}}},
		{"git.path", "missing", jobs.CreateSandbox{Git: &kind.Git{URL: "https://git.test/"}}},
		{"git.depth", "at least 0", jobs.CreateSandbox{Git: &kind.Git{URL: repository, Depth: -1}}},
		{"git.secret", "not a valid name", jobs.CreateSandbox{Git: &kind.Git{URL: repository, Secret: "a b"}}},
		{"git.timeout_seconds", "at most 1800", jobs.CreateSandbox{Git: &kind.Git{URL: repository, TimeoutSeconds: 1801}}},
		{"git", "git.test", jobs.CreateSandbox{Git: &kind.Git{URL: repository}}},
		{"secrets.SANDYARD_GIT_SECRET", "PUT /v1/secrets/MINE", jobs.CreateSandbox{Egress: open, Git: &kind.Git{URL: repository, Secret: "MINE"}}},
		{"setup.script", "empty", jobs.CreateSandbox{Setup: &kind.Setup{Script: " \n"}}},
		{"setup.script", "NUL", jobs.CreateSandbox{Setup: &kind.Setup{Script: "a\x00"}}},
		{"setup.env", "=", jobs.CreateSandbox{Setup: &kind.Setup{Script: "true", Env: map[string]string{"A=B": "x"}}}},
		{"setup.timeout_seconds", "at most 1800", jobs.CreateSandbox{Setup: &kind.Setup{Script: "true", TimeoutSeconds: 7200}}},
	} {
		_, err := r.Client.Create(t.Context(), c.wish, jobsrig.Options())
		var wrong *kind.InvalidError
		if !errors.As(err, &wrong) || wrong.Field != c.field || !strings.Contains(wrong.Message, c.text) {
			t.Errorf("%+v: answered %v, want %s: %s", c.wish.Git, err, c.field, c.text)
		}
	}
}
