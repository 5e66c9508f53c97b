package guest

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	"sandyard/guest/envdpb/filesystem"
	"sandyard/guest/envdpb/filesystem/filesystemconnect"
	"sandyard/guest/envdpb/process"
	"sandyard/guest/envdpb/process/processconnect"
	"sandyard/guest/execs"
	"sandyard/guest/files"
	"sandyard/guest/protocol"

	"connectrpc.com/connect"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// scene is a sandbox's files and one beside them that no call may change.
type scene struct {
	base string
	tree *files.Tree
}

func newScene(t *testing.T) scene {
	t.Helper()
	s := scene{base: t.TempDir()}
	root := filepath.Join(s.base, "root")
	err := errors.Join(
		os.Mkdir(root, 0o755), os.WriteFile(filepath.Join(s.base, "secret"), []byte("secret"), 0o644),
		os.WriteFile(filepath.Join(root, "f"), []byte("inside"), 0o644), os.Symlink("..", filepath.Join(root, "up")),
	)
	if err != nil {
		t.Fatal(err)
	}
	s.tree = files.NewTree([]string{root}, root)
	return s
}

func (s scene) check(t *testing.T) {
	t.Helper()
	left, err := os.ReadDir(s.base)
	secret, readErr := os.ReadFile(filepath.Join(s.base, "secret"))
	if err := errors.Join(err, readErr); err != nil || len(left) != 2 || string(secret) != "secret" {
		t.Errorf("outside are %v, %q, %v", left, secret, err)
	}
}

// FuzzUpload writes files as a client may ask for that: raw, as a form, and several at once. A refusal has a reason of the
// caller's.
func FuzzUpload(f *testing.F) {
	const form = "multipart/form-data; boundary=b"
	part := func(header, text string) string { return "--b\r\n" + header + "\r\n\r\n" + text + "\r\n" }
	for _, in := range []struct{ path, kind, coding, body string }{
		{"x", "application/octet-stream", "", "raw"},
		{"../x", "application/octet-stream", "", "raw"},
		{"", "", "", ""},
		{"x", "", "gzip", "\x1f\x8b"},
		{"x", "", "gzip", string(gzipped([]byte("text")))},
		{"x", "", "br", "text"},
		{"up/secret", "application/octet-stream", "", "raw"},
		{"x", form, "", part(`Content-Disposition: form-data; name="file"; filename="a"`, "one") + "--b--\r\n"},
		{"", form, "", part(`Content-Disposition: form-data; name="file"; filename="../secret"`, "one") + part(`Content-Disposition: form-data; name="file"; filename*=UTF-8''%2e%2e%2Fsecret`, "two") + "--b--"},
		{"", form, "", part(`Content-Disposition: form-data; name=file`, "no name") + "--b--"},
		{"", form, "", "--b\r\n"},
		{"", "multipart/form-data", "", "--\r\n\r\n--\r\n"},
		{"", form, "gzip", string(gzipped([]byte(part(`Content-Disposition: form-data; name="file"; filename="z"`, "z") + "--b--")))},
		{"", "multipart/mixed; boundary=b", "", part(protocol.PathHeader+": a%2Fb\r\n"+protocol.ModeHeader+": 600", "one") + part(protocol.PathHeader+": ..%2fsecret", "two") + "--b--\r\n"},
		{"", "multipart/mixed; boundary=b", "", part(protocol.PathHeader+": %zz", "") + part(protocol.ModeHeader+": 7777", "") + "--b--"},
	} {
		f.Add(in.path, in.kind, in.coding, []byte(in.body))
	}
	f.Fuzz(func(t *testing.T, path, kind, coding string, body []byte) {
		s := newScene(t)
		for _, upload := range []http.HandlerFunc{
			call((&fileService{files: s.tree}).upload), call((&fileService{files: s.tree.AsEnvd()}).upload), call((&Guest{files: s.tree}).writeMany),
		} {
			w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/files", bytes.NewReader(body))
			q := r.URL.Query()
			q.Set("path", path)
			r.URL.RawQuery = q.Encode()
			r.Header.Set("Content-Type", kind)
			r.Header.Set("Content-Encoding", coding)
			r.Header.Set("X-Metadata-Kind", coding)
			upload(w, r)
			if answer := w.Result(); answer.StatusCode >= http.StatusInternalServerError || strings.Contains(w.Body.String(), `"`+protocol.ReasonInternal+`"`) {
				t.Errorf("%d %s", answer.StatusCode, w.Body)
			}
		}
		s.check(t)
	})
}

func gzipped(b []byte) []byte {
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	_, _ = z.Write(b)
	_ = z.Close()
	return out.Bytes()
}

// procedures are envd's calls, but for the one that would start commands.
func procedures() []string {
	return []string{
		processconnect.ProcessConnectProcedure, processconnect.ProcessListProcedure, processconnect.ProcessUpdateProcedure,
		processconnect.ProcessStreamInputProcedure, processconnect.ProcessSendInputProcedure, processconnect.ProcessSendSignalProcedure,
		processconnect.ProcessCloseStdinProcedure, filesystemconnect.FilesystemStatProcedure, filesystemconnect.FilesystemMakeDirProcedure,
		filesystemconnect.FilesystemMoveProcedure, filesystemconnect.FilesystemListDirProcedure, filesystemconnect.FilesystemRemoveProcedure,
		filesystemconnect.FilesystemWatchDirProcedure, filesystemconnect.FilesystemCreateWatcherProcedure,
		filesystemconnect.FilesystemGetWatcherEventsProcedure, filesystemconnect.FilesystemRemoveWatcherProcedure,
	}
}

