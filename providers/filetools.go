package providers

import "context"

// FileTools are file calls that a backend does inside the sandbox, in one round trip each, with the rules for paths of
// Files. A Sandbox may implement them; package emulated does for those that do not.
type FileTools interface {
	// Edit makes all replacements in one file or none, in one step. Called again with the name of an edit that was made
	// it answers the same and changes nothing. A text that does not occur answers NoMatch, one that occurs another
	// number of times than was said Ambiguous.
	Edit(ctx context.Context, e Edit) (Edited, error)
	// Glob finds what a pattern selects, sorted by path. Symbolic links are found and not followed.
	Glob(ctx context.Context, g Glob) (Globbed, error)
	// Grep finds lines, sorted by path and line, in regular files that are not binary.
	Grep(ctx context.Context, g Grep) (Grepped, error)
	// WriteFiles writes each file as WriteFile does. What became of each stands at its place: one that fails leaves the
	// others alone.
	WriteFiles(ctx context.Context, files []FileWrite) ([]FileOutcome, error)
	// ReadFiles reads each file as ReadFile does, as long as all that were read hold at most max bytes together.
	ReadFiles(ctx context.Context, paths []string, max int64) ([]FileOutcome, error)
}

// MaxBatch is how many files one call of WriteFiles or ReadFiles may name.
const MaxBatch = 1000

// Edit is a change to one file.
type Edit struct {
	Name  string // unique in the sandbox: the job's id
	Path  string
	Edits []Replacement // each in what the one before has left
}

// Replacement replaces bytes that must occur Count times.
type Replacement struct {
	Old, New []byte
	Count    int  // 0 = once
	All      bool // replace all, however many, but at least one
}

// Edited is a file after an edit.
type Edited struct {
	File     FileInfo
	Replaced []int // by each replacement
}

// Glob selects paths: "*", "?", "[a-z]", "{a,b}", and "**" for any number of directories.
type Glob struct {
	Path    string // where the pattern begins
	Pattern string
	Hidden  bool // names with a dot at their beginning, too
	Limit   int
}

// Globbed is what a glob selects.
type Globbed struct {
	Entries    []FileInfo
	Unreadable int  // directories that could not be read
	Truncated  bool // there may be more
}

// Grep selects lines by a regular expression of RE2, or with Fixed by the text itself.
type Grep struct {
	Path       string // a directory, or the one file to search
	Pattern    string
	Fixed      bool
	IgnoreCase bool
	Include    string // a glob of the files to search, relative to Path; of names at any depth if it has no slash
	Hidden     bool
	Context    int // lines to show around each match
	Limit      int // matches
}

// Grepped is what a grep found.
type Grepped struct {
	Matches    []Match
	Searched   int  // files
	Binary     int  // files that were passed over
	Unreadable int  // files and directories that could not be read
	Truncated  bool // there may be more
}

// Match is one line that matches. What is no UTF-8 in it is replaced by U+FFFD.
type Match struct {
	Path    string   `json:"path"`
	Line    int      `json:"line" doc:"From 1"`
	Column  int      `json:"column" doc:"Byte position of the first match in the line, from 1"`
	Text    string   `json:"text" doc:"The line; invalid UTF-8 is replaced by U+FFFD"`
	Clipped bool     `json:"clipped,omitempty" doc:"The line is long; text is the part around the match"`
	Before  []string `json:"before,omitempty" doc:"The lines before it, if context was requested"`
	After   []string `json:"after,omitempty"`
}

// FileWrite is one file of a batch.
type FileWrite struct {
	Path string
	Data []byte
	Mode uint32 // 0 means 0644
}

// FileOutcome is what became of one file of a batch.
type FileOutcome struct {
	File FileInfo // of a write
	Data []byte   // of a read
	Err  *Error   // nil = it was done
}
