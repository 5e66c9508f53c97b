package envd_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"mime/multipart"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"sandyard/guest/envdpb/filesystem"
	"sandyard/guest/envdpb/filesystem/filesystemconnect"
	"sandyard/providers/envd"

	"connectrpc.com/connect"
)

func TestRanges(t *testing.T) {
	t.Parallel()
	s := newEngine(t).sandbox(envd.Options{})
	_, err := s.WriteFile(patient(t), "f", []byte("0123456789"), 0)
	must(t, err)
	hc := outsider(t, s)
	for header, want := range map[string]string{
		"bytes=2-4": "206 234", "bytes=7-": "206 789", "bytes=-1": "206 9", "bytes=20-": "416 invalid range: failed to overlap\n",
	} {
		if code, text := ask(t, hc, "GET", "/files?path=f", "", "Range", header); fmt.Sprint(code, " ", text) != want {
			t.Errorf("%s: got %d %q", header, code, text)
		}
	}
}

func packed(t *testing.T, text string) string {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, err := io.WriteString(z, text)
	must(t, err)
	must(t, z.Close())
	return b.String()
}

func TestCompressedFiles(t *testing.T) {
	t.Parallel()
	s := newEngine(t).sandbox(envd.Options{})
	hc := outsider(t, s)
	text := strings.Repeat("compressible ", 10_000)
	if code, answer := ask(t, hc, "POST", "/files?path=f", packed(t, text), "Content-Encoding", "gzip"); code != 200 {
		t.Errorf("upload: got %d %s", code, answer)
	}
	if b, err := s.ReadFile(patient(t), "f", 1<<20); err != nil || string(b) != text {
		t.Errorf("kept %d bytes, %v", len(b), err)
	}
	for body, coding := range map[string]string{"no gzip": "gzip", packed(t, text)[:100]: "gzip", "x": "br"} {
		if code, answer := ask(t, hc, "POST", "/files?path=f", body, "Content-Encoding", coding); code != 400 {
			t.Errorf("a bad body: got %d %s", code, answer)
		}
	}
	for accept, small := range map[string]bool{
		"gzip": true, "gzip, identity;q=0": true, "gzip;q=0": false, "gzip, deflate, br": false, "identity": false,
	} {
		code, answer := ask(t, hc, "GET", "/files?path=f", "", "Accept-Encoding", accept)
		if code != 200 || (len(answer) < len(text)) != small {
			t.Errorf("%s: got %d and %d bytes", accept, code, len(answer))
		}
		if !small {
			continue
		}
		z, err := gzip.NewReader(strings.NewReader(answer))
		must(t, err)
		if got, err := io.ReadAll(z); err != nil || string(got) != text {
			t.Errorf("%s: %d bytes came, %v", accept, len(got), err)
		}
	}
	if code, answer := ask(t, hc, "GET", "/files?path=f", "", "Accept-Encoding", "br, identity;q=0"); code != 406 {
		t.Errorf("nothing acceptable: got %d %s", code, answer)
	}
}

func metadataOf(t *testing.T, hc *http.Client, path string) map[string]string {
	t.Helper()
	c := filesystemconnect.NewFilesystemClient(hc, "http://guest")
	stat, err := c.Stat(patient(t), connect.NewRequest(&filesystem.StatRequest{Path: path}))
	must(t, err)
	list, err := c.ListDir(patient(t), connect.NewRequest(&filesystem.ListDirRequest{Path: filepath.Dir(path)}))
	must(t, err)
	for _, e := range list.Msg.GetEntries() {
		if e.GetPath() == stat.Msg.GetEntry().GetPath() && !maps.Equal(e.GetMetadata(), stat.Msg.GetEntry().GetMetadata()) {
			t.Errorf("listed %v, stat %v", e.GetMetadata(), stat.Msg.GetEntry().GetMetadata())
		}
	}
	return stat.Msg.GetEntry().GetMetadata()
}

// TestWrittenFilesAsEnvdTellsThem: E2B's Python clients up to 2.2 fail at a field that they do not know.
func TestWrittenFilesAsEnvdTellsThem(t *testing.T) {
	t.Parallel()
	e := newEngine(t)
	hc := outsider(t, e.sandbox(envd.Options{}))
	one := fmt.Sprintf(`{"path":%q,"name":"f","type":"file"}`, filepath.Join(e.workDir, "f"))
	if code, text := ask(t, hc, "POST", "/files?path=f", "x"); code != 200 || strings.TrimSpace(text) != "["+one+"]" {
		t.Errorf("upload: %d %s, want [%s]", code, text, one)
	}
	ask(t, hc, "POST", "/files?path=part", "x")
	join := `{"source_paths":["part"],"destination":"f"}`
	if code, text := ask(t, hc, "POST", "/files/compose", join); code != 200 || strings.TrimSpace(text) != one {
		t.Errorf("compose: %d %s, want %s", code, text, one)
	}
}

