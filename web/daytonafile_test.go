package web_test

import (
	"bytes"
	"context"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"sandyard/dev/testenv"
	"sandyard/web"
)

// upload is a form for Daytona's bulk upload: of each pair the first is the path, the second the content.
func upload(t *testing.T, pairs ...string) (body, kind string) {
	t.Helper()
	var b strings.Builder
	form := multipart.NewWriter(&b)
	for i := 0; i < len(pairs); i += 2 {
		file := "files[" + strconv.Itoa(i/2) + "]"
		check(t, form.WriteField(file+".path", pairs[i]))
		part := must(form.CreateFormFile(file+".file", "x"))(t)
		must(io.WriteString(part, pairs[i+1]))(t)
	}
	check(t, form.Close())
	return b.String(), form.FormDataContentType()
}

// TestDaytonasUploadsStream: files beyond what a body may have go through, beside small ones, and leave no job.
func TestDaytonasUploadsStream(t *testing.T) {
	t.Parallel()
	r := newInsideRig(t, func(c *web.Config) { c.MaxBody = 300 << 10 })
	files := daytonaToolbox + r.box + "/files"
	large := strings.Repeat("0123456789abcdef", 1<<16)
	body, kind := upload(t, "dir/small", "s", "dir/large", large, "empty", "", "last", "l")
	for _, chunked := range []bool{false, true} {
		req := must(http.NewRequest("POST", r.url+files+"/bulk-upload", strings.NewReader(body)))(t)
		req.Header.Set("Authorization", "Bearer "+r.key)
		req.Header.Set("Content-Type", kind)
		if chunked {
			req.ContentLength = -1
		}
		a := r.answered(req).want(t, 200)
		list, _ := a.get("files").([]any)
		if len(list) != 4 || !strings.Contains(a.raw, `{"bytes":1048576,"path":"dir/large"}`) {
			t.Errorf("uploaded %s", a.raw)
		}
	}
	for path, want := range map[string]string{"dir/small": "s", "dir/large": large, "empty": "", "last": "l"} {
		if got := r.call("GET", files+"/download?path="+path, nil).want(t, 200); got.raw != want {
			t.Errorf("%s has %d bytes, want %d", path, len(got.raw), len(want))
		}
	}
	part := r.call("GET", files+"/download?path=dir/large", nil, "Range", "bytes=16-31").want(t, 206)
	if part.raw != large[:16] {
		t.Errorf("a range is %q", part.raw)
	}
	r.call("GET", files+"/download?path=none", nil).refusedByToolbox(t, 404, "FILE_NOT_FOUND", "none")
	r.call("GET", files+"/download", nil).refusedByToolbox(t, 400, "BAD_REQUEST", "query.path is missing")

	asked := map[string]any{"paths": []string{"empty", "none", "dir/large", "last"}}
	a := r.call("POST", files+"/bulk-download", asked).want(t, 200)
	_, params, err := mime.ParseMediaType(a.header.Get("Content-Type"))
	check(t, err)
	parts := multipart.NewReader(strings.NewReader(a.raw), params["boundary"])
	for _, want := range []string{"file ", `error {"statusCode":404`, "file " + large, "file l"} {
		part := must(parts.NextPart())(t)
		if got := part.FormName() + " " + string(must(io.ReadAll(part))(t)); !strings.HasPrefix(got, want) {
			t.Errorf("a part is %.100q (%d bytes), want %.50q", got, len(got), want)
		}
	}

	one, kind := upload(t, "ignored", large)
	one = strings.Replace(one, `name="files[0].file"`, `name="file"`, 1)
	r.call("POST", files+"/upload?path=single", one, "Content-Type", kind).want(t, 200)
	if got := r.call("GET", files+"/download?path=single", nil).want(t, 200); got.raw != large {
		t.Errorf("a single upload has %d bytes", len(got.raw))
	}
	r.call("POST", files+"/upload", one, "Content-Type", kind).
		refusedByToolbox(t, 400, "BAD_REQUEST", "query.path is missing")
	r.auditedUploads(3)
}

// auditedUploads waits until the uploads have their outcome in the audit log: of each that streamed, one entry of its
// own, beside those of its jobs.
func (r *insideRig) auditedUploads(want int) {
	r.t.Helper()
	conn := must(pgx.Connect(context.Background(), r.dsn))(r.t)
	defer conn.Close(context.Background())
	testenv.Eventually(r.t, "every upload is in the audit log", func() bool {
		var n int
		check(r.t, conn.QueryRow(context.Background(), `SELECT count(*) FROM audit_log
			WHERE action LIKE 'POST %/files/%upload' AND job_id = '' AND status = 200`).Scan(&n))
		return n == want
	})
}

