package edge_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"

	"sandyard/jobs"
)

// TestAnswerBeforeTheRequestIsWhole: the answer arrives whole, the connection ends with it, and what is left of the
// body is nobody's next request.
func TestAnswerBeforeTheRequestIsWhole(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	id := r.sandbox(jobs.Foreign{Public: true})
	for name, c := range map[string]struct{ headers, first, rest string }{
		"small":       {"Content-Length: 2000", strings.Repeat("a", 1000), strings.Repeat("b", 1000)},
		"nothing yet": {"Content-Length: 2000", "", strings.Repeat("b", 2000)},
		"chunked":     {"Transfer-Encoding: chunked", "4\r\nabcd\r\n", "3\r\nabc\r\n0\r\n\r\n"},
		"smuggled":    {"Transfer-Encoding: chunked", "", "0\r\n\r\nGET / HTTP/1.1\r\nHost: x\r\n\r\n"},
		"large":       {"Content-Length: 4000000", strings.Repeat("a", 100_000), strings.Repeat("b", 3_900_000)},
		"unfinished":  {"Content-Length: 4000000", strings.Repeat("a", 100_000), ""},
	} {
		for _, path := range []string{"/early", "/hang-up"} {
			t.Run(name+path, func(t *testing.T) {
				t.Parallel()
				conn := r.connect(t)
				fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: 8000-%s.localhost\r\n%s\r\n\r\n%s", path, id, c.headers, c.first)
				answers := bufio.NewReader(conn)
				answered(t, answers)
				_, _ = io.WriteString(conn, c.rest) // the edge may have gone
				if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
					return // it has gone
				}
				if more, _ := io.ReadAll(answers); len(more) > 0 {
					t.Errorf("after the answer came %q", more)
				}
			})
		}
	}
}

func answered(t *testing.T, from *bufio.Reader) {
	t.Helper()
	res, err := http.ReadResponse(from, nil)
	check(t, err)
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if res.StatusCode != http.StatusRequestEntityTooLarge || string(body) != "too large\n" || err != nil || !res.Close {
		t.Errorf("answered %s, close %v, %q, %v", res.Status, res.Close, body, err)
	}
}

// TestRequestsShareAConnection: only early answers end it.
func TestRequestsShareAConnection(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	id := r.sandbox(jobs.Foreign{Public: true})
	conn := r.connect(t)
	answers := bufio.NewReader(conn)
	for _, request := range []string{
		"POST /count HTTP/1.1\r\nHost: 8000-%s.localhost\r\nContent-Length: 5\r\n\r\n12345",
		"POST /count HTTP/1.1\r\nHost: 8000-%s.localhost\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n12345\r\n0\r\n\r\n",
		"GET /count HTTP/1.1\r\nHost: 8000-%s.localhost\r\n\r\n",
	} {
		fmt.Fprintf(conn, request, id)
		res, err := http.ReadResponse(answers, nil)
		check(t, err)
		body, err := io.ReadAll(res.Body)
		check(t, err)
		check(t, res.Body.Close())
		if res.Close || res.StatusCode != http.StatusOK {
			t.Errorf("answered %s %q, close %v", res.Status, body, res.Close)
		}
	}
}

// TestLargeUploadIsNotKept: a hundred megabytes go through edge and gateway, which keep none of them. It runs beside no
// other test, because it counts the garbage of the whole process.
func TestLargeUploadIsNotKept(t *testing.T) {
	const size = 100 << 20
	r := newRig(t)
	id := r.sandbox(jobs.Foreign{Public: true})
	for name, length := range map[string]int64{"of known length": size, "of unknown length": -1} {
		req := r.to(id, 8000, "POST", "/count")
		req.Body, req.ContentLength = io.NopCloser(io.LimitReader(zeros{}, size)), length
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		r.send(req).want(t, 200, fmt.Sprintln(size, nil))
		runtime.ReadMemStats(&after)
		if took := after.TotalAlloc - before.TotalAlloc; took > size/2 {
			t.Errorf("an upload %s of %d bytes made %d bytes of garbage", name, size, took)
		}
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

// TestHalfClosedConnection: the client's end of its stream reaches the server in the sandbox, whose last words arrive.
func TestHalfClosedConnection(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	id := r.sandbox(jobs.Foreign{Public: true})
	conn := r.connect(t)
	fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: 8000-%s.localhost\r\nConnection: Upgrade\r\nUpgrade: raw\r\n\r\n", id)
	answers := bufio.NewReader(conn)
	res, err := http.ReadResponse(answers, nil)
	check(t, err)
	defer res.Body.Close()
	fmt.Fprintln(conn, "word")
	check(t, conn.(*net.TCPConn).CloseWrite())
	rest, err := io.ReadAll(answers)
	if string(rest) != "WORD\nbye\n" || err != nil {
		t.Errorf("after the half close came %q, %v", rest, err)
	}
}
