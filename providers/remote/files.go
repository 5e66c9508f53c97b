package remote

import (
	"context"
	"io"
	"log/slog"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	"sandyard/providers"
)

// MaxEntries is how many entries of a directory one answer holds.
const MaxEntries = 10_000

const (
	maxPath   = 4095 // bytes, as Linux has it
	maxName   = 255
	tempDir   = "/tmp"
	temporary = ".sandyard-" // begins the names of what is there for a moment
)

// Box is what file calls need of a sandbox.
type Box interface {
	// Script is that of spool.Shell.
	Script(ctx context.Context, user, text string, limit int64) ([]byte, error)
	// Upload makes or replaces a file, with its parent directories. Size is the number of bytes, negative where nobody
	// knows. What a failed upload leaves is removed by the caller.
	Upload(ctx context.Context, path string, r io.Reader, size int64) error
}

// Files are file calls of a sandbox, whose paths are those of providers.Files. What links of the sandbox's programs
// lead to is its own affair.
type Files struct {
	ID      string // of the sandbox, for the log
	WorkDir string // absolute and clean
	Home    string // absolute and clean
	Log     *slog.Logger

	box Box
}

// NewFiles returns the file calls of a sandbox.
func NewFiles(box Box, id, workDir, home string, log *slog.Logger) *Files {
	return &Files{ID: id, WorkDir: workDir, Home: home, Log: log, box: box}
}

// Resolve is what a path means, as long as that is below a root. Links are the sandbox's own affair.
func (f *Files) Resolve(given string) (string, error) {
	abs := given
	switch {
	case given == "":
		return "", providers.InvalidPath.Errorf("the path is empty")
	case strings.IndexByte(given, 0) >= 0:
		return "", providers.InvalidPath.Errorf("the path holds a NUL byte")
	case given == "~" || strings.HasPrefix(given, "~/"):
		abs = f.Home + given[1:]
	case !path.IsAbs(given):
		abs = f.WorkDir + "/" + given
	}
	abs = path.Clean(abs)
	if len(abs) > maxPath ||
		slices.ContainsFunc(strings.Split(abs, "/"), func(n string) bool { return len(n) > maxName }) {
		return "", providers.InvalidPath.Errorf("the path is longer than Linux permits")
	}
	for _, root := range f.roots() {
		if abs == root || strings.HasPrefix(abs, root+"/") {
			return abs, nil
		}
	}
	return "", providers.InvalidPath.Errorf("path %.200q is outside of %s", given, strings.Join(f.roots(), ", "))
}

func (f *Files) roots() []string {
	roots := []string{f.WorkDir, tempDir}
	if f.Home != f.WorkDir && f.Home != "/" {
		roots = append(roots, f.Home)
	}
	return roots
}

// Sendable resolves a path that goes into a message, which holds UTF-8.
func (f *Files) Sendable(given string) (string, error) {
	if !utf8.ValidString(given) {
		return "", providers.InvalidPath.Errorf("the path is not UTF-8")
	}
	return f.Resolve(given)
}

// Changeable resolves a path that may be moved or removed.
func (f *Files) Changeable(given string) (string, error) {
	abs, err := f.Sendable(given)
	if err == nil && slices.Contains(f.roots(), abs) {
		err = providers.InvalidPath.Errorf("'%s' itself cannot be moved or removed", abs)
	}
	return abs, err
}

// Storable is text that a database takes.
func Storable(text string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(text, "�"), "\x00", "�")
}
