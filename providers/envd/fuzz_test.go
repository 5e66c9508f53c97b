package envd_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"sandyard/guest/envdpb/filesystem"
	"sandyard/guest/envdpb/process"
	"sandyard/providers"
	"sandyard/providers/envd"

	"google.golang.org/protobuf/proto"
)

// answer is what a hostile guest says to every request.
type answer struct {
	status  int
	kind    string
	reason  string
	report  string
	body    []byte
	endless bool // the body begins anew where it ends
}

func (a answer) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body != nil {
		_, _ = io.Copy(io.Discard, r.Body)
		_ = r.Body.Close()
	}
	var body io.Reader = bytes.NewReader(a.body)
	if a.endless && len(a.body) > 0 {
		body = &loop{ctx: r.Context(), text: a.body}
	}
	return &http.Response{
		StatusCode: a.status, ProtoMajor: 1, ProtoMinor: 1, Request: r, ContentLength: -1,
		Header: http.Header{
			"Content-Type": {a.kind}, "Sandyard-Reason": {a.reason}, "Sandyard-Age-Ms": {a.report}, "Sandyard-Info": {a.report},
			"Sandyard-Offset": {a.number()}, "Sandyard-Size": {a.number()}, "Sandyard-Modified": {a.number()}, "Sandyard-Mode": {a.number()},
		},
		Trailer: http.Header{"Sandyard-Report": {a.report}},
		Body:    io.NopCloser(body),
	}, nil
}

// number is the report where it is a number, else one that does.
func (a answer) number() string {
	if _, err := strconv.ParseInt(a.report, 10, 64); err != nil {
		return "7"
	}
	return a.report
}

// loop reads the same text again and again, until its request ends.
type loop struct {
	ctx  context.Context //nolint:containedctx // the request's, which bounds the reading
	text []byte
	at   int
}

func (l *loop) Read(p []byte) (int, error) {
	if err := l.ctx.Err(); err != nil {
		return 0, err
	}
	n := copy(p, l.text[l.at:])
	l.at = (l.at + n) % len(l.text)
	return n, nil
}

// envelope frames a message as a Connect stream does.
func envelope(t testing.TB, flags byte, m proto.Message) []byte {
	t.Helper()
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return append(binary.BigEndian.AppendUint32([]byte{flags}, uint32(len(b))), b...)
}

func last(text string) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{2}, uint32(len(text))), text...)
}

func join(parts ...[]byte) []byte { return bytes.Join(parts, nil) }

// FuzzAnswers checks that no answer of a guest makes its worker fall, keep more than it should or believe nonsense.
func FuzzAnswers(f *testing.F) {
	const stream, unary = "application/connect+proto", "application/proto"
	begin, data, end := envelope(f, 0, started()), envelope(f, 0, event([]byte("some output"))), envelope(f, 0, ended())
	entries, err := proto.Marshal(&filesystem.ListDirResponse{Entries: []*filesystem.EntryInfo{{Name: "n", Path: "/n", Mode: 1 << 31}}})
	must(&testing.T{}, err)
	for _, a := range []answer{
		{200, stream, "", `{"exit_code":3,"signal":9,"oom_kills":1}`, join(begin, data, end, last("{}")), false},
		{200, stream, "", `{"exit_code":-1e9}`, join(begin, begin, end, end, data, last("{}")), false},
		{200, stream, "", `{`, join(begin, end, last(`{"metadata":{"Sandyard-Report":["{}"]}}`)), false},
		{200, stream, "no_space", "", join(begin, last(`{"error":{"code":"not_found","message":"a\u0000b"}}`)), false},
		{200, stream, "", "9223372036854775807", join(data, end, last("{}")), false},
		{200, stream, "", "{}", []byte{0, 0xff, 0xff, 0xff, 0xff}, false},
		{200, stream, "", "{}", data, true},
		{200, stream, "", "-1", begin, false},
		{200, unary, "", "", entries, false},
		{200, unary, "", "", []byte{0x0a, 0xff, 0xff, 0xff, 0xff, 0x0f}, false},
		{200, "application/json", "", "", []byte(`[{"path":"/x","name":"x","size":4,"mode":4294967295}]`), false},
		{200, "text/plain", "", "", []byte("text"), true},
		{404, "application/json", "file_not_found", "", []byte(`{"code":404,"message":"no\nfile"}`), false},
		{500, "text/html", "nonsense", "", []byte("<h1>"), true},
		{307, "", "busy", "", nil, false},
		{200, stream, "", "", envelope(f, 1, &process.StartResponse{}), false},
		{200, stream, "", "", join(envelope(f, 0, &filesystem.WatchDirResponse{}), last("{}")), false},
		{200, "application/json", "", `{"name":"a\u0000b","pid":-1,"running":true,"stdout_bytes":-5,"age_ms":-9223372036854775808}`, []byte(`{"name":"a\u0000b","exit_code":-1,"signal":99}`), false},
		{200, "application/json", "", "-9223372036854775808", []byte(`{"before":[-1,2,3],"after":[9223372036854775807,0,-1],"age_ms":-1}`), false},
		{200, "application/json", "", "", []byte(`{"file":{"name":"\u0000","size":-1,"modified_ms":9223372036854775807},"replaced":[-7]}`), false},
		{200, "application/json", "", "", []byte(`{"entries":[{},{"mode":4294967295},{"path":"\u0000"}],"unreadable":-1}`), false},
		{200, "application/json", "", "", []byte(`{"matches":[{"path":"p","line":-1,"before":["\u0000"]},{}],"searched":-1,"binary":-1}`), false},
		{200, "application/json", "", "", []byte(`[{"path":"x","file":{"size":4,"modified_ms":-9223372036854775808}}]`), false},
		{200, "application/json", "", "", []byte(`[{"reason":"no_space","message":"a\u0000b"}]`), false},
		{200, "application/json", "", "", []byte(`{"files":1,"bytes":-1,"stripped":["\u0000"]}`), false},
		{200, "multipart/mixed; boundary=b", "", "", []byte("--b\r\n\r\ntext\r\n--b--\r\n"), false},
		{200, "multipart/mixed; boundary=b", "", "", []byte("--b\r\nSandyard-Reason: no\r\n\r\n\x00\xff\r\n--b\r\n\r\n"), false},
		{200, "multipart/mixed; boundary=b", "", "", []byte("--b\r\n\r\n"), true},
		{206, "application/octet-stream", "", "4", []byte("text"), false},
	} {
		f.Add(a.status, a.kind, a.reason, a.report, a.body, a.endless)
	}
	f.Fuzz(func(t *testing.T, status int, kind, reason, report string, body []byte, endless bool) {
		if status < 200 || status > 599 {
			return // net/http makes no answer of that
		}
		hc := &http.Client{Transport: answer{status, kind, reason, report, body, endless}}
		s := envd.New(hc, "http://guest")
		checkCalls(t, s)
		checkBackground(t, s)
		checkTools(t, s)
		checkStreams(t, s)
	})
}

