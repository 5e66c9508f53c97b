package envd

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"net/textproto"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"sandyard/guest/protocol"
	"sandyard/providers"
)

// maxToolReply bounds the answer to a search or an edit, and what a batch's answer has beside the files, in bytes.
const maxToolReply = 16 << 20

var _ providers.FileTools = (*Sandbox)(nil)

// Edit is providers.FileTools.Edit.
func (s *Sandbox) Edit(ctx context.Context, e providers.Edit) (providers.Edited, error) {
	if err := sendable(e.Path); err != nil {
		return providers.Edited{}, err
	}
	in := protocol.EditRequest{Name: e.Name, Path: e.Path}
	for _, r := range e.Edits {
		in.Edits = append(in.Edits, protocol.Edit(r))
	}
	var out protocol.EditReply
	if err := s.tool(ctx, http.MethodPost, protocol.EditPath, in, &out); err != nil {
		return providers.Edited{}, err
	}
	if len(out.Replaced) != len(e.Edits) || slices.ContainsFunc(out.Replaced, func(n int) bool { return n < 0 }) {
		return providers.Edited{}, providers.Internal.Errorf("the sandbox did not confirm all %d edits of '%s'", len(e.Edits), e.Path)
	}
	return providers.Edited{File: described(out.File), Replaced: out.Replaced}, nil
}

// Glob is providers.FileTools.Glob.
func (s *Sandbox) Glob(ctx context.Context, g providers.Glob) (providers.Globbed, error) {
	if err := sendable(g.Path, g.Pattern); err != nil {
		return providers.Globbed{}, err
	}
	var out protocol.GlobReply
	if err := s.tool(ctx, http.MethodPost, protocol.GlobPath, protocol.GlobRequest(g), &out); err != nil {
		return providers.Globbed{}, err
	}
	if len(out.Entries) > g.Limit {
		out.Entries, out.Truncated = out.Entries[:g.Limit], true
	}
	found := providers.Globbed{Unreadable: max(out.Unreadable, 0), Truncated: out.Truncated}
	for _, e := range out.Entries {
		found.Entries = append(found.Entries, described(e))
	}
	return found, nil
}

// Grep is providers.FileTools.Grep.
func (s *Sandbox) Grep(ctx context.Context, g providers.Grep) (providers.Grepped, error) {
	if err := sendable(g.Path, g.Include); err != nil {
		return providers.Grepped{}, err
	}
	var out protocol.GrepReply
	if err := s.tool(ctx, http.MethodPost, protocol.GrepPath, protocol.GrepRequest(g), &out); err != nil {
		return providers.Grepped{}, err
	}
	if len(out.Matches) > g.Limit {
		out.Matches, out.Truncated = out.Matches[:g.Limit], true
	}
	found := providers.Grepped{
		Searched: max(out.Searched, 0), Binary: max(out.Binary, 0), Unreadable: max(out.Unreadable, 0), Truncated: out.Truncated,
	}
	for _, m := range out.Matches {
		m.Path, m.Text = storable(m.Path), storable(m.Text)
		for _, lines := range [][]string{m.Before, m.After} {
			for i, line := range lines {
				lines[i] = storable(line)
			}
		}
		found.Matches = append(found.Matches, providers.Match(m))
	}
	return found, nil
}

// tool makes a call whose answer is JSON for users: one that is too large or cannot be read is told apart from none.
func (s *Sandbox) tool(ctx context.Context, method, path string, in, out any) error {
	answer, err := s.send(ctx, method, path, in)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	return s.decode(answer.Body, out)
}

func (s *Sandbox) decode(body io.Reader, out any) error {
	text, err := io.ReadAll(io.LimitReader(body, maxToolReply+1))
	switch {
	case err != nil:
		return s.unavailable(err)
	case len(text) > maxToolReply:
		return providers.TooLarge.Errorf("the sandbox's answer is larger than %d bytes; request less", maxToolReply)
	}
	if err := json.Unmarshal(text, out); err != nil {
		return providers.Internal.Errorf("the sandbox's answer cannot be read: %w", err)
	}
	return nil
}

func described(e protocol.FileEntry) providers.FileInfo {
	return providers.FileInfo{
		Name: storable(e.Name), Path: storable(e.Path), Type: storable(e.Type), Size: max(e.Size, 0), Mode: providers.Octal(e.Mode),
		Owner: storable(e.Owner), Group: storable(e.Group), ModifiedAt: providers.Possible(time.UnixMilli(e.ModifiedMs)), SymlinkTarget: storable(e.Target),
	}
}

// storable takes out of a guest's words what a database cannot keep; JSON has made them UTF-8 already.
func storable(text string) string { return strings.ReplaceAll(text, "\x00", "\uFFFD") }

