package toolset

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net/http"
	"path"
	"strings"
	"unicode/utf8"

	"sandyard/providers"
)

func fileTools() []Tool {
	return []Tool{
		define("file_read", "Read a text file, whole or some of its lines, or show a picture", Reads, fileRead),
		define("file_write", "Replace a file or append to it", Changes, fileWrite),
		define("file_edit", "Replace a text in a file", Changes, fileEdit),
		define("file_delete", "Delete a file, or a directory with all that is in it", Changes, fileDelete),
		define("file_list", "List a directory", Reads, fileList),
		define("file_find", "Find files by their names", Reads, fileFind),
		define(
			"file_search",
			"Find the lines of a file, or of all files in a directory, that match a regular expression",
			Reads,
			fileSearch,
		),
		define("file_upload", "Write a file of bytes, given as base64", Changes, fileUpload),
		define(
			"file_download",
			"Return a piece of a file as base64, with the file's size and SHA-256",
			Reads,
			fileDownload,
		),
		define("grep", "Find lines that match a regular expression, in the files of a directory", Reads, grep),
		define("glob", "Find files whose paths match a pattern", Reads, glob),
	}
}

type fileReadArgs struct {
	File      string `json:"file" jsonschema:"Path of the file"`
	StartLine *int   `json:"start_line,omitempty" jsonschema:"First line to return, from 0"`
	EndLine   *int   `json:"end_line,omitempty" jsonschema:"Line to stop before"`
}

// fileText is a part of a file.
type fileText struct {
	Path      string `json:"path"`
	SandboxID string `json:"sandbox_id,omitempty"`
	Size      int    `json:"size"`  // bytes of the file
	Lines     int    `json:"lines"` // of the file
	StartLine int    `json:"start_line"`
	Content   string `json:"content"`
	// NextLine is where to read on; absent = content ends with the file.
	NextLine *int `json:"next_line,omitempty"`
}

func fileRead(ctx context.Context, b Box, a *fileReadArgs) (*Answer, error) {
	if a.StartLine != nil && *a.StartLine < 0 || a.EndLine != nil && a.StartLine != nil && *a.EndLine < *a.StartLine {
		return nil, Invalid("start_line", "must be at least 0 and not behind end_line")
	}
	f, err := b.ReadFile(ctx, a.File)
	if err != nil {
		return nil, err
	}
	if !utf8.Valid(f.Data) {
		return picture(b, f)
	}
	out := fileText{Path: f.Path, SandboxID: b.ID(), Size: len(f.Data)}
	out.cut(f.Data, a.StartLine, a.EndLine)
	text := out.Content
	if out.NextLine != nil {
		text += fmt.Sprintf("\n[the file has %d lines; read on with start_line %d]", out.Lines, *out.NextLine)
	}
	return &Answer{Text: text, Fields: out}, nil
}

// cut takes the lines that are asked for, as far as an answer has room.
func (f *fileText) cut(content []byte, start, end *int) {
	lines := bytes.SplitAfter(content, []byte("\n"))
	if n := len(lines); n > 0 && len(lines[n-1]) == 0 {
		lines = lines[:n-1]
	}
	f.Lines = len(lines)
	to := len(lines)
	if start != nil {
		f.StartLine = min(*start, to)
	}
	if end != nil {
		to = min(max(*end, f.StartLine), to)
	}
	var b bytes.Buffer
	at := f.StartLine
	for ; at < to && (b.Len()+len(lines[at]) <= MaxHead || at == f.StartLine); at++ {
		b.Write(lines[at])
	}
	f.Content = Clip(b.String())
	if at < to {
		f.NextLine = &at
	}
}

// picture is the answer about a file that is no text.
func picture(b Box, f File) (*Answer, error) {
	media := http.DetectContentType(f.Data)
	out := &Answer{
		Text:   fmt.Sprintf("%s is a picture of %d bytes.", f.Path, len(f.Data)),
		Fields: in(b, map[string]any{"path": f.Path, "size": len(f.Data), "media_type": media}),
	}
	if !strings.HasPrefix(media, "image/") || !out.AddImage(f.Data, media) {
		return nil, Reject(
			"not_text",
			"%s is not UTF-8 text: it is %s of %d bytes; look into it with shell_exec, or take its bytes with file_download",
			f.Path,
			media,
			len(f.Data),
		)
	}
	return out, nil
}

