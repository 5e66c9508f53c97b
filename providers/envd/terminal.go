package envd

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"strconv"

	"sandyard/guest/protocol"
	"sandyard/providers"
)

var _ providers.Terminals = (*Sandbox)(nil)

// Tail is providers.Terminals.Tail.
func (s *Sandbox) Tail(ctx context.Context, name string, offset int64) (providers.Tail, error) {
	if !protocol.ValidName(name) {
		return providers.Tail{}, providers.ErrNoExec
	}
	answer, err := s.do(ctx, http.MethodGet, protocol.ExecsPath+"/"+name+"/tail?offset="+strconv.FormatInt(offset, 10), nil, nil)
	if err != nil {
		return providers.Tail{}, err
	}
	begin, err := strconv.ParseInt(answer.Header.Get(protocol.OffsetHeader), 10, 64)
	if err != nil || begin < 0 {
		_ = answer.Body.Close()
		return providers.Tail{}, providers.Internal.Errorf("the sandbox did not say what output it has")
	}
	return providers.Tail{ReadCloser: tail{answer.Body, s}, Begin: begin}, nil
}

// tail is a body whose errors are those of a provider.
type tail struct {
	io.ReadCloser

	of *Sandbox
}

// Read implements io.Reader.
func (t tail) Read(p []byte) (int, error) {
	n, err := t.ReadCloser.Read(p)
	if err != nil && err != io.EOF { //nolint:errorlint // Read answers with a bare io.EOF
		err = t.of.unavailable(err)
	}
	return n, err
}

// Resize is providers.Terminals.Resize.
func (s *Sandbox) Resize(ctx context.Context, name string, size providers.TerminalSize) error {
	query := url.Values{"cols": {strconv.Itoa(int(size.Cols))}, "rows": {strconv.Itoa(int(size.Rows))}}
	return s.execCall(ctx, http.MethodPost, name, "/resize?"+query.Encode(), nil, nil)
}
