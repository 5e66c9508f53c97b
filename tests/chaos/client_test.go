//go:build chaos

package chaos

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"
)

// object is a JSON object.
type object map[string]any

// jobDoc is what a client reads of a job.
type jobDoc struct {
	ID        string
	Kind      string
	State     string
	SandboxID string `json:"sandbox_id"`
	Attempt   int
	Error     *struct{ Code, Message string }
	Result    struct {
		ExitCode int  `json:"exit_code"`
		TimedOut bool `json:"timed_out"`
	}
	Stdout  string
	Content string
}

func (j jobDoc) ended() bool { return j.ID != "" && j.State != "queued" && j.State != "running" }

func (j jobDoc) String() string {
	s := fmt.Sprintf("%s %s is %s at attempt %d", j.Kind, j.ID, j.State, j.Attempt)
	if j.Error != nil {
		s += ": " + j.Error.Code + ": " + j.Error.Message
	}
	return s
}

// accepted is the answer to a submission.
type accepted struct {
	Job     jobDoc
	Sandbox struct{ ID string }
	Code    string // of a problem
	Detail  string
}

// caller speaks to whichever API answers.
type caller struct {
	addresses func() []string
	key       string
	http      *http.Client
	turn      int
}

// answerWait is how long a client waits for an answer; a stopped API gives none.
const answerWait = 5 * time.Second

func newCaller(s *system) *caller {
	// Connections are not kept: the APIs come and go.
	return &caller{addresses: s.addresses, key: s.key, http: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}}
}

// try makes one request to the next of the APIs.
func (c *caller) try(ctx context.Context, wait time.Duration, method, path, idempotency string, body any) (int, []byte, error) {
	all := c.addresses()
	if len(all) == 0 {
		return 0, nil, fmt.Errorf("no API listens")
	}
	c.turn++
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	raw, err := json.Marshal(body)
	if err != nil {
		return 0, nil, err
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://"+all[c.turn%len(all)]+path, bytes.NewReader(raw))
	if err != nil {
		return 0, nil, err
	}
	req.Header.Set("Authorization", "Bearer "+c.key)
	if method == http.MethodPost || method == http.MethodPut {
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Idempotency-Key", idempotency)
	}
	res, err := c.http.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	return res.StatusCode, text, err
}

// unclear says that an answer settles nothing: the request may have been carried out, and is made again.
func unclear(status int, err error) bool {
	return err != nil || status >= 500 || status == http.StatusTooManyRequests
}

// insist makes the request again until an answer settles it. tries counts them.
func (c *caller) insist(ctx context.Context, method, path, idempotency string, body any) (status int, text []byte, tries int, err error) {
	pause := time.NewTicker(100 * time.Millisecond)
	defer pause.Stop()
	for tries = 1; ; tries++ {
		status, text, err = c.try(ctx, answerWait, method, path, idempotency, body)
		if !unclear(status, err) {
			return status, text, tries, nil
		}
		select {
		case <-pause.C:
		case <-ctx.Done():
			return status, text, tries, fmt.Errorf("%s %s has no clear answer after %d tries: status %d, %w", method, path, tries, status, err)
		}
	}
}

// job reads a job, waiting for its end for a while.
func (c *caller) job(ctx context.Context, id, query string) (jobDoc, error) {
	var j jobDoc
	status, text, _, err := c.insist(ctx, http.MethodGet, "/v1/jobs/"+id+query, "", nil)
	if err != nil {
		return j, err
	}
	if status != http.StatusOK {
		return j, fmt.Errorf("GET job %s: status %d: %s", id, status, text)
	}
	return j, json.Unmarshal(text, &j)
}
