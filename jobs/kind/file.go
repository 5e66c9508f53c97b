package kind

import (
	"cmp"
	"encoding/base64"
	"strconv"

	"sandyard/providers"
)

// MaxRead bounds what one read job carries; larger files are streamed by other means.
const MaxRead = 16 << 20

// Write replaces a file in one step and makes its parent directories.
type Write struct {
	Path     string `json:"path" doc:"Relative paths start at the work directory; a leading ~/ means the home directory ($HOME)"`
	Content  string `json:"content,omitempty"`
	Encoding string `json:"encoding,omitempty" enum:"utf-8,base64" doc:"Encoding of content in this request; default utf-8"`
	Mode     string `json:"mode,omitempty" doc:"Permissions in octal; default 0644" example:"0755"`

	blob []byte
}

// Kind implements Args.
func (w *Write) Kind() string { return "write" }

// Validate implements Args.
func (w *Write) Validate() error {
	if _, err := ParseMode(w.Mode); err != nil {
		return err
	}
	return checkPath("path", w.Path)
}

// TakeBlob implements Blobs.
func (w *Write) TakeBlob() ([]byte, error) {
	b, err := decode("content", w.Content, w.Encoding)
	w.Content, w.Encoding = "", ""
	return b, err
}

func (w *Write) setBlob(b []byte) { w.blob = b }

// Bytes is what a stored job writes.
func (w *Write) Bytes() []byte { return w.blob }

// ParseMode reads permissions in octal; none are 0644.
func ParseMode(s string) (uint32, error) {
	if s == "" {
		return 0o644, nil
	}
	mode, err := strconv.ParseUint(s, 8, 32)
	if err != nil || mode == 0 || mode > 0o777 {
		return 0, Invalid("mode", "%q is not a file mode such as 0644", s)
	}
	return uint32(mode), nil
}

// Read returns a file's bytes as the job's content.
type Read struct {
	Path string `json:"path"`
}

// ReadResult describes the file whose bytes are the job's content.
type ReadResult struct {
	Path string `json:"path"`
	Size int    `json:"size"`
}

// Kind implements Args.
func (r *Read) Kind() string { return "read" }

// Validate implements Args.
func (r *Read) Validate() error { return checkPath("path", r.Path) }

// List lists a directory.
type List struct {
	Path  string `json:"path,omitempty" doc:"Default: the work directory"`
	Depth int    `json:"depth,omitempty" minimum:"0" maximum:"16" doc:"Directory levels to list; default 1"`
}

// ListResult is what a list job found.
type ListResult struct {
	Entries []providers.FileInfo `json:"entries"`
}

// Kind implements Args.
func (l *List) Kind() string { return "list" }

// Validate implements Args.
func (l *List) Validate() error {
	if l.Depth < 0 || l.Depth > 16 {
		return Invalid("depth", "must be between 1 and 16, not %d", l.Depth)
	}
	return checkPath("path", cmp.Or(l.Path, "."))
}

// Stat describes one path.
type Stat struct {
	Path string `json:"path"`
}

// Kind implements Args.
func (s *Stat) Kind() string { return "stat" }

// Validate implements Args.
func (s *Stat) Validate() error { return checkPath("path", s.Path) }

// MakeDir makes a directory with its parents.
type MakeDir struct {
	Path string `json:"path"`
}

// Kind implements Args.
func (m *MakeDir) Kind() string { return "mkdir" }

// Validate implements Args.
func (m *MakeDir) Validate() error { return checkPath("path", m.Path) }

// Move renames a file or directory.
type Move struct {
	From string `json:"from"`
	To   string `json:"to"`
}

// Kind implements Args.
func (m *Move) Kind() string { return "move" }

// Validate implements Args.
func (m *Move) Validate() error {
	if err := checkPath("from", m.From); err != nil {
		return err
	}
	return checkPath("to", m.To)
}

// Remove deletes a file or a whole directory.
type Remove struct {
	Path string `json:"path"`
}

// Kind implements Args.
func (r *Remove) Kind() string { return "remove" }

// Validate implements Args.
func (r *Remove) Validate() error { return checkPath("path", r.Path) }

// decode turns a string of a request into the bytes it stands for.
func decode(field, s, encoding string) ([]byte, error) {
	switch encoding {
	case "", "utf-8":
		return []byte(s), nil
	case "base64":
		b, err := base64.StdEncoding.DecodeString(s)
		if err != nil {
			return nil, Invalid(field, "is not base64: %v", err)
		}
		return b, nil
	}
	return nil, Invalid(field, "unknown encoding %q; use utf-8 or base64", encoding)
}