type fileWriteArgs struct {
	File     string `json:"file" jsonschema:"Path of the file; missing directories are created"`
	Content  string `json:"content" jsonschema:"The whole content, or what to append"`
	Encoding string `json:"encoding,omitempty" jsonschema:"utf-8 (default) or base64, of content"`
	Append   bool   `json:"append,omitempty" jsonschema:"Add to the end of the file"`
}

// appendProgram adds its input to a file, at once with the file's directory.
const appendProgram = `case $1 in '~/'*) set -- "$HOME/${1#'~/'}";; esac; mkdir -p -- "$(dirname -- "$1")" && cat >>"$1"`

func fileWrite(ctx context.Context, b Box, a *fileWriteArgs) (*Answer, error) {
	content := []byte(a.Content)
	switch a.Encoding {
	case "", "utf-8":
	case "base64":
		var err error
		if content, err = base64.StdEncoding.DecodeString(a.Content); err != nil {
			return nil, Invalid("content", "is not base64: %v", err)
		}
	default:
		return nil, Invalid("encoding", "must be utf-8 or base64")
	}
	if a.Append {
		return fileAppend(ctx, b, a.File, content)
	}
	info, err := b.WriteFile(ctx, a.File, content, "")
	if err != nil {
		return nil, err
	}
	return &Answer{Text: fmt.Sprintf("Wrote %d bytes to %s.", info.Size, info.Path), Fields: written(b, info)}, nil
}

func written(b Box, info providers.FileInfo) map[string]any {
	return in(b, map[string]any{"path": info.Path, "size": info.Size})
}

func fileAppend(ctx context.Context, b Box, file string, content []byte) (*Answer, error) {
	if file == "" || strings.ContainsRune(file, 0) {
		return nil, Invalid("file", "must be a path without NUL")
	}
	path := file
	if strings.HasPrefix(file, "-") { // which a program would take for an option
		path = "./" + file
	}
	r, err := b.Run(ctx, Command{Argv: []string{"sh", "-c", appendProgram, "sh", path}, Stdin: content}, 0)
	if err != nil {
		return nil, err
	}
	if r.ExitCode != nil && *r.ExitCode != 0 {
		return nil, Reject("not_written", "nothing was appended: %s", strings.TrimSpace(r.Stdout))
	}
	return &Answer{Text: "Appended to " + file + ".", Fields: in(b, map[string]any{"path": file})}, nil
}

type fileEditArgs struct {
	File       string `json:"file" jsonschema:"Path of the file"`
	OldStr     string `json:"old_str" jsonschema:"The text to replace, exactly as in the file; it must occur once"`
	NewStr     string `json:"new_str" jsonschema:"The replacement"`
	ReplaceAll bool   `json:"replace_all,omitempty" jsonschema:"Replace every occurrence"`
}

func fileEdit(ctx context.Context, b Box, a *fileEditArgs) (*Answer, error) {
	res, err := b.Edit(
		ctx,
		a.File,
		providers.Replacement{Old: []byte(a.OldStr), New: []byte(a.NewStr), All: a.ReplaceAll},
	)
	if err != nil {
		return nil, err
	}
	fields := written(b, res.File)
	fields["replaced"] = res.Replaced
	return &Answer{Text: fmt.Sprintf("Replaced %v in %s.", res.Replaced, res.File.Path), Fields: fields}, nil
}

type fileListArgs struct {
	Path       string `json:"path,omitempty" jsonschema:"Directory; default the work directory"`
	Recursive  bool   `json:"recursive,omitempty" jsonschema:"Include its directories, at most 16 levels"`
	ShowHidden bool   `json:"show_hidden,omitempty" jsonschema:"Also names that begin with a dot"`
}

const (
	// listDepth is how many levels a recursive list has.
	listDepth = 16
	// MaxEntries is how many entries an answer has.
	MaxEntries = 300
)

