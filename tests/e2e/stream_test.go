package e2e_test

import (
	"io"
	"net/http"
	"testing"
	"time"

	"sandyard/dev/testenv"
)

// TestGibibyteIsNotHeldInMemory sends a file through all processes and back, and asks the kernel what they ever used.
func TestGibibyteIsNotHeldInMemory(t *testing.T) {
	testenv.Long(t, "it measures memory")
	t.Parallel()
	const size, most = 1 << 30, 100 << 10 // bytes, KiB
	r := newRig(t)
	box := r.created(object{"memory_mb": 2560, "disk_mb": 1536}).ID
	url := r.url() + "/v1/sandboxes/" + box + "/files/raw?path=large"
	began := time.Now()
	up := r.transfer(http.MethodPut, url, io.LimitReader(zeros{}, size), size) //nolint:bodyclose // closed at the end of the test
	if up.StatusCode != http.StatusOK {
		b, _ := io.ReadAll(up.Body)
		t.Fatalf("upload: %s: %s", up.Status, b)
	}
	uploaded := time.Since(began)
	down := r.transfer(http.MethodGet, url, nil, 0) //nolint:bodyclose // closed at the end of the test
	n, err := io.Copy(io.Discard, down.Body)
	if err != nil || n != size {
		t.Errorf("%d bytes came back: %v", n, err)
	}
	api, worker := peak(t, r.api)>>10, peak(t, r.worker)>>10
	t.Logf("1 GiB up in %v, down in %v; the API's peak is %d KiB, the worker's %d KiB", uploaded, time.Since(began)-uploaded, api, worker)
	if api > most || worker > most {
		t.Errorf("the API took %d KiB, the worker %d KiB, want at most %d", api, worker, most)
	}
	r.clean()
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// transfer makes a request without a limit of time. Its answer is closed at the end of the test.
func (r *rig) transfer(method, url string, body io.Reader, size int64) *http.Response {
	r.t.Helper()
	req, err := http.NewRequest(method, url, body)
	if err != nil {
		r.t.Fatal(err)
	}
	req.ContentLength = size
	req.Header.Set("Authorization", "Bearer "+r.key)
	res, err := (&http.Client{Transport: r.http.Transport}).Do(req)
	if err != nil {
		r.t.Fatalf("%s: %v", method, err)
	}
	r.t.Cleanup(func() { res.Body.Close() })
	return res
}
