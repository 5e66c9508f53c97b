package mcp

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"path"
	"strings"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"sandyard/jobs"
	"sandyard/models"
	"sandyard/providers"
	"sandyard/web/problem"
)

// onFile carries out a job on files and returns it when it has succeeded, with its result in into.
func (s *Server) onFile(ctx context.Context, c *call, sandbox string, args jobs.Args, into any) (models.Job, error) {
	box, err := s.sandbox(ctx, c, sandbox)
	if err != nil {
		return models.Job{}, err
	}
	job, box, err := s.carry(ctx, c, box.ID, args, patience)
	if err != nil {
		return job, err
	}
	if job.State != models.Succeeded {
		return job, s.failure(job, box)
	}
	if err := s.mw.Output(ctx, &job, models.OutputResult, models.OutputContent); err != nil {
		return job, err
	}
	if into == nil || len(job.Result) == 0 {
		return job, nil
	}
	if err := json.Unmarshal(job.Result, into); err != nil {
		return job, fmt.Errorf("read the result of job %s: %w", job.ID, err)
	}
	return job, nil
}

type fileRead struct {
	File      string `json:"file" jsonschema:"Path of the file"`
	StartLine *int   `json:"start_line,omitempty" jsonschema:"First line to return, from 0"`
	EndLine   *int   `json:"end_line,omitempty" jsonschema:"Line to stop before"`
	in
}

// fileText is a part of a file.
type fileText struct {
	Path      string `json:"path"`
	SandboxID string `json:"sandbox_id"`
	Size      int    `json:"size"`  // bytes of the file
	Lines     int    `json:"lines"` // of the file
	StartLine int    `json:"start_line"`
	Content   string `json:"content"`
	// NextLine is where to read on; absent = content ends with the file.
	NextLine *int `json:"next_line,omitempty"`
}

func (s *Server) fileRead(ctx context.Context, c *call, a *fileRead) (*answer, error) {
	if a.StartLine != nil && *a.StartLine < 0 || a.EndLine != nil && a.StartLine != nil && *a.EndLine < *a.StartLine {
		return nil, invalid("start_line", "must be at least 0 and not behind end_line")
	}
	var res jobs.ReadResult
	job, err := s.onFile(ctx, c, a.Sandbox, &jobs.Read{Path: a.File}, &res)
	if err != nil {
		return nil, err
	}
	if !utf8.Valid(job.Content) {
		return picture(job, res)
	}
	out := fileText{Path: res.Path, SandboxID: job.SandboxID, Size: res.Size}
	out.cut(job.Content, a.StartLine, a.EndLine)
	text := out.Content
	if out.NextLine != nil {
		text += fmt.Sprintf("\n[the file has %d lines; read on with start_line %d]", out.Lines, *out.NextLine)
	}
	return &answer{text: text, fields: out}, nil
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
	for ; at < to && (b.Len()+len(lines[at]) <= maxHead || at == f.StartLine); at++ {
		b.Write(lines[at])
	}
	f.Content = clip(b.String())
	if at < to {
		f.NextLine = &at
	}
}

// picture is the answer about a file that is no text.
func picture(job models.Job, res jobs.ReadResult) (*answer, error) {
	media := http.DetectContentType(job.Content)
	fields := map[string]any{"path": res.Path, "sandbox_id": job.SandboxID, "size": res.Size, "media_type": media}
	if !strings.HasPrefix(media, "image/") || base64.StdEncoding.EncodedLen(len(job.Content)) > maxImage {
		return nil, problem.New(http.StatusUnprocessableEntity, "not_text", fmt.Sprintf("%s is not UTF-8 text: it is %s of %d bytes; "+
			"look into it with shell_exec, or download it with GET /v1/sandboxes/%s/files/raw", res.Path, media, res.Size, job.SandboxID))
	}
	return &answer{
		text: fmt.Sprintf("%s is a picture of %d bytes.", res.Path, res.Size), fields: fields,
		images: []*mcp.ImageContent{{Data: job.Content, MIMEType: media}},
	}, nil
}

