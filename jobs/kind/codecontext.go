package kind

import (
	"errors"
	"slices"
	"strings"

	"sandyard/models"
	"sandyard/providers/codecontext"
)

// CreateContext starts an interpreter for cells before the first of them comes. One of that name and language that runs
// already is left as it is.
type CreateContext struct {
	Language string            `json:"language" enum:"python,javascript,bash"`
	Context  string            `json:"context,omitempty" maxLength:"32" pattern:"^[a-z0-9][a-z0-9_-]*$" patternDescription:"lower-case letters, digits, _ and -" doc:"The context's id, which cells name. Default: a new id. A language's name is its default context"`
	Cwd      string            `json:"cwd,omitempty" doc:"Start directory; default the work directory"`
	Env      map[string]string `json:"env,omitempty" doc:"Environment variables for all its cells"`
}

// ContextResult is what the job that started a context says of it.
type ContextResult struct {
	Context  string `json:"context" doc:"The context's id: use it in a cell"`
	Language string `json:"language" enum:"python,javascript,bash"`
	Existing bool   `json:"existing" doc:"It was already running and keeps its environment and directory"`
}

// ContextOf is the id of the context that a job of this request starts. It stands from the submission: without a name
// it is the job's own, the same for every attempt.
func (c *CreateContext) ContextOf(j models.Job) string {
	if c.Context != "" {
		return c.Context
	}
	return "ctx-" + strings.TrimPrefix(j.ID, "job_")
}

// Kind implements Args.
func (*CreateContext) Kind() string { return models.KindCodeCreate }

// Validate implements Args.
func (c *CreateContext) Validate() error {
	if len(c.Cwd) > maxPath {
		return Invalid("cwd", "is %d bytes long; the limit is %d", len(c.Cwd), maxPath)
	}
	return errors.Join(checkContext(c.Language, c.Context), NoNUL("cwd", c.Cwd), CheckEnv("env", c.Env))
}

// checkContext looks at a cell's language and the name of its context, which may be empty.
func checkContext(language, context string) error {
	switch {
	case !slices.Contains(codecontext.Languages(), language):
		return Invalid("language", "%q is not supported; use one of %v", language, codecontext.Languages())
	case context != "" && !codecontext.ValidContext(context):
		return Invalid(
			"context",
			"%q is not a valid name; use up to 32 lower-case letters, digits, _ and -, starting with a letter or digit",
			context,
		)
	case context != language && slices.Contains(codecontext.Languages(), context):
		return Invalid("context", "%q is the default context of another language; choose another name", context)
	}
	return nil
}

// DeleteContext ends a context with all its processes and what is kept in it. The next cell starts it anew.
type DeleteContext struct {
	Context string `json:"context"`
}

// Kind implements Args.
func (*DeleteContext) Kind() string { return models.KindCodeDelete }

// Validate implements Args.
func (d *DeleteContext) Validate() error {
	if !codecontext.ValidContext(d.Context) {
		return Invalid(
			"context",
			"%q is not a valid context name; use up to 32 lower-case letters, digits, _ and -",
			d.Context,
		)
	}
	return nil
}