// entry is one line of a list.
type entry struct {
	Path string `json:"path"`
	Type string `json:"type"`
	Size int64  `json:"size"`
}

func fileList(ctx context.Context, b Box, a *fileListArgs) (*Answer, error) {
	depth := 1
	if a.Recursive {
		depth = listDepth
	}
	found, err := b.List(ctx, a.Path, depth)
	if err != nil {
		return nil, err
	}
	return listed(b, found, a.ShowHidden, false), nil
}

// listed is the answer with entries, without those that are hidden or in a hidden directory, unless all are wanted.
func listed(b Box, found []providers.FileInfo, all, cut bool) *Answer {
	var text strings.Builder
	entries, n := []entry{}, 0
	hidden := map[string]bool{}
	for _, e := range found {
		if !all && (strings.HasPrefix(e.Name, ".") || hidden[path.Dir(e.Path)]) {
			hidden[e.Path] = true
			continue
		}
		if n++; len(entries) == MaxEntries {
			continue
		}
		entries = append(entries, entry{e.Path, e.Type, e.Size})
		fmt.Fprintf(&text, "%s\t%d\t%s\n", e.Type, e.Size, e.Path)
	}
	if n == 0 {
		text.WriteString("Nothing was found.")
	}
	if cut = cut || n > len(entries); cut {
		fmt.Fprintf(&text, "[%d of %d entries are shown; choose a smaller directory]\n", len(entries), n)
	}
	return &Answer{Text: text.String(), Fields: in(b, map[string]any{"entries": entries, "total": n, "truncated": cut})}
}

type fileSearchArgs struct {
	File  string `json:"file" jsonschema:"The file to search, or a directory"`
	Regex string `json:"regex" jsonschema:"A regular expression in RE2 syntax"`
}

func fileSearch(ctx context.Context, b Box, a *fileSearchArgs) (*Answer, error) {
	return search(ctx, b, providers.Grep{Path: a.File, Pattern: a.Regex})
}

func search(ctx context.Context, b Box, g providers.Grep) (*Answer, error) {
	g.Limit = MaxEntries
	res, err := b.Grep(ctx, g)
	if err != nil {
		return nil, err
	}
	var text strings.Builder
	shown := []providers.Match{}
	for _, m := range res.Matches {
		if text.Len()+len(m.Text)+len(m.Path) > MaxHead {
			res.Truncated = true
			break
		}
		shown = append(shown, m)
		writeMatch(&text, m)
	}
	if len(shown) == 0 {
		fmt.Fprintf(&text, "Nothing matches in %d files.", res.Searched)
	}
	if res.Truncated {
		text.WriteString("[there may be more: narrow the search]\n")
	}
	fields := in(b, map[string]any{"matches": shown, "files_searched": res.Searched, "truncated": res.Truncated})
	return &Answer{Text: text.String(), Fields: fields}, nil
}

// writeMatch writes a match as grep does.
func writeMatch(b *strings.Builder, m providers.Match) {
	for i, line := range m.Before {
		fmt.Fprintf(b, "%s-%d-%s\n", m.Path, m.Line-len(m.Before)+i, line)
	}
	fmt.Fprintf(b, "%s:%d:%s\n", m.Path, m.Line, m.Text)
	for i, line := range m.After {
		fmt.Fprintf(b, "%s-%d-%s\n", m.Path, m.Line+1+i, line)
	}
}

type fileDeleteArgs struct {
	File string `json:"file" jsonschema:"Path of the file or directory"`
}

func fileDelete(ctx context.Context, b Box, a *fileDeleteArgs) (*Answer, error) {
	if err := b.Remove(ctx, a.File); err != nil {
		return nil, err
	}
	return &Answer{Text: "Deleted " + a.File + ".", Fields: in(b, map[string]any{"path": a.File})}, nil
}

type fileFindArgs struct {
	Glob string `json:"glob" jsonschema:"A pattern such as *.py; without a slash it matches names in all directories"`
	Path string `json:"path,omitempty" jsonschema:"Directory to search; default the work directory"`
}

