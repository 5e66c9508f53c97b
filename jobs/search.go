package jobs

import (
	"context"

	"sandyard/providers"
)

// Bounds of one search.
const (
	defaultGlobbed = 1000
	largestGlobbed = 10_000
	defaultMatches = 200
	largestMatches = 10_000
	largestContext = 20
	maxPattern     = 4 << 10
)

// Glob finds files by their names.
type Glob struct {
	Pattern string `json:"pattern" doc:"* and ? stand for text and a character of a name, [a-z] and [!a-z] for characters, {a,b} for alternatives, ** for any number of directories" example:"**/*.py"`
	Path    string `json:"path,omitempty" doc:"Where the pattern begins; default is the work directory"`
	Hidden  bool   `json:"hidden,omitempty" doc:"Also select names that begin with a dot without naming it"`
	Limit   int    `json:"limit,omitempty" minimum:"0" maximum:"10000" doc:"Entries in the answer; default 1000"`
}

// GlobResult is what a glob selects. Symbolic links are not followed.
type GlobResult struct {
	Entries    []providers.FileInfo `json:"entries" doc:"Sorted by path"`
	Unreadable int                  `json:"unreadable,omitempty" doc:"Directories that could not be read"`
	Truncated  bool                 `json:"truncated" doc:"There may be more: a limit was met"`
}

// Kind implements Args.
func (g *Glob) Kind() string { return "glob" }

// Validate implements Args.
func (g *Glob) Validate() error {
	if g.Limit < 0 || g.Limit > largestGlobbed {
		return invalid("limit", "must be between 1 and %d, not %d", largestGlobbed, g.Limit)
	}
	if err := checkPattern("pattern", g.Pattern); err != nil {
		return err
	}
	return checkPath("path", orDot(g.Path))
}

func (g *Glob) run(ctx context.Context, a *attempt) (result, error) {
	wish := providers.Glob{Path: orDot(g.Path), Pattern: g.Pattern, Hidden: g.Hidden, Limit: orElse(g.Limit, defaultGlobbed)}
	return a.tools(ctx, func(t providers.FileTools) (any, error) {
		found, err := t.Glob(ctx, wish)
		if found.Entries == nil {
			found.Entries = []providers.FileInfo{}
		}
		return GlobResult(found), err
	})
}

// Grep finds lines in files.
type Grep struct {
	Pattern    string `json:"pattern" doc:"A regular expression in RE2's syntax, or with fixed the text itself" example:"func (\\w+)\\("`
	Fixed      bool   `json:"fixed,omitempty" doc:"The pattern is plain text"`
	IgnoreCase bool   `json:"ignore_case,omitempty"`
	Path       string `json:"path,omitempty" doc:"A directory, or the one file to search; default is the work directory"`
	Include    string `json:"include,omitempty" doc:"A glob of the files to search: of names at any depth if it has no slash, else of paths" example:"*.go"`
	Hidden     bool   `json:"hidden,omitempty" doc:"Also search files and directories whose names begin with a dot"`
	Context    int    `json:"context,omitempty" minimum:"0" maximum:"20" doc:"Lines to show before and after each match"`
	MaxMatches int    `json:"max_matches,omitempty" minimum:"0" maximum:"10000" doc:"Lines that match in the answer; default 200"`
}

// GrepResult is what a grep found. Symbolic links are not followed.
type GrepResult struct {
	Matches    []providers.Match `json:"matches" doc:"Sorted by path and line"`
	Searched   int               `json:"searched" doc:"Files"`
	Binary     int               `json:"binary_skipped" doc:"Files that hold NUL bytes, which were passed over"`
	Unreadable int               `json:"unreadable,omitempty" doc:"Files and directories that could not be read"`
	Truncated  bool              `json:"truncated" doc:"There may be more: a limit was met"`
}

// Kind implements Args.
func (g *Grep) Kind() string { return "grep" }

// Validate implements Args.
func (g *Grep) Validate() error {
	if g.Context < 0 || g.Context > largestContext {
		return invalid("context", "must be between 0 and %d, not %d", largestContext, g.Context)
	}
	if g.MaxMatches < 0 || g.MaxMatches > largestMatches {
		return invalid("max_matches", "must be between 1 and %d, not %d", largestMatches, g.MaxMatches)
	}
	if err := checkPattern("pattern", g.Pattern); err != nil {
		return err
	}
	if g.Include != "" {
		if err := checkPattern("include", g.Include); err != nil {
			return err
		}
	}
	return checkPath("path", orDot(g.Path))
}

func (g *Grep) run(ctx context.Context, a *attempt) (result, error) {
	wish := providers.Grep{
		Path: orDot(g.Path), Pattern: g.Pattern, Fixed: g.Fixed, IgnoreCase: g.IgnoreCase, Include: g.Include,
		Hidden: g.Hidden, Context: g.Context, Limit: orElse(g.MaxMatches, defaultMatches),
	}
	return a.tools(ctx, func(t providers.FileTools) (any, error) {
		found, err := t.Grep(ctx, wish)
		if found.Matches == nil {
			found.Matches = []providers.Match{}
		}
		return GrepResult(found), err
	})
}

func checkPattern(field, pattern string) error {
	switch {
	case pattern == "":
		return invalid(field, "is missing")
	case len(pattern) > maxPattern:
		return invalid(field, "is %d bytes long, at most %d are possible", len(pattern), maxPattern)
	}
	return noNUL(field, pattern)
}

func orElse(n, def int) int {
	if n == 0 {
		return def
	}
	return n
}
