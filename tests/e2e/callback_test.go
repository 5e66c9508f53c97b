package e2e_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"sandyard/dev/testenv"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

// receiver takes callbacks: it answers 500 to the first of them, and keeps all.
type receiver struct {
	url string
	mu  sync.Mutex
	got []callback
}

type callback struct {
	header http.Header
	body   []byte
}

func newReceiver(t *testing.T, failures int) *receiver {
	r := &receiver{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, err := io.ReadAll(req.Body)
		if err != nil {
			t.Error(err)
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.got = append(r.got, callback{req.Header, body})
		if len(r.got) <= failures {
			w.WriteHeader(http.StatusInternalServerError)
		}
	}))
	t.Cleanup(server.Close)
	r.url = server.URL + "/hook"
	return r
}

func (r *receiver) calls() []callback {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]callback(nil), r.got...)
}

func TestCallbackIsRepeatedAndSigned(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	to := newReceiver(t, 2)
	box := r.create(object{}).ID
	j := r.exec(box, "exit 7", object{"callback_url": to.url}).succeeded(t)
	testenv.Eventually(t, "the third call", func() bool { return len(to.calls()) == 3 })

	var secret struct{ Secret string }
	decode(t, r.call("GET", "/v1/webhooks/secret", nil).want(t, 200).raw, &secret)
	verifier, err := standardwebhooks.NewWebhook(secret.Secret)
	if err != nil {
		t.Fatal(err)
	}
	calls := to.calls()
	for i, c := range calls {
		if id := c.header.Get("webhook-id"); id == "" || id != calls[0].header.Get("webhook-id") {
			t.Errorf("call %d has the id %q, the first %q", i+1, id, calls[0].header.Get("webhook-id"))
		}
		if err := verifier.Verify(c.body, c.header); err != nil {
			t.Errorf("call %d does not verify: %v", i+1, err)
		}
		if err := verifier.Verify(append(c.body, ' '), c.header); err == nil {
			t.Error("a changed body verifies, too")
		}
	}
	var event struct {
		Type string
		Data struct {
			JobID    string `json:"job_id"`
			State    string
			ExitCode *int `json:"exit_code"`
		}
	}
	if err := json.Unmarshal(calls[2].body, &event); err != nil {
		t.Fatal(err)
	}
	if event.Type != "job.succeeded" || event.Data.JobID != j.ID || event.Data.ExitCode == nil || *event.Data.ExitCode != 7 {
		t.Errorf("the event: %s", calls[2].body)
	}
	var list struct {
		Deliveries []struct {
			ID       string
			State    string
			Attempts int
		}
	}
	testenv.Eventually(t, "the delivery is noted", func() bool {
		decode(t, r.call("GET", "/v1/jobs/"+j.ID+"/deliveries", nil).want(t, 200).raw, &list)
		return len(list.Deliveries) == 1 && list.Deliveries[0].State == "delivered"
	})
	if d := list.Deliveries[0]; d.Attempts != 3 || d.ID != calls[0].header.Get("webhook-id") {
		t.Errorf("the delivery: %+v", d)
	}
	r.clean()
}

// TestCallbackToLoopbackNeedsPermission: an address that may never be called is refused with the job.
func TestCallbackToLoopbackNeedsPermission(t *testing.T) {
	t.Parallel()
	r := newRig(t, "WEBHOOK_ALLOW_CIDRS", "")
	to := newReceiver(t, 0)
	for _, url := range []string{to.url, "http://169.254.169.254/x", "http://localhost/"} {
		refused := r.call("POST", "/v1/sandboxes", object{"callback_url": url}).want(t, 422)
		if text := string(refused.raw); !strings.Contains(text, "body.callback_url") || !strings.Contains(text, "WEBHOOK_ALLOW_CIDRS") {
			t.Errorf("%s: %s", url, text)
		}
	}
	r.clean()
}