// TestDaytonasUploadsAreRefused: what is wrong is said, and what an upload replaces stays when it breaks off.
func TestDaytonasUploadsAreRefused(t *testing.T) {
	t.Parallel()
	r := newInsideRig(t)
	files := daytonaToolbox + r.box + "/files"
	large := strings.Repeat("x", 1<<20)
	body, kind := upload(t, "kept", "before", "/etc/large", large, "after", "a")
	r.call("POST", files+"/bulk-upload", body, "Content-Type", kind).
		refusedByToolbox(t, 400, "FILE_ACCESS_DENIED", "/etc/large")
	r.call("GET", files+"/download?path=after", nil).want(t, 404)

	body, kind = upload(t, "kept", large)
	cut := body[:len(body)/2]
	r.call("POST", files+"/bulk-upload", cut, "Content-Type", kind).
		refusedByToolbox(t, 400, "BAD_REQUEST", "ends within a file")
	if got := r.call("GET", files+"/download?path=kept", nil).want(t, 200); got.raw != "before" {
		t.Errorf("after an upload that broke off the file has %d bytes", len(got.raw))
	}
	r.call("POST", files+"/bulk-upload", body, "Content-Type", kind, "Content-Encoding", "gzip").
		refusedByToolbox(t, 415, "INTERNAL_SERVER_ERROR", "compressed")

	var many bytes.Buffer
	form := multipart.NewWriter(&many)
	for range 20_001 {
		check(t, form.WriteField("x", ""))
	}
	check(t, form.Close())
	r.call("POST", files+"/bulk-upload", many.String(), "Content-Type", form.FormDataContentType()).
		refusedByToolbox(t, 413, "INTERNAL_SERVER_ERROR", "more than 10000 files")
	body, kind = upload(t, strings.Repeat("p", 5000), "x")
	r.call("POST", files+"/bulk-upload", body, "Content-Type", kind).
		refusedByToolbox(t, 400, "BAD_REQUEST", "longer than 4096")

	var long bytes.Buffer
	form = multipart.NewWriter(&long)
	check(t, form.WriteField(strings.Repeat("n", 200)+".file", ""))
	check(t, form.Close())
	r.call("POST", files+"/bulk-upload", long.String(), "Content-Type", form.FormDataContentType()).
		refusedByToolbox(t, 400, "BAD_REQUEST", "has a name of 205 bytes")
	var paths bytes.Buffer
	form = multipart.NewWriter(&paths)
	for n := range 600 {
		check(t, form.WriteField("files["+strconv.Itoa(n)+"].path", strings.Repeat("p", 4000)))
	}
	check(t, form.Close())
	r.call("POST", files+"/bulk-upload", paths.String(), "Content-Type", form.FormDataContentType()).
		refusedByToolbox(t, 413, "INTERNAL_SERVER_ERROR", "the paths of the form")
	var nameless bytes.Buffer
	form = multipart.NewWriter(&nameless)
	for n := range 1000 {
		check(t, form.WriteField("f"+strconv.Itoa(n)+".file", ""))
	}
	check(t, form.Close())
	a := r.call("POST", files+"/bulk-upload", nameless.String(), "Content-Type", form.FormDataContentType())
	if a.refusedByToolbox(t, 400, "BAD_REQUEST", "and 980 more"); len(a.raw) > 4<<10 {
		t.Errorf("the error has %d bytes", len(a.raw))
	}
}

// TestDaytonasPathsBeforeTheFiles: Daytona's Python client sends all paths before the first file.
func TestDaytonasPathsBeforeTheFiles(t *testing.T) {
	t.Parallel()
	const many = 150
	r := newInsideRig(t)
	files := daytonaToolbox + r.box + "/files"
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	for n := range many {
		check(t, form.WriteField("files["+strconv.Itoa(n)+"].path", "many/"+strconv.Itoa(n)))
	}
	for n := range many {
		part := must(form.CreateFormFile("files["+strconv.Itoa(n)+"].file", "x"))(t)
		must(io.WriteString(part, strconv.Itoa(n)))(t)
	}
	check(t, form.Close())
	r.call("POST", files+"/bulk-upload", body.String(), "Content-Type", form.FormDataContentType()).want(t, 200)
	for _, n := range []string{"0", "149"} {
		if got := r.call("GET", files+"/download?path=many/"+n, nil).want(t, 200); got.raw != n {
			t.Errorf("many/%s holds %q", n, got.raw)
		}
	}
}
