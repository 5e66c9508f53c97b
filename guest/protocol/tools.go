package protocol

// EditRequest is the body of POST /files/edit: replacements in one file, all of them or none.
type EditRequest struct {
	// Name is the edit's own: a call that is repeated under the name of one that was made changes nothing and answers the
	// same. Empty = none.
	Name  string `json:"name,omitempty"`
	Path  string `json:"path"`
	Edits []Edit `json:"edits"`
}

// Edit replaces a text that must occur as often as it says, in the bytes that the edits before it have left.
type Edit struct {
	Old   []byte `json:"old"`
	New   []byte `json:"new"`
	Count int    `json:"count,omitempty"` // how often Old occurs; 0 = once
	All   bool   `json:"all,omitempty"`   // replace all, however many
}

// EditReply is the answer.
type EditReply struct {
	File     FileEntry `json:"file"`
	Replaced []int     `json:"replaced"` // by each edit
}

// GlobRequest is the body of POST /files/glob.
type GlobRequest struct {
	Path    string `json:"path"` // where the pattern begins
	Pattern string `json:"pattern"`
	Hidden  bool   `json:"hidden,omitempty"` // names with a dot at their beginning, too
	Limit   int    `json:"limit"`
}

// GlobReply is the answer, sorted by path.
type GlobReply struct {
	Entries    []FileEntry `json:"entries"`
	Unreadable int         `json:"unreadable,omitempty"` // directories
	Truncated  bool        `json:"truncated,omitempty"`
}

// GrepRequest is the body of POST /files/grep.
type GrepRequest struct {
	Path       string `json:"path"` // a directory, or the one file to search
	Pattern    string `json:"pattern"`
	Fixed      bool   `json:"fixed,omitempty"` // the pattern is the text itself
	IgnoreCase bool   `json:"ignore_case,omitempty"`
	Include    string `json:"include,omitempty"` // a glob of the files to search
	Hidden     bool   `json:"hidden,omitempty"`
	Context    int    `json:"context,omitempty"` // lines shown before and after each match
	Limit      int    `json:"limit"`
}

// GrepReply is the answer, sorted by path and line.
type GrepReply struct {
	Matches    []GrepMatch `json:"matches"`
	Searched   int         `json:"searched"`             // files
	Binary     int         `json:"binary,omitempty"`     // files that were passed over
	Unreadable int         `json:"unreadable,omitempty"` // files and directories
	Truncated  bool        `json:"truncated,omitempty"`
}

// GrepMatch is one line. What is no UTF-8 in it is replaced by U+FFFD.
type GrepMatch struct {
	Path    string   `json:"path"`
	Line    int      `json:"line"`   // from 1
	Column  int      `json:"column"` // of the first match, in bytes from 1
	Text    string   `json:"text"`
	Clipped bool     `json:"clipped,omitempty"` // only a part of the line is shown
	Before  []string `json:"before,omitempty"`
	After   []string `json:"after,omitempty"`
}

// ReadManyRequest is the body of POST /files/read-many. The answer is multipart/mixed, with a part for each path in
// turn.
type ReadManyRequest struct {
	Paths    []string `json:"paths"`     // escaped as in the query of a URL
	MaxBytes int64    `json:"max_bytes"` // of all files together
}

// PathHeader is on the parts of POST /files/write-many, multipart/mixed: the path of the file that the part's body is,
// escaped as in the query of a URL. Beside it a part may have ModeHeader. A part of the answer of /files/read-many is a
// file's content, or with ReasonHeader the message of an error.
const PathHeader = "Sandyard-Path"

// WrittenFile is an element of the answer of POST /files/write-many: in the order of the parts, a file or an error.
type WrittenFile struct {
	File    *FileEntry `json:"file,omitempty"`
	Reason  string     `json:"reason,omitempty"`
	Message string     `json:"message,omitempty"`
}
