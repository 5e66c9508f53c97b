package jobs_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/hibiken/asynq"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"sandyard/dev/jobsrig"
	"sandyard/dev/testenv"
	"sandyard/jobs"
	"sandyard/jobs/kind"
	"sandyard/jobs/webhook"
	"sandyard/models"
	"sandyard/netguard"
)

// receiver answers callbacks from a list of statuses, then with 204, and keeps what came.
type receiver struct {
	*httptest.Server
	mu       sync.Mutex
	statuses []int
	got      []call
}

type call struct {
	header http.Header
	body   []byte
}

func newReceiver(t *testing.T, statuses ...int) *receiver {
	r := &receiver{statuses: statuses}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, err := io.ReadAll(req.Body)
		if err != nil {
			t.Error(err)
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.got = append(r.got, call{req.Header, body})
		if n := len(r.got); n <= len(r.statuses) {
			w.Header().Set("Location", r.URL)
			w.WriteHeader(r.statuses[n-1])
			return
		}
		w.WriteHeader(http.StatusNoContent)
	}))
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) calls() []call {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]call(nil), r.got...)
}

func TestCallbackIsRetriedUnderOneIDAndVerifies(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.Worker(4)
	r.Scheduler()
	to := newReceiver(t, http.StatusInternalServerError, http.StatusFound) // a redirect is a failure, too
	o := jobsrig.Options()
	o.CallbackURL = to.URL
	box, _ := r.Create(jobs.CreateSandbox{})
	job := r.Submit(box, &kind.Exec{Command: "fake:exit 7"}, o)
	r.Eventually("three calls", func() bool { return len(to.calls()) == 3 })
	r.Eventually("delivered", func() bool { return r.delivery(job).State == "delivered" })

	owner, err := r.Store.Tenant(t.Context(), jobsrig.Tenant)
	r.Must(err)
	verifier, err := standardwebhooks.NewWebhook(owner.WebhookSecret)
	r.Must(err)
	calls := to.calls()
	for i, c := range calls {
		if id := c.header.Get("webhook-id"); id != calls[0].header.Get("webhook-id") {
			t.Errorf("call %d has the id %s, the first %s", i+1, id, calls[0].header.Get("webhook-id"))
		}
		r.Must(verifier.Verify(c.body, c.header))
	}
	var e webhook.Event
	r.Must(json.Unmarshal(calls[2].body, &e))
	if e.Type != "job.succeeded" || e.Data.JobID != job || e.Data.ExitCode == nil || *e.Data.ExitCode != 7 {
		t.Errorf("event: %s", calls[2].body)
	}
	if d := r.delivery(job); d.Attempt != 3 {
		t.Errorf("delivered at attempt %d", d.Attempt)
	}
}

func TestGoneReceiverIsNotAskedAgain(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.Worker(4)
	to := newReceiver(t, http.StatusGone)
	o := jobsrig.Options()
	o.CallbackURL = to.URL
	out, err := r.Client.Create(t.Context(), jobs.CreateSandbox{}, o)
	r.Must(err)
	r.Eventually("given up", func() bool { return r.delivery(out.Jobs[0].ID).State == "failed" })
}

// TestAReceiverThatHangsKeepsNobodyElseWaiting: neither other tenants nor the tenant's other hosts.
func TestAReceiverThatHangsKeepsNobodyElseWaiting(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.SQL("INSERT INTO tenants (id, name, webhook_secret) VALUES ('slow', '', 'whsec_eA==')")
	quick := newReceiver(t)
	var hanging, most atomic.Int64
	shown := make(chan struct{})
	slow := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		now := hanging.Add(1)
		defer hanging.Add(-1)
		for before := most.Load(); now > before && !most.CompareAndSwap(before, now); before = most.Load() {
			continue
		}
		_, _ = io.Copy(io.Discard, req.Body) // else nobody notices that the sender is gone
		select {
		case <-req.Context().Done():
		case <-shown:
		}
	}))
	t.Cleanup(slow.Close)
	defer close(shown)

	o := jobsrig.Options()
	o.TenantID = "slow"
	out, err := r.Client.Create(t.Context(), jobs.CreateSandbox{}, o)
	r.Must(err)
	job := out.Jobs[0].ID
	send := func(id, to string, n int) { // each has been due for longer than what comes after it
		r.SQL(`INSERT INTO deliveries (id, tenant_id, job_id, event, url, endpoint, state, next_attempt_at) SELECT $1::text || i, 'slow', $2, $1::text || i, $3, delivery_endpoint($3),
			'pending', now() - interval '1 h' FROM generate_series(1, $4::int) i`, id, job, to, n)
	}
	send("slow", slow.URL, 600)
	r.Worker(4)
	r.Scheduler()
	r.Eventually("the receiver hangs", func() bool { return hanging.Load() > 0 })
	send("quick", quick.URL, 1)
	other := jobsrig.Options()
	other.CallbackURL = quick.URL
	_, err = r.Client.Create(t.Context(), jobs.CreateSandbox{}, other)
	r.Must(err)
	r.Eventually("both callbacks come", func() bool { return len(quick.calls()) == 2 })
	if n := most.Load(); n > models.EndpointShare {
		t.Errorf("%d deliveries were made at a time to a host that hangs", n)
	}
}

