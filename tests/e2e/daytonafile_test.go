package e2e_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"math/rand/v2"
	"mime"
	"mime/multipart"
	"net/http"
	"strconv"
	"testing"

	"sandyard/dev/testenv"
)

// TestDaytonasLargeFiles sends a file through Daytona's contract and back. The API's memory, as the kernel has seen it
// at most, does not grow with the file.
func TestDaytonasLargeFiles(t *testing.T) {
	testenv.Long(t, "it measures memory")
	t.Parallel()
	const size, most = 100 << 20, 100 << 20
	r := newRig(t)
	box := r.created(object{"memory_mb": 1024, "disk_mb": 512}).ID
	files := r.url() + "/daytona/toolbox/" + box + "/files"

	sent := sha256.New()
	body, kind := filesForm(map[string]io.Reader{
		"large": io.TeeReader(io.LimitReader(rand.NewChaCha8([32]byte{1}), size), sent),
	})
	up := r.post(files+"/bulk-upload", kind, body) //nolint:bodyclose // closed at the test's end
	if text, err := io.ReadAll(up.Body); up.StatusCode != http.StatusOK || err != nil {
		t.Fatalf("upload: %s %s, %v", up.Status, text, err)
	}
	want := hex.EncodeToString(sent.Sum(nil))
	if got := r.exec(box, "sha256sum large").succeeded(t).Stdout; got != want+"  large\n" {
		t.Errorf("in the sandbox is %s, want %s", got, want)
	}
	asked := bytes.NewReader([]byte(`{"paths":["large","none"]}`))
	down := r.post(files+"/bulk-download", "application/json", asked) //nolint:bodyclose // closed at the test's end
	_, params, err := mime.ParseMediaType(down.Header.Get("Content-Type"))
	check(t, err)
	parts := multipart.NewReader(down.Body, params["boundary"])
	part, err := parts.NextPart()
	check(t, err)
	if got := sumOf(t, part); got != want || part.Header.Get("Content-Length") != strconv.Itoa(size) {
		t.Errorf("the download is %s, want %s: %v", got, want, part.Header)
	}
	if part, err = parts.NextPart(); err != nil || part.FormName() != "error" {
		t.Errorf("of a file that is not there: %v, %v", part, err)
	}
	from := files + "/download?path=large"
	one := r.transfer(http.MethodGet, from, nil, 0) //nolint:bodyclose // closed at the test's end
	if got := sumOf(t, one.Body); got != want {
		t.Errorf("the single download is %s, want %s", got, want)
	}
	small := r.created(object{"memory_mb": 256, "disk_mb": 32}).ID
	r.exec(small, "echo old >large").succeeded(t)
	body, kind = filesForm(map[string]io.Reader{"large": io.LimitReader(zeros{}, size)})
	to := r.url() + "/daytona/toolbox/" + small + "/files/bulk-upload"
	full := r.post(to, kind, body) //nolint:bodyclose // closed at the test's end
	if text, _ := io.ReadAll(full.Body); full.StatusCode != http.StatusInsufficientStorage {
		t.Errorf("without room for the file: %s %s", full.Status, text)
	}
	if got := r.exec(small, "cat large").succeeded(t).Stdout; got != "old\n" {
		t.Errorf("instead of what it was, the file is %.20q", got)
	}
	used := peak(t, r.api)
	t.Logf("the API's peak is %d MiB", used>>20)
	if used > most {
		t.Errorf("the API took %d MiB, want at most %d", used>>20, most>>20)
	}
	r.clean()
}

func sumOf(t *testing.T, from io.Reader) string {
	t.Helper()
	sum := sha256.New()
	_, err := io.Copy(sum, from)
	check(t, err)
	return hex.EncodeToString(sum.Sum(nil))
}

// post sends a body without a limit of time. Its answer is closed at the end of the test.
func (r *rig) post(url, kind string, body io.Reader) *http.Response {
	r.t.Helper()
	req, err := http.NewRequest(http.MethodPost, url, body)
	check(r.t, err)
	req.Header.Set("Authorization", "Bearer "+r.key)
	req.Header.Set("Content-Type", kind)
	res, err := (&http.Client{Transport: r.http.Transport}).Do(req)
	check(r.t, err)
	r.t.Cleanup(func() { res.Body.Close() })
	return res
}

// filesForm is a form with files as Daytona's clients send it, made as it is read.
func filesForm(files map[string]io.Reader) (body io.Reader, kind string) {
	from, to := io.Pipe()
	form := multipart.NewWriter(to)
	go func() {
		var err error
		for path, content := range files {
			if err = form.WriteField("files[0].path", path); err != nil {
				break
			}
			var part io.Writer
			if part, err = form.CreateFormFile("files[0].file", path); err != nil {
				break
			}
			if _, err = io.Copy(part, content); err != nil {
				break
			}
		}
		if err == nil {
			err = form.Close()
		}
		to.CloseWithError(err)
	}()
	return from, form.FormDataContentType()
}
