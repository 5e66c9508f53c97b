package jobs_test

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"sandyard/dev/faultproxy"
	"sandyard/dev/jobsrig"
	"sandyard/jobs"
	"sandyard/jobs/kind"
	"sandyard/jobs/queue"
	"sandyard/models"
)

// slowly is a rate whose tokens do not come back while a test runs.
const slowly = 0.001

func (r *rig) rate(burst float64) {
	r.T.Helper()
	v := slowly
	r.Must(r.Store.ChangeTenant(r.T.Context(), jobsrig.Tenant, models.Ceilings{"job_rate": &v, "job_burst": &burst}))
}

// process is another API process: it knows the limits of the database as they are now.
func (r *rig) process(rdb redis.UniversalClient) (*jobs.Client, *queue.Queue) {
	r.T.Helper()
	store, err := models.Open(r.T.Context(), r.DSN, 8, models.Limits{Window: 64})
	r.Must(err)
	q := queue.NewQueue(rdb, r.Log)
	r.T.Cleanup(func() {
		q.Close()
		r.Must(store.Close())
	})
	return jobs.NewClient(store, q, r.Client.Catalog(), r.Log), q
}

// patient is process with a queue that waits for a slow Redis: only without an answer is a rate not checked.
func (r *rig) patient() (*jobs.Client, *queue.Queue) {
	r.T.Helper()
	client, q := r.process(r.RDB)
	q.Wait(time.Minute)
	return client, q
}

// refusedRate fails unless err is the limit of the rate, with a time to come again.
func refusedRate(t *testing.T, err error, limit string, burst float64) {
	t.Helper()
	met := (*models.LimitError)(nil)
	if !errors.As(err, &met) || met.Limit != limit || met.Max != burst || met.PerSecond != slowly || met.RetryAfter <= 0 || met.RetryAfter.Seconds() > 1/slowly {
		t.Errorf("%+v, %v, want the limit %s", met, err, limit)
	}
}

// TestJobRateIsOneForAllProcesses submits at once from two processes.
func TestJobRateIsOneForAllProcesses(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	box, _ := r.Create(jobs.CreateSandbox{})
	r.rate(7)
	one, _ := r.patient()
	two, _ := r.patient()
	var mu sync.Mutex
	var all sync.WaitGroup
	accepted := 0
	for i := range 60 {
		client := []*jobs.Client{one, two}[i%2]
		all.Go(func() {
			_, err := client.Submit(context.Background(), box, &kind.Exec{Command: "x"}, jobsrig.Options())
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				accepted++
			} else {
				refusedRate(t, err, "job_rate", 7)
			}
		})
	}
	all.Wait()
	if accepted != 7 {
		t.Errorf("%d of 60 jobs were accepted, 7 may come at once", accepted)
	}
	if _, err := one.Delete(t.Context(), box, false, jobsrig.Options()); err != nil {
		t.Errorf("a delete makes room: %v", err)
	}
}

// TestJobRateChargesWhatIsAccepted: repeats and refusals cost nothing, and a repeat is answered also where nothing is left.
func TestJobRateChargesWhatIsAccepted(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	box, _ := r.Create(jobs.CreateSandbox{})
	r.rate(3)
	client, _ := r.patient()
	submit := func(sandbox, key string) (models.Submitted, error) {
		o := jobsrig.Options()
		o.IdempotencyKey, o.Request = key, []byte("request")
		return client.Submit(t.Context(), sandbox, &kind.Exec{Command: "x"}, o)
	}
	var first string
	for i := range 5 {
		out, err := submit(box, "key")
		r.Must(err)
		if first = out.Jobs[0].ID; out.Replayed != (i > 0) {
			t.Errorf("call %d: replayed %v", i, out.Replayed)
		}
		if _, err := submit("sb00000000000000000000000000", ""); !errors.Is(err, models.ErrNotFound) {
			t.Errorf("a sandbox that is not there: %v", err)
		}
	}
	for i := range 2 {
		_, err := submit(box, strconv.Itoa(i))
		r.Must(err)
	}
	_, err := submit(box, "another")
	refusedRate(t, err, "job_rate", 3)
	if out, err := submit(box, "key"); err != nil || !out.Replayed || out.Jobs[0].ID != first {
		t.Errorf("a repeat where nothing is left: %+v, %v", out, err)
	}
	if _, err := client.Create(t.Context(), jobs.CreateSandbox{}, jobsrig.Options()); err == nil {
		t.Error("a sandbox beyond the rate was accepted")
	}
}

