package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"

	"sandyard/models"
)

// program is what a first start runs: it shows where it is and what it may do.
const program = `import os, platform, sys
print("Hello from Python", platform.python_version(), "in a sandbox")
print("user", os.getuid(), "at", os.getcwd(), "with", sorted(os.listdir("/sys/class/net")), "as its network")
print("2 ** 100 =", 2 ** 100)
print("this goes to stderr", file=sys.stderr)
`

// finishedJob is the part of a job document that is shown.
type finishedJob struct {
	Job struct {
		ID     string
		State  string
		Stdout string
		Stderr string
		Error  *struct{ Code, Message string }
		Result struct {
			ExitCode   int   `json:"exit_code"`
			DurationMS int64 `json:"duration_ms"`
		}
		Timings struct {
			QueueMS float64 `json:"queue_ms"`
			RunMS   float64 `json:"run_ms"`
		}
	}
	Sandbox struct{ ID string }
}

func (d *devStack) url() string { return "http://" + d.doors.API.Addr().String() }

// awaitReady waits until the API takes jobs.
func (d *devStack) awaitReady(ctx context.Context) error {
	ended := make(chan error, 1)
	go func() { ended <- d.running.Wait() }()
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); {
		resp, err := http.Get(d.url() + "/readyz")
		if err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case err := <-ended:
			return fmt.Errorf("API, worker or scheduler ended: %w", err)
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(10 * time.Millisecond):
		}
	}
	return fmt.Errorf("the API is not ready after 30 s; see %s/log", d.dir)
}

// tryOut runs the program through the API, as any client would.
func (d *devStack) tryOut(ctx context.Context) error {
	began := time.Now()
	body, err := json.Marshal(map[string]any{
		"files": []map[string]string{{"path": "hello.py", "content": program}},
		"argv":  []string{"python3", "hello.py"},
	})
	if err != nil {
		return err
	}
	var done finishedJob
	if err := d.post(ctx, "/v1/run?wait=60s", body, &done); err != nil {
		return err
	}
	j := done.Job
	if j.State != "succeeded" || j.Result.ExitCode != 0 {
		return fmt.Errorf("the first program ended %s: %+v, stderr %q; see %s/log", j.State, j.Error, j.Stderr, d.dir)
	}
	fmt.Printf("\nPOST /v1/run: %s ended %s, exit code %d, in sandbox %s\n", j.ID, j.State, j.Result.ExitCode, done.Sandbox.ID)
	fmt.Printf("  command %d ms; wait for the sandbox and the file %.0f ms; whole request %d ms\n",
		j.Result.DurationMS, j.Timings.QueueMS, time.Since(began).Milliseconds())
	fmt.Printf("stdout:\n%s\nstderr:\n%s\n", indent(j.Stdout), indent(j.Stderr))
	return nil
}

func indent(s string) string {
	return "  " + string(bytes.ReplaceAll(bytes.TrimSpace([]byte(s)), []byte("\n"), []byte("\n  ")))
}

func (d *devStack) post(ctx context.Context, path string, body []byte, into any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, d.url()+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+d.key)
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode/100 != 2 {
		return fmt.Errorf("POST %s answered %s: %s", path, resp.Status, answer)
	}
	return json.Unmarshal(answer, into)
}

// greet says how to go on.
func (d *devStack) greet() {
	fmt.Printf(`API        %[1]s/v1          (reference: %[1]s/docs)
Monitor    %[1]s/monitor     (any user, the key as password)
API key    %[2]s
           %[5]s   (the same key, as E2B's clients take it)
Log        %[3]s/log

Try:
  curl -s '%[1]s/v1/run?wait=60s' -H 'Authorization: Bearer %[2]s' \
    -H 'Content-Type: application/json' -d '{"command": "echo hello; uname -a"}'

E2B's clients work with:
  export E2B_API_URL=%[1]s E2B_SANDBOX_URL=http://%[4]s E2B_API_KEY=%[5]s

Ctrl-C stops everything and removes the sandboxes.
`, d.url(), d.key, d.dir, d.doors.Edge.Addr(), models.E2BSpelling(d.key))
}