func TestMetadata(t *testing.T) {
	t.Parallel()
	e := newEngine(t)
	hc := outsider(t, e.sandbox(envd.Options{}))
	code, text := ask(t, hc, "POST", "/files?path=f", "x", "X-Metadata-Author", "some one", "X-Metadata-Empty", "")
	if syscall.Setxattr(e.workDir, "user.probe", nil, 0) != nil {
		if code != 400 || !strings.Contains(text, "keeps no metadata") {
			t.Errorf("on a file system without attributes: %d %s", code, text)
		}
		return
	}
	want := map[string]string{"author": "some one", "empty": ""}
	var written []struct{ Metadata map[string]string }
	must(t, json.Unmarshal([]byte(text), &written))
	if code != 200 || !maps.Equal(written[0].Metadata, want) {
		t.Errorf("got %d %s", code, text)
	}
	if got := metadataOf(t, hc, "f"); !maps.Equal(got, want) {
		t.Errorf("got %v", got)
	}
	var form bytes.Buffer
	parts := multipart.NewWriter(&form)
	for _, name := range []string{"f", "g"} {
		w, err := parts.CreateFormFile("file", name)
		must(t, err)
		_, err = io.WriteString(w, name)
		must(t, err)
	}
	must(t, parts.Close())
	ask(t, hc, "POST", "/files", form.String(), "Content-Type", parts.FormDataContentType(), "X-Metadata-K", "v")
	for _, name := range []string{"f", "g"} {
		if got := metadataOf(t, hc, name); !maps.Equal(got, map[string]string{"k": "v"}) {
			t.Errorf("%s: got %v", name, got)
		}
	}
	ask(t, hc, "POST", "/files?path=f", "y")
	if got := metadataOf(t, hc, "f"); len(got) != 0 {
		t.Errorf("a plain upload left %v", got)
	}
}

func TestMetadataIsBounded(t *testing.T) {
	t.Parallel()
	e := newEngine(t)
	hc := outsider(t, e.sandbox(envd.Options{}))
	long := strings.Repeat("k", 247)
	for name, value := range map[string]string{long: "", "umlaut": "\xc3\xbc", "tab": "a\tb", "large": strings.Repeat("v", 4096)} {
		if code, text := ask(t, hc, "POST", "/files?path=f", "x", "X-Metadata-"+name, value); code != 400 {
			t.Errorf("%.20s: got %d %s", name, code, text)
		}
	}
	if _, err := os.Stat(filepath.Join(e.workDir, "f")); err == nil {
		t.Error("a refused upload left a file")
	}
	// What code in the sandbox writes by itself.
	f := filepath.Join(e.workDir, "own")
	must(t, os.WriteFile(f, nil, 0o644))
	for name, value := range map[string]string{"user.e2b.a": "b", "user.e2b.bad": "\xff", "user.other": "x"} {
		if syscall.Setxattr(f, name, []byte(value), 0) != nil {
			return // the file system keeps none
		}
	}
	if got := metadataOf(t, hc, "own"); !maps.Equal(got, map[string]string{"a": "b"}) {
		t.Errorf("got %v", got)
	}
}

func TestCompose(t *testing.T) {
	t.Parallel()
	e := newEngine(t)
	s := e.sandbox(envd.Options{})
	hc := outsider(t, s)
	for _, name := range []string{"a", "b", "c"} {
		ask(t, hc, "POST", "/files?path="+name, "<"+name+">")
	}
	for body, want := range map[string]int{
		`{"source_paths":["a","absent"],"destination":"d"}`:            404,
		`{"source_paths":["a","."],"destination":"d"}`:                 400,
		`{"source_paths":["a","/etc/passwd"],"destination":"d"}`:       400,
		`{"source_paths":["a"],"destination":"/etc/d"}`:                400,
		`{"source_paths":[],"destination":"d"}`:                        400,
		`{"source_paths":["a"],"destination":"d","username":"nobody"}`: 401,
		`{"source_paths":`: 400,
	} {
		if code, text := ask(t, hc, "POST", "/files/compose", body); code != want {
			t.Errorf("%s: got %d %s", body, code, text)
		}
	}
	code, text := ask(t, hc, "POST", "/files/compose", `{"source_paths":["a","b","c","a"],"destination":"b"}`)
	if code != 200 || !strings.Contains(text, `"path":"`+e.workDir+`/b"`) {
		t.Errorf("got %d %s", code, text)
	}
	if b, err := s.ReadFile(patient(t), "b", 100); err != nil || string(b) != "<a><b><c><a>" {
		t.Errorf("got %q, %v", b, err)
	}
	left, err := os.ReadDir(e.workDir)
	if err != nil || len(left) != 1 {
		t.Errorf("left are %v, %v", left, err)
	}
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	hc := outsider(t, newEngine(t).sandbox(envd.Options{}))
	code, text := ask(t, hc, "GET", "/metrics", "")
	var m map[string]float64
	must(t, json.Unmarshal([]byte(text), &m))
	positive := []string{"ts", "cpu_count", "mem_total", "mem_used", "mem_total_mib", "mem_used_mib", "disk_total", "disk_used"}
	for _, name := range positive {
		if m[name] <= 0 {
			t.Errorf("%s is %v", name, m[name])
		}
	}
	_, cpu := m["cpu_used_pct"]
	_, cache := m["mem_cache"]
	if code != 200 || !cpu || !cache || m["cpu_used_pct"] > 100 || m["mem_used"] > m["mem_total"] || m["disk_used"] > m["disk_total"] {
		t.Errorf("got %d %s", code, text)
	}
	if now := float64(time.Now().Unix()); m["ts"] < now-60 || m["ts"] > now+1 {
		t.Errorf("ts is %v at %v", m["ts"], now)
	}
}