type fileWrite struct {
	File     string `json:"file" jsonschema:"Path of the file; missing directories are created"`
	Content  string `json:"content" jsonschema:"The whole content, or what to append"`
	Encoding string `json:"encoding,omitempty" jsonschema:"utf-8 (default) or base64, of content"`
	Append   bool   `json:"append,omitempty" jsonschema:"Add to the end of the file"`
	in
}

// appendProgram adds its input to a file, at once with the file's directory.
const appendProgram = `case $1 in '~/'*) set -- "$HOME/${1#'~/'}";; esac; mkdir -p -- "$(dirname -- "$1")" && cat >>"$1"`

func (s *Server) fileWrite(ctx context.Context, c *call, a *fileWrite) (*answer, error) {
	if a.Append {
		return s.fileAppend(ctx, c, a)
	}
	var info providers.FileInfo
	job, err := s.onFile(ctx, c, a.Sandbox, &jobs.Write{Path: a.File, Content: a.Content, Encoding: a.Encoding}, &info)
	if err != nil {
		return nil, err
	}
	return &answer{text: fmt.Sprintf("Wrote %d bytes to %s.", info.Size, info.Path), fields: written(job, info)}, nil
}

func written(job models.Job, info providers.FileInfo) map[string]any {
	return map[string]any{"path": info.Path, "size": info.Size, "sandbox_id": job.SandboxID}
}

func (s *Server) fileAppend(ctx context.Context, c *call, a *fileWrite) (*answer, error) {
	if err := (&jobs.Read{Path: a.File}).Validate(); err != nil {
		return nil, err
	}
	box, err := s.sandbox(ctx, c, a.Sandbox)
	if err != nil {
		return nil, err
	}
	exec := &jobs.Exec{Argv: []string{"sh", "-c", appendProgram, "sh", dashed(a.File)}, Stdin: a.Content, StdinEncoding: a.Encoding}
	r, err := s.command(ctx, c, box.ID, exec, patience)
	if err != nil {
		return nil, err
	}
	if r.ExitCode != nil && *r.ExitCode != 0 {
		return nil, problem.New(http.StatusUnprocessableEntity, "not_written", "nothing was appended: "+strings.TrimSpace(r.Stderr))
	}
	return &answer{text: "Appended to " + a.File + ".", fields: map[string]any{"path": a.File, "sandbox_id": box.ID}}, nil
}

// dashed is a path that no program takes for an option.
func dashed(p string) string {
	if strings.HasPrefix(p, "-") {
		return "./" + p
	}
	return p
}

type fileEdit struct {
	File       string `json:"file" jsonschema:"Path of the file"`
	OldStr     string `json:"old_str" jsonschema:"The text to replace, exactly as in the file; it must occur once"`
	NewStr     string `json:"new_str" jsonschema:"The replacement"`
	ReplaceAll bool   `json:"replace_all,omitempty" jsonschema:"Replace every occurrence"`
	in
}

func (s *Server) fileEdit(ctx context.Context, c *call, a *fileEdit) (*answer, error) {
	edit := &jobs.Edit{Path: a.File, Edits: []jobs.Replacement{{OldString: a.OldStr, NewString: a.NewStr, ReplaceAll: a.ReplaceAll}}}
	var res jobs.EditResult
	job, err := s.onFile(ctx, c, a.Sandbox, edit, &res)
	if err != nil {
		return nil, err
	}
	fields := written(job, res.File)
	fields["replaced"] = res.Replaced
	return &answer{text: fmt.Sprintf("Replaced %v in %s.", res.Replaced, res.File.Path), fields: fields}, nil
}

type fileList struct {
	Path       string `json:"path,omitempty" jsonschema:"Directory; default the work directory"`
	Recursive  bool   `json:"recursive,omitempty" jsonschema:"Include its directories, at most 16 levels"`
	ShowHidden bool   `json:"show_hidden,omitempty" jsonschema:"Also names that begin with a dot"`
	in
}

const (
	// listDepth is how many levels a recursive list has.
	listDepth = 16
	// maxEntries is how many entries an answer has.
	maxEntries = 300
)

// entry is one line of a list.
type entry struct {
	Path string `json:"path"`
	Type string `json:"type"`
	Size int64  `json:"size"`
}

