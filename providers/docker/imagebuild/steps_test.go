package imagebuild

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/client"
	"github.com/docker/docker/pkg/stdcopy"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestAProgramThatTheRuntimeCannotStartIsTriedAgain: an engine in the place of Docker's fails to start the first execs,
// as Docker's does: with output and exit code 126, and without a process. What a program itself prints changes nothing.
func TestAProgramThatTheRuntimeCannotStartIsTriedAgain(t *testing.T) {
	t.Parallel()
	const failed = "OCI runtime exec failed: failed to load /.sandyard/guest: bad address"
	for name, c := range map[string]struct {
		cannot int64 // so many execs are not started
		says   string
		code   int
		execs  int64
	}{
		"it can":           {0, "done", 0, 1},
		"it fails":         {0, "no", 126, 1},
		"it imitates that": {0, failed, 126, 1},
		"at the third try": {2, "done", 0, 3},
		"never":            {1000, "done", 126, execTries},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var execs atomic.Int64
			answer := func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body) // what is unread at the end of a connection resets it
				begun := execs.Load() > c.cannot
				switch {
				case strings.HasSuffix(r.URL.Path, "/containers/box/exec"):
					fmt.Fprintf(w, `{"Id": "e%d"}`, execs.Add(1))
				case strings.HasSuffix(r.URL.Path, "/start"):
					conn, _, err := w.(http.Hijacker).Hijack()
					if err != nil {
						t.Error(err)
						return
					}
					defer conn.Close()
					fmt.Fprint(conn, "HTTP/1.1 101 UPGRADED\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n")
					text := failed
					if begun {
						text = c.says
					}
					fmt.Fprint(stdcopy.NewStdWriter(conn, stdcopy.Stdout), text)
				case begun:
					fmt.Fprintf(w, `{"Running": false, "ExitCode": %d, "Pid": 7}`, c.code)
				default:
					fmt.Fprint(w, `{"Running": false, "ExitCode": 126, "Pid": 0}`)
				}
			}
			engine := httptest.NewServer(http.HandlerFunc(answer))
			defer engine.Close()
			api, err := client.NewClientWithOpts(client.WithHost("tcp://"+engine.Listener.Addr().String()), client.WithVersion("1.41"))
			if err != nil {
				t.Fatal(err)
			}
			defer api.Close()
			var said bytes.Buffer
			code, err := New(Config{API: api}).exec(t.Context(), "box", container.ExecOptions{Cmd: []string{"true"}}, &said)
			if err != nil || code != c.code || execs.Load() != c.execs {
				t.Errorf("exit code %d after %d execs, %v; want %d after %d", code, execs.Load(), err, c.code, c.execs)
			}
			if c.cannot < execTries && !strings.HasSuffix(said.String(), c.says) {
				t.Errorf("said %q, want %q last", said.String(), c.says)
			}
		})
	}
}
