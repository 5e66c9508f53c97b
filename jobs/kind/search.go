package kind

import (
	"cmp"

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
	Pattern string `json:"pattern" doc:"Glob: * matches any text in a name, ? one character, [a-z] and [!a-z] character classes, {a,b} alternatives, ** any number of directories" example:"**/*.py"`
	Path    string `json:"path,omitempty" doc:"Directory that the pattern is relative to; default the work directory"`
	Hidden  bool   `json:"hidden,omitempty" doc:"Wildcards also match names that begin with a dot"`
	Limit   int    `json:"limit,omitempty" minimum:"0" maximum:"10000" doc:"Most entries to return; default 1000"`
}

// GlobResult is what a glob selects. Symbolic links are not followed.
type GlobResult struct {
	Entries    []providers.FileInfo `json:"entries" doc:"Sorted by path"`
	Unreadable int                  `json:"unreadable,omitempty" doc:"Directories that could not be read"`
	Truncated  bool                 `json:"truncated" doc:"There may be more: a limit was reached"`
}

// Kind implements Args.
func (g *Glob) Kind() string { return "glob" }

// Validate implements Args.
func (g *Glob) Validate() error {
	if g.Limit < 0 || g.Limit > largestGlobbed {
		return Invalid("limit", "must be between 1 and %d, not %d", largestGlobbed, g.Limit)
	}
	if err := checkPattern("pattern", g.Pattern); err != nil {
		return err
	}
	return checkPath("path", cmp.Or(g.Path, "."))
}

// Query is the search with its defaults.
func (g *Glob) Query() providers.Glob {
	return providers.Glob{
		Path: cmp.Or(g.Path, "."), Pattern: g.Pattern, Hidden: g.Hidden, Limit: cmp.Or(g.Limit, defaultGlobbed),
	}
}

// Grep finds lines in files.
type Grep struct {
	Pattern    string `json:"pattern" doc:"A regular expression in RE2 syntax; with fixed, plain text" example:"func (\\w+)\\("`
	Fixed      bool   `json:"fixed,omitempty" doc:"Treat the pattern as plain text"`
	IgnoreCase bool   `json:"ignore_case,omitempty"`
	Path       string `json:"path,omitempty" doc:"The directory or file to search; default the work directory"`
	Include    string `json:"include,omitempty" doc:"A glob that selects the files to search: by name at any depth if it has no slash, else by path" example:"*.go"`
	Hidden     bool   `json:"hidden,omitempty" doc:"Also search files and directories whose names begin with a dot"`
	Context    int    `json:"context,omitempty" minimum:"0" maximum:"20" doc:"Lines to show before and after each match"`
	MaxMatches int    `json:"max_matches,omitempty" minimum:"0" maximum:"10000" doc:"Most matching lines to return; default 200"`
}

// GrepResult is what a grep found. Symbolic links are not followed.
type GrepResult struct {
	Matches    []providers.Match `json:"matches" doc:"Sorted by path and line"`
	Searched   int               `json:"searched" doc:"Number of files searched"`
	Binary     int               `json:"binary_skipped" doc:"Skipped files, because they contain NUL bytes"`
	Unreadable int               `json:"unreadable,omitempty" doc:"Files and directories that could not be read"`
	Truncated  bool              `json:"truncated" doc:"There may be more: a limit was reached"`
}

// Kind implements Args.
func (g *Grep) Kind() string { return "grep" }

// Validate implements Args.
func (g *Grep) Validate() error {
	if g.Context < 0 || g.Context > largestContext {
		return Invalid("context", "must be between 0 and %d, not %d", largestContext, g.Context)
	}
	if g.MaxMatches < 0 || g.MaxMatches > largestMatches {
		return Invalid("max_matches", "must be between 1 and %d, not %d", largestMatches, g.MaxMatches)
	}
	if err := checkPattern("pattern", g.Pattern); err != nil {
		return err
	}
	if g.Include != "" {
		if err := checkPattern("include", g.Include); err != nil {
			return err
		}
	}
	return checkPath("path", cmp.Or(g.Path, "."))
}

// Query is the search with its defaults.
func (g *Grep) Query() providers.Grep {
	return providers.Grep{
		Path: cmp.Or(g.Path, "."), Pattern: g.Pattern, Fixed: g.Fixed, IgnoreCase: g.IgnoreCase, Include: g.Include,
		Hidden: g.Hidden, Context: g.Context, Limit: cmp.Or(g.MaxMatches, defaultMatches),
	}
}

func checkPattern(field, pattern string) error {
	switch {
	case pattern == "":
		return Invalid(field, "is missing")
	case len(pattern) > maxPattern:
		return Invalid(field, "is %d bytes long; the limit is %d", len(pattern), maxPattern)
	}
	return NoNUL(field, pattern)
}