func (s *Server) fileList(ctx context.Context, c *call, a *fileList) (*answer, error) {
	list := &jobs.List{Path: a.Path, Depth: 1}
	if a.Recursive {
		list.Depth = listDepth
	}
	var res jobs.ListResult
	job, err := s.onFile(ctx, c, a.Sandbox, list, &res)
	if err != nil {
		return nil, err
	}
	return listed(job, res.Entries, a.ShowHidden, false), nil
}

// listed is the answer with entries, without those that are hidden or in a hidden directory, unless all are wanted.
func listed(job models.Job, found []providers.FileInfo, all, cut bool) *answer {
	var b strings.Builder
	entries, n := []entry{}, 0
	hidden := map[string]bool{}
	for _, e := range found {
		if !all && (strings.HasPrefix(e.Name, ".") || hidden[path.Dir(e.Path)]) {
			hidden[e.Path] = true
			continue
		}
		if n++; len(entries) == maxEntries {
			continue
		}
		entries = append(entries, entry{e.Path, e.Type, e.Size})
		fmt.Fprintf(&b, "%s\t%d\t%s\n", e.Type, e.Size, e.Path)
	}
	if n == 0 {
		b.WriteString("Nothing was found.")
	}
	if cut = cut || n > len(entries); cut {
		fmt.Fprintf(&b, "[%d of %d entries are shown; choose a smaller directory]\n", len(entries), n)
	}
	return &answer{text: b.String(), fields: map[string]any{"entries": entries, "total": n, "truncated": cut, "sandbox_id": job.SandboxID}}
}

type fileSearch struct {
	File  string `json:"file" jsonschema:"The file to search, or a directory"`
	Regex string `json:"regex" jsonschema:"A regular expression in RE2 syntax"`
	in
}

func (s *Server) fileSearch(ctx context.Context, c *call, a *fileSearch) (*answer, error) {
	return s.search(ctx, c, a.Sandbox, &jobs.Grep{Path: a.File, Pattern: a.Regex, MaxMatches: maxEntries})
}