// TestJobRateOfUsers: neither bucket loses a token where the other has none.
func TestJobRateOfUsers(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	box, _ := r.Create(jobs.CreateSandbox{})
	u, err := r.Store.CreateUser(t.Context(), jobsrig.Tenant, "user", "", models.RoleMember)
	r.Must(err)
	rate, burst := slowly, 2.0
	_, err = r.Store.ChangeUser(t.Context(), jobsrig.Tenant, u.ID, models.UserChange{Limits: models.Ceilings{"job_rate": &rate, "job_burst": &burst}})
	r.Must(err)
	r.rate(5)
	client, queue := r.patient()
	submit := func(user string) error {
		o := jobsrig.Options()
		o.User = user
		_, err := client.Submit(t.Context(), box, &kind.Exec{Command: "x"}, o)
		return err
	}
	for range 2 {
		r.Must(submit(u.ID))
	}
	for range 4 {
		refusedRate(t, submit(u.ID), "user_job_rate", 2)
	}
	var buckets []models.Bucket
	r.Eventually("a process that has counted before knows both", func() bool {
		buckets, err = r.Store.Buckets(t.Context(), jobsrig.Tenant, u.ID)
		return err == nil && len(buckets) == 2
	})
	if n, err := queue.Lacking(t.Context(), buckets); err != nil || len(n) != 2 || n[0] != 2 || n[1] != 2 {
		t.Errorf("tokens taken: %v, %v", n, err)
	}
	for range 3 {
		r.Must(submit(""))
	}
	refusedRate(t, submit(""), "job_rate", 5)
	refusedRate(t, submit(u.ID), "job_rate", 5)
}

// TestJobRateIsOpenWithoutRedis: nobody is refused, and a counter says how often nobody looked.
func TestJobRateIsOpenWithoutRedis(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	box, _ := r.Create(jobs.CreateSandbox{})
	r.rate(1)
	proxy, socket := faultproxy.Redis(t, r.Redis.Network, r.Redis.Addr)
	rdb := queue.NewRedis(&redis.Options{Network: "unix", Addr: socket, DB: r.Redis.DB})
	t.Cleanup(func() { r.Must(rdb.Close()) })
	submitBy := func(client *jobs.Client) error {
		_, err := client.Submit(t.Context(), box, &kind.Exec{Command: "x"}, jobsrig.Options())
		return err
	}
	uncheckedOf := func(q *queue.Queue) func() float64 {
		reg := prometheus.NewRegistry()
		reg.MustRegister(q.Metrics())
		return func() float64 {
			all, err := reg.Gather()
			r.Must(err)
			return all[0].GetMetric()[0].GetCounter().GetValue()
		}
	}
	first, firstQueue := r.patient()
	r.Must(submitBy(first))
	refusedRate(t, submitBy(first), "job_rate", 1)
	if n := uncheckedOf(firstQueue)(); n != 0 {
		t.Errorf("%v were not checked while Redis was there", n)
	}
	client, clientQueue := r.process(rdb)
	submit, unchecked := func() error { return submitBy(client) }, uncheckedOf(clientQueue)
	for _, away := range []func(){proxy.Away, func() { proxy.Back(); proxy.On(func(faultproxy.Call) faultproxy.Fault { return faultproxy.Hang }) }} {
		before := unchecked()
		away()
		for range 3 {
			r.Must(submit())
		}
		if n := unchecked(); n != before+3 {
			t.Errorf("%v of 3 were not checked", n-before)
		}
	}
	proxy.On(nil)
	proxy.Back()
	r.Eventually("Redis answers and the rate holds", func() bool { return errors.As(submit(), new(*models.LimitError)) })
}

// TestTokensComeBack pins that a bucket fills with time and holds no more than its burst, by the clock of Redis.
func TestTokensComeBack(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	perSecond, most := 1000.0, 4
	buckets := []models.Bucket{{Rate: models.Rate{JobRate: &perSecond, JobBurst: &most}, Tenant: jobsrig.Tenant}}
	box, _ := r.Create(jobs.CreateSandbox{})
	burst := float64(most)
	r.Must(r.Store.ChangeTenant(t.Context(), jobsrig.Tenant, models.Ceilings{"job_rate": &perSecond, "job_burst": &burst}))
	client, queue := r.patient()
	for range 20 { // each waits for the one before it: a token has come back by then, or comes
		r.Eventually("a token", func() bool {
			_, err := client.Submit(t.Context(), box, &kind.Exec{Command: "x"}, jobsrig.Options())
			return err == nil
		})
	}
	r.Eventually("the bucket is full again", func() bool {
		n, err := queue.Lacking(t.Context(), buckets)
		return err == nil && n[0] == 0
	})
	r.Eventually("nothing is kept of a full bucket", func() bool {
		n, err := r.RDB.Exists(t.Context(), "sandyard:rate:{"+jobsrig.Tenant+"}").Result()
		return err == nil && n == 0
	})
	if (models.Rate{JobRate: &perSecond}).Burst() != 1000 || (models.Rate{JobRate: new(float64)}).Burst() != 1 {
		t.Error("the burst of one second")
	}
}