func fileFind(ctx context.Context, b Box, a *fileFindArgs) (*Answer, error) {
	if a.Glob != "" && !strings.Contains(a.Glob, "/") {
		a.Glob = "**/" + a.Glob
	}
	return glob(ctx, b, &globArgs{Pattern: a.Glob, Path: a.Path})
}

type globArgs struct {
	Pattern string `json:"pattern" jsonschema:"A pattern such as src/**/*.py: ** stands for any number of directories"`
	Path    string `json:"path,omitempty" jsonschema:"Directory that the pattern is relative to; default the work directory"`
}

func glob(ctx context.Context, b Box, a *globArgs) (*Answer, error) {
	found, err := b.Glob(ctx, a.Path, a.Pattern)
	if err != nil {
		return nil, err
	}
	return listed(b, found.Entries, true, found.Truncated), nil
}

type grepArgs struct {
	Pattern    string `json:"pattern" jsonschema:"A regular expression in RE2 syntax"`
	Path       string `json:"path,omitempty" jsonschema:"Directory or file to search; default the work directory"`
	FileGlob   string `json:"file_glob,omitempty" jsonschema:"Only files whose names match, such as *.py"`
	IgnoreCase bool   `json:"case_insensitive,omitempty" jsonschema:"Ignore upper and lower case"`
	Context    int    `json:"context,omitempty" jsonschema:"Lines to show before and after each match, at most 20"`
}

func grep(ctx context.Context, b Box, a *grepArgs) (*Answer, error) {
	return search(ctx, b, providers.Grep{
		Path: a.Path, Pattern: a.Pattern, Include: a.FileGlob, IgnoreCase: a.IgnoreCase, Context: a.Context,
	})
}

type fileUploadArgs struct {
	File    string `json:"file" jsonschema:"Path of the file; missing directories are created"`
	Content string `json:"content_base64" jsonschema:"The whole content as base64"`
	Mode    string `json:"mode,omitempty" jsonschema:"Permissions in octal; default 0644"`
}

func fileUpload(ctx context.Context, b Box, a *fileUploadArgs) (*Answer, error) {
	content, err := base64.StdEncoding.DecodeString(a.Content)
	if err != nil {
		return nil, Invalid("content_base64", "is not base64: %v", err)
	}
	info, err := b.WriteFile(ctx, a.File, content, a.Mode)
	if err != nil {
		return nil, err
	}
	fields := written(b, info)
	fields["sha256"] = digest(content)
	return &Answer{Text: fmt.Sprintf("Wrote %d bytes to %s.", info.Size, info.Path), Fields: fields}, nil
}

func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// MaxDownload is how many bytes of a file one answer has: as text it fits into an event of a client.
const MaxDownload = 384 << 10

type fileDownloadArgs struct {
	File   string `json:"file" jsonschema:"Path of the file"`
	Offset int    `json:"offset,omitempty" jsonschema:"Where to begin, in bytes: the next_offset of the last answer"`
}

func fileDownload(ctx context.Context, b Box, a *fileDownloadArgs) (*Answer, error) {
	f, err := b.ReadFile(ctx, a.File)
	if err != nil {
		return nil, err
	}
	size := len(f.Data)
	if a.Offset < 0 || a.Offset > size {
		return nil, Invalid("offset", "must be between 0 and the file's %d bytes", size)
	}
	piece := f.Data[a.Offset:min(size, a.Offset+MaxDownload)]
	fields := in(b, map[string]any{
		"path": f.Path, "size": size, "sha256": digest(f.Data), "offset": a.Offset,
		"content_base64": base64.StdEncoding.EncodeToString(piece),
	})
	text := fmt.Sprintf(
		"Bytes %d to %d of the %d of %s are in content_base64.",
		a.Offset,
		a.Offset+len(piece),
		size,
		f.Path,
	)
	if next := a.Offset + len(piece); next < size {
		fields["next_offset"] = next
		text += fmt.Sprintf(" Go on with offset %d.", next)
	}
	return &Answer{Text: text, Fields: fields}, nil
}