func (s *Server) search(ctx context.Context, c *call, sandbox string, grep *jobs.Grep) (*answer, error) {
	var res jobs.GrepResult
	job, err := s.onFile(ctx, c, sandbox, grep, &res)
	if err != nil {
		return nil, err
	}
	var b strings.Builder
	shown := []providers.Match{}
	for _, m := range res.Matches {
		if b.Len()+len(m.Text)+len(m.Path) > maxHead {
			res.Truncated = true
			break
		}
		shown = append(shown, m)
		writeMatch(&b, m)
	}
	if len(shown) == 0 {
		fmt.Fprintf(&b, "Nothing matches in %d files.", res.Searched)
	}
	if res.Truncated {
		b.WriteString("[there may be more: narrow the search]\n")
	}
	fields := map[string]any{"matches": shown, "files_searched": res.Searched, "truncated": res.Truncated, "sandbox_id": job.SandboxID}
	return &answer{text: b.String(), fields: fields}, nil
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

type fileDelete struct {
	File string `json:"file" jsonschema:"Path of the file or directory"`
	in
}

func (s *Server) fileDelete(ctx context.Context, c *call, a *fileDelete) (*answer, error) {
	job, err := s.onFile(ctx, c, a.Sandbox, &jobs.Remove{Path: a.File}, nil)
	if err != nil {
		return nil, err
	}
	return &answer{text: "Deleted " + a.File + ".", fields: map[string]any{"path": a.File, "sandbox_id": job.SandboxID}}, nil
}

type fileFind struct {
	Glob string `json:"glob" jsonschema:"A pattern such as *.py; without a slash it matches names in all directories"`
	Path string `json:"path,omitempty" jsonschema:"Directory to search; default the work directory"`
	in
}

func (s *Server) fileFind(ctx context.Context, c *call, a *fileFind) (*answer, error) {
	if a.Glob != "" && !strings.Contains(a.Glob, "/") {
		a.Glob = "**/" + a.Glob
	}
	return s.find(ctx, c, a.Sandbox, &jobs.Glob{Pattern: a.Glob, Path: a.Path})
}

type globArgs struct {
	Pattern string `json:"pattern" jsonschema:"A pattern such as src/**/*.py: ** stands for any number of directories"`
	Path    string `json:"path,omitempty" jsonschema:"Directory that the pattern is relative to; default the work directory"`
	in
}

func (s *Server) glob(ctx context.Context, c *call, a *globArgs) (*answer, error) {
	return s.find(ctx, c, a.Sandbox, &jobs.Glob{Pattern: a.Pattern, Path: a.Path})
}

func (s *Server) find(ctx context.Context, c *call, sandbox string, glob *jobs.Glob) (*answer, error) {
	var res jobs.GlobResult
	job, err := s.onFile(ctx, c, sandbox, glob, &res)
	if err != nil {
		return nil, err
	}
	return listed(job, res.Entries, true, res.Truncated), nil
}

type grepArgs struct {
	Pattern    string `json:"pattern" jsonschema:"A regular expression in RE2 syntax"`
	Path       string `json:"path,omitempty" jsonschema:"Directory or file to search; default the work directory"`
	FileGlob   string `json:"file_glob,omitempty" jsonschema:"Only files whose names match, such as *.py"`
	IgnoreCase bool   `json:"case_insensitive,omitempty" jsonschema:"Ignore upper and lower case"`
	Context    int    `json:"context,omitempty" jsonschema:"Lines to show before and after each match, at most 20"`
	in
}

func (s *Server) grep(ctx context.Context, c *call, a *grepArgs) (*answer, error) {
	return s.search(ctx, c, a.Sandbox, &jobs.Grep{
		Path: a.Path, Pattern: a.Pattern, Include: a.FileGlob, IgnoreCase: a.IgnoreCase, Context: a.Context, MaxMatches: maxEntries,
	})
}

type fileUpload struct {
	File    string `json:"file" jsonschema:"Path of the file; missing directories are created"`
	Content string `json:"content_base64" jsonschema:"The whole content as base64"`
	Mode    string `json:"mode,omitempty" jsonschema:"Permissions in octal; default 0644"`
	in
}

func (s *Server) fileUpload(ctx context.Context, c *call, a *fileUpload) (*answer, error) {
	content, err := base64.StdEncoding.DecodeString(a.Content)
	if err != nil {
		return nil, invalid("content_base64", "is not base64: "+err.Error())
	}
	var info providers.FileInfo
	job, err := s.onFile(ctx, c, a.Sandbox, &jobs.Write{Path: a.File, Content: a.Content, Encoding: "base64", Mode: a.Mode}, &info)
	if err != nil {
		return nil, err
	}
	fields := written(job, info)
	fields["sha256"] = digest(content)
	return &answer{text: fmt.Sprintf("Wrote %d bytes to %s.", info.Size, info.Path), fields: fields}, nil
}

func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// maxDownload is how many bytes of a file one answer has: as text it fits into an event of a client.
const maxDownload = 384 << 10

type fileDownload struct {
	File   string `json:"file" jsonschema:"Path of the file"`
	Offset int    `json:"offset,omitempty" jsonschema:"Where to begin, in bytes: the next_offset of the last answer"`
	in
}

func (s *Server) fileDownload(ctx context.Context, c *call, a *fileDownload) (*answer, error) {
	var res jobs.ReadResult
	job, err := s.onFile(ctx, c, a.Sandbox, &jobs.Read{Path: a.File}, &res)
	if err != nil {
		return nil, err
	}
	size := len(job.Content)
	if a.Offset < 0 || a.Offset > size {
		return nil, invalid("offset", fmt.Sprintf("must be between 0 and the file's %d bytes", size))
	}
	piece := job.Content[a.Offset:min(size, a.Offset+maxDownload)]
	fields := map[string]any{
		"path": res.Path, "sandbox_id": job.SandboxID, "size": size, "sha256": digest(job.Content), "offset": a.Offset,
		"content_base64": base64.StdEncoding.EncodeToString(piece),
	}
	text := fmt.Sprintf("Bytes %d to %d of the %d of %s are in content_base64.", a.Offset, a.Offset+len(piece), size, res.Path)
	if next := a.Offset + len(piece); next < size {
		fields["next_offset"] = next
		text += fmt.Sprintf(" Go on with offset %d.", next)
	}
	return &answer{text: text, fields: fields}, nil
}