// checkCalls makes every call and looks at what the worker would pass on.
func checkCalls(t *testing.T, s *envd.Sandbox) {
	t.Helper()
	const limit = 100
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	r, err := s.Run(ctx, providers.Command{Name: "x", Argv: []string{"true"}, MaxOutput: limit, Stdin: []byte("in")})
	checkError(t, "run", err)
	if len(r.Stdout) > limit || len(r.Stderr) > limit || r.ExitCode < 0 || r.ExitCode > 255 || r.Duration < 0 ||
		r.StdoutBytes < int64(len(r.Stdout)) || r.StderrBytes < int64(len(r.Stderr)) {
		t.Errorf("the result is %+v", r)
	}
	content, err := s.ReadFile(ctx, "f", limit)
	checkError(t, "read", err)
	if len(content) > limit {
		t.Errorf("%d bytes were read", len(content))
	}
	written, err := s.WriteFile(ctx, "f", []byte("text"), 0)
	checkError(t, "write", err)
	found, err := s.Stat(ctx, "f")
	checkError(t, "stat", err)
	checkFiles(t, written, found)
	list, err := s.ListDir(ctx, "d", 1)
	checkError(t, "list", err)
	if len(list) > 10_000 {
		t.Errorf("%d entries were listed", len(list))
	}
	checkFiles(t, list...)
	made, err := s.MakeDir(ctx, "d")
	checkError(t, "make", err)
	moved, err := s.Move(ctx, "a", "b")
	checkError(t, "move", err)
	checkFiles(t, made, moved)
	checkError(t, "remove", s.Remove(ctx, "f"))
	checkError(t, "kill", s.Kill(ctx, "x"))
	checkError(t, "forget", s.Forget(ctx, "x"))
	_, err = s.ExecInfos(ctx)
	checkError(t, "execs", err)
	checkError(t, "init", s.Init(ctx, envd.Init{}))
	checkError(t, "claim", s.Claim(ctx, nil))
	checkError(t, "ping", s.Ping(ctx))
}

// checkError says that an error has a class and that its words can be shown and logged.
func checkError(t *testing.T, call string, err error) {
	t.Helper()
	if err == nil {
		return
	}
	var e *providers.Error
	if !errors.As(err, &e) || e.Class == "" {
		t.Errorf("%s: %v has no class", call, err)
		return
	}
	if !utf8.ValidString(e.Message) || strings.ContainsFunc(e.Message, func(r rune) bool { return r < ' ' }) || len(e.Message) > 2000 {
		t.Errorf("%s: the message is %q", call, e.Message)
	}
}