// cancelled submits a job with a callback, which nobody runs, and cancels it.
func (r *rig) cancelled(to *receiver) (job string) {
	r.T.Helper()
	o := jobsrig.Options()
	o.CallbackURL = to.URL
	box, _ := r.Create(jobs.CreateSandbox{})
	job = r.Submit(box, &kind.Exec{Command: "fake:exit 0"}, o)
	_, err := r.Client.Cancel(r.T.Context(), jobsrig.Tenant, job, "test")
	r.Must(err)
	return job
}

func TestCallbackOfACancelledJob(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.Scheduler()
	job := r.cancelled(newReceiver(t))
	r.Worker(2)
	r.Eventually("delivered", func() bool { return r.delivery(job).State == "delivered" })
	if d := r.delivery(job); d.Event != "job."+string(models.Cancelled) {
		t.Errorf("event %s", d.Event)
	}
}

// TestACallbackThatNobodyTookUpIsSentAgain although Redis has its task still: that was handed to a worker that has not heard of
// it, or was given up after errors.
func TestACallbackThatNobodyTookUpIsSentAgain(t *testing.T) {
	testenv.Long(t, "it takes many seconds")
	t.Parallel()
	for name, spend := range map[string]func(r *rig, task string){
		"handed out": func(r *rig, task string) { r.handOut("webhooks", task) },
		"given up": func(r *rig, task string) {
			r.Must(asynq.NewInspectorFromRedisClient(r.RDB).ArchiveTask("webhooks", task))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.Scheduler()
			to := newReceiver(t)
			job := r.cancelled(to)
			r.Eventually("its task is in Redis", func() bool {
				d := r.delivery(job)
				return d.ID != "" && r.RDB.HGet(t.Context(), "asynq:{webhooks}:t:"+d.ID+":1", "state").Val() == "pending"
			})
			spend(r, r.delivery(job).ID+":1")
			r.SQL("UPDATE deliveries SET dispatched_at = now() - interval '6 s'")
			r.Worker(1)
			r.Eventually("it is delivered", func() bool { return r.delivery(job).State == "delivered" })
			if n := len(to.calls()); n != 1 {
				t.Errorf("it was delivered %d times", n)
			}
		})
	}
}

func TestCallbackNeverReachesSpecialAddresses(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.Hooks = webhook.New(r.Store, r.Queue, netguard.Rules{}, r.Log) // nothing is allowed
	r.Worker(4)
	to := newReceiver(t)
	for _, url := range []string{to.URL, fmt.Sprintf("http://localhost:%s/", port(to.URL)), "http://[::ffff:127.0.0.1]:1/", "http://127.0.0.1.:1/"} {
		o := jobsrig.Options()
		o.CallbackURL = url
		out, err := r.Client.Create(t.Context(), jobs.CreateSandbox{}, o)
		r.Must(err)
		r.Eventually("refused", func() bool {
			d := r.delivery(out.Jobs[0].ID)
			return d.LastError != nil && *d.LastError != ""
		})
		if told := *r.delivery(out.Jobs[0].ID).LastError; strings.Contains(told, "127.0.0.1") || strings.Contains(told, "::1") {
			t.Errorf("%s: the tenant reads %q", url, told)
		}
	}
	if n := len(to.calls()); n != 0 {
		t.Fatalf("the receiver on loopback was called %d times", n)
	}
}

func port(url string) string {
	for i := len(url) - 1; ; i-- {
		if url[i] == ':' {
			return url[i+1:]
		}
	}
}

// delivery returns a job's callback, or an empty one while there is none.
func (r *rig) delivery(job string) models.Delivery {
	r.T.Helper()
	list, err := r.Store.Deliveries(r.T.Context(), jobsrig.Tenant, job)
	r.Must(err)
	if len(list) == 0 {
		return models.Delivery{}
	}
	return list[0]
}