// WriteFiles is providers.FileTools.WriteFiles.
func (s *Sandbox) WriteFiles(ctx context.Context, files []providers.FileWrite) ([]providers.FileOutcome, error) {
	body, kind, err := partsOf(files)
	if err != nil {
		return nil, fmt.Errorf("write the request: %w", err)
	}
	answer, err := s.do(ctx, http.MethodPost, protocol.WriteManyPath, body, func(r *http.Request) {
		r.Header.Set("Content-Type", kind)
	})
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	var written []protocol.WrittenFile
	if err := s.decode(answer.Body, &written); err != nil {
		return nil, err
	}
	if len(written) != len(files) {
		return nil, providers.Internal.Errorf("the sandbox answered for %d of %d files", len(written), len(files))
	}
	outcomes := make([]providers.FileOutcome, len(files))
	for i, w := range written {
		outcomes[i] = outcomeOf(w, files[i])
	}
	return outcomes, nil
}

// partsOf writes files as multipart/mixed. Their bytes are not copied.
func partsOf(files []providers.FileWrite) (body io.Reader, contentType string, err error) {
	var heads bytes.Buffer
	var pieces []io.Reader
	parts := multipart.NewWriter(&heads)
	cut := func() { // what was written since the last cut
		pieces = append(pieces, bytes.NewReader(bytes.Clone(heads.Bytes())))
		heads.Reset()
	}
	for _, f := range files {
		header := textproto.MIMEHeader{protocol.PathHeader: {url.QueryEscape(f.Path)}}
		if f.Mode != 0 {
			header.Set(protocol.ModeHeader, strconv.FormatUint(uint64(f.Mode), 8))
		}
		if _, err := parts.CreatePart(header); err != nil {
			return nil, "", err
		}
		cut()
		pieces = append(pieces, bytes.NewReader(f.Data))
	}
	if err := parts.Close(); err != nil {
		return nil, "", err
	}
	cut()
	return io.MultiReader(pieces...), mime.FormatMediaType("multipart/mixed", map[string]string{"boundary": parts.Boundary()}), nil
}

func outcomeOf(w protocol.WrittenFile, f providers.FileWrite) providers.FileOutcome {
	switch {
	case w.Reason != "" || w.File == nil:
		return refused(w.Reason, w.Message)
	case w.File.Size != int64(len(f.Data)):
		return providers.FileOutcome{Err: providers.Internal.Errorf("the sandbox did not confirm all %d bytes of '%s'", len(f.Data), f.Path)}
	}
	return providers.FileOutcome{File: described(*w.File)}
}

func refused(reason, message string) providers.FileOutcome {
	class, known := classOf(reason)
	if !known {
		class = providers.Internal
	}
	return providers.FileOutcome{Err: &providers.Error{Class: class, Message: clean(message)}}
}

// ReadFiles is providers.FileTools.ReadFiles.
func (s *Sandbox) ReadFiles(ctx context.Context, paths []string, limit int64) ([]providers.FileOutcome, error) {
	wish := protocol.ReadManyRequest{MaxBytes: limit}
	for _, path := range paths {
		wish.Paths = append(wish.Paths, url.QueryEscape(path))
	}
	answer, err := s.send(ctx, http.MethodPost, protocol.ReadManyPath, wish)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	_, params, err := mime.ParseMediaType(answer.Header.Get("Content-Type"))
	if err != nil {
		return nil, providers.Internal.Errorf("the sandbox's answer cannot be read: %w", err)
	}
	parts := multipart.NewReader(io.LimitReader(answer.Body, limit+maxToolReply), params["boundary"])
	outcomes := make([]providers.FileOutcome, len(paths))
	for i := range outcomes {
		if outcomes[i], err = readPart(parts); err != nil {
			return nil, s.unavailable(err)
		}
		if limit -= int64(len(outcomes[i].Data)); limit < 0 {
			return nil, providers.Internal.Errorf("the sandbox's answer holds more bytes than allowed")
		}
	}
	if _, err := parts.NextRawPart(); !errors.Is(err, io.EOF) {
		return nil, providers.Internal.Errorf("the sandbox answered for more than %d files", len(paths))
	}
	return outcomes, nil
}

// readPart reads what became of one file; an error is of the whole answer.
func readPart(parts *multipart.Reader) (providers.FileOutcome, error) {
	part, err := parts.NextRawPart()
	if err != nil {
		return providers.FileOutcome{}, err
	}
	if reason := part.Header.Get(protocol.ReasonHeader); reason != "" {
		message, err := io.ReadAll(io.LimitReader(part, maxErrorText))
		return refused(reason, string(message)), err
	}
	data, err := io.ReadAll(part)
	return providers.FileOutcome{Data: data}, err
}