// watchAWhile bounds a call that would go on for as long as its client wants.
const watchAWhile = 20 * time.Millisecond

// FuzzEnvelopes makes envd's calls with what clients may send in every coding of the protocol: each is answered, and where we
// refuse it, for a reason of the caller's.
func FuzzEnvelopes(f *testing.F) {
	envelope := func(flags byte, b []byte) []byte {
		return append(binary.BigEndian.AppendUint32([]byte{flags}, uint32(len(b))), b...)
	}
	stat, _ := proto.Marshal(&filesystem.StatRequest{Path: "up/secret"})
	watch, _ := proto.Marshal(&filesystem.WatchDirRequest{Path: ".", Recursive: true})
	input, _ := proto.Marshal(&process.StreamInputRequest{Event: &process.StreamInputRequest_Data{Data: &process.StreamInputRequest_DataEvent{}}})
	for i, name := range procedures() {
		call := uint8(i)
		f.Add(call, "application/json", "", "", []byte(`{"path":"f","process":{"pid":1},"source":"f","destination":"../x","watcherId":"w","signal":9}`))
		f.Add(call, "application/proto", "gzip", "100", gzipped(stat))
		f.Add(call, "application/connect+json", "", "", envelope(0, []byte(`{"path":".","process":{"tag":"t"},"start":{"process":{"pid":7}}}`)))
		if strings.HasSuffix(name, "WatchDir") || strings.HasSuffix(name, "StreamInput") {
			f.Add(call, "application/connect+proto", "", "", envelope(0, watch))
			f.Add(call, "application/connect+proto", "gzip", "5", envelope(1, gzipped(input)))
			f.Add(call, "application/connect+proto", "", "", []byte{0, 0xff, 0xff, 0xff, 0xff})
			f.Add(call, "application/connect+proto", "", "", slices.Concat(envelope(0, nil), envelope(2, []byte("{}")), envelope(0, input)))
		}
	}
	f.Add(uint8(0), "application/grpc-web+proto", "identity", "1S", envelope(0, nil))
	f.Add(uint8(3), "application/grpc", "deflate", "99999999H", envelope(0, nil))
	f.Fuzz(func(t *testing.T, call uint8, kind, coding, patience string, body []byte) {
		s := newScene(t)
		watchers := newWatchers(s.tree)
		defer watchers.close()
		mux := http.NewServeMux()
		options := connect.WithReadMaxBytes(maxMessage)
		mux.Handle(processconnect.NewProcessHandler(&processService{execs: execs.NewRegistry(nil, nil, s.base)}, options))
		mux.Handle(filesystemconnect.NewFilesystemHandler(&filesystemService{files: s.tree, watchers: watchers, lenient: true}, options))
		ctx, stop := context.WithTimeout(context.Background(), watchAWhile)
		defer stop()
		all := procedures()
		w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, all[int(call)%len(all)], bytes.NewReader(body)).WithContext(ctx)
		r.Header.Set("Content-Type", kind)
		r.Header.Set("Content-Encoding", coding)
		r.Header.Set("Connect-Content-Encoding", coding)
		r.Header.Set("Connect-Timeout-Ms", patience)
		r.Header.Set("Connect-Protocol-Version", "1")
		mux.ServeHTTP(w, r)
		reasons := append(w.Header().Values(protocol.ReasonHeader), w.Body.String())
		if slices.Contains(reasons, protocol.ReasonInternal) || strings.Contains(w.Body.String(), `"`+protocol.ReasonHeader+`":["`+protocol.ReasonInternal) {
			t.Errorf("%d %s", w.Code, w.Body)
		}
		s.check(t)
	})
}

// FuzzStart reads a request to start a command with its headers.
func FuzzStart(f *testing.F) {
	full, _ := proto.Marshal(&process.StartRequest{
		Process: &process.ProcessConfig{Cmd: "/bin/sh", Args: []string{"-c", "true"}}, Pty: &process.PTY{Size: &process.PTY_Size{Cols: 1 << 31, Rows: 7}},
	})
	f.Add(full, "name", "1", "5")
	f.Add([]byte{}, "", "", "")
	f.Add(full, "..", "yes", "-1")
	f.Add(full, "a\x00", "1", "9223372036854775808")
	f.Fuzz(func(t *testing.T, body []byte, name, shell, number string) {
		req := connect.NewRequest(&process.StartRequest{})
		if proto.Unmarshal(body, req.Msg) != nil {
			return
		}
		req.Header().Set(protocol.ExecHeader, name)
		req.Header().Set(protocol.ShellHeader, shell)
		for _, header := range []string{protocol.MaxOutputHeader, protocol.StdoutOffsetHeader, protocol.StderrOffsetHeader} {
			req.Header().Set(header, number)
		}
		c, offsets, err := commandOf(req)
		if err == nil && (c.MaxOutput < 0 || offsets[0] < 0 || offsets[1] < 0 || (c.TTY == nil) != (req.Msg.GetPty() == nil)) {
			t.Errorf("%+v, %v", c, offsets)
		}
		if err != nil && refusal(err).Reason != protocol.ReasonInvalid {
			t.Error(err)
		}
	})
}
