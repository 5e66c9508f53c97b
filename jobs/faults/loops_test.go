package faults_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"sandyard/dev/jobsrig"
	"sandyard/jobs"
	"sandyard/jobs/kind"
	"sandyard/models"
	"sandyard/providers"
	"sandyard/providers/fake"
)

// loopScripts are runs of what nobody asks for: the loops of schedulers and workers do it.
func loopScripts() []script {
	return []script{
		{name: "timeout fires", ready: ready, act: (*run).expire, loops: []string{"(*Scheduler).fireTimeouts"}},
		{name: "timeout pauses", ready: readyToPause, act: (*run).pausesInTime, loops: []string{"(*Scheduler).fireTimeouts"}},
		{name: "idle", ready: ready, act: ends("idle_timeout_ms = 1"), loops: []string{"(*Scheduler).reapIdle"}},
		{name: "lifetime", ready: ready, act: ends("max_lifetime_ms = 1"), loops: []string{"(*Scheduler).endLifetimes"}},
		{name: "paused too long", ready: readyPaused, act: ends("paused_timeout_ms = 1"), loops: []string{"(*Scheduler).reapPaused"}},
		{name: "stuck delete", ready: ready, act: ends("desired = 'deleted'"), loops: []string{"(*Scheduler).resumeDeletes"}},
		{name: "recovered", ready: readyWithFile, act: (*run).isRecovered, check: (*run).ranOnce, loops: []string{"(*Scheduler).recoverLeases"}},
		{name: "expired in the queue", ready: readyRunning, act: (*run).waitsTooLong, want: models.Expired, loops: []string{"(*Scheduler).expireQueued"}},
		{name: "Redis emptied", ready: ready, act: (*run).loseRedis, check: (*run).ranOnce, loops: []string{
			"(*Scheduler).checkEpoch", "(*Scheduler).resendMissing", "(*Scheduler).dispatchBacklog",
		}},
		{name: "lost with its engine", ready: readyRunning, act: (*run).loseEngine, want: models.Lost, loops: []string{"(*Scheduler).loseDeserted"}},
		{name: "released", ready: readyToRelease, act: (*run).isReleased, loops: []string{"(*Scheduler).releaseDeserted"}},
		{name: "stranded", ready: readyStranded, act: (*run).endsStranded, want: models.Failed, loops: []string{"(*Scheduler).endStranded"}},
		{name: "adopted", ready: ready, act: (*run).isAdopted, check: (*run).adoptedOnce, loops: []string{"(*Worker).adopt"}},
		{name: "vanished", ready: readyRunning, act: (*run).vanish, want: models.Lost, loops: []string{"(*reconciler).compare"}},
		{name: "orphan", ready: ready, act: (*run).leaveOrphan, loops: []string{"(*reconciler).compare", "(*reconciler).remove"}},
		{name: "paused behind our back", ready: ready, act: (*run).pauseBehind, loops: []string{"(*reconciler).compare"}},
		{name: "recreated", ready: readyToRecreate, act: (*run).isRecreated, loops: []string{"(*Scheduler).recreate", "(*reconciler).compare", "(*reconciler).remove"}},
		{name: "callback", ready: ready, act: (*run).callBack, loops: []string{"(*Webhooks).dispatch"}},
		{name: "metered", ready: ready, act: (*run).isMetered, loops: []string{"(*Worker).measureAll"}},
		{name: "forgotten", ready: readyToForget, act: (*run).isForgotten, loops: []string{"(*Scheduler).retain", "(*Scheduler).keepHouse"}},
	}
}

// TestEveryKindHasAScript, so that faults are dealt to it.
func TestEveryKindHasAScript(t *testing.T) {
	t.Parallel()
	names := map[string]bool{}
	for _, s := range scripts() {
		if names[s.name] {
			t.Errorf("two scripts are called %s", s.name)
		}
		names[s.name] = true
	}
	for _, kind := range append(kind.Submittable(), models.KindCreate, models.KindBuild) {
		if !names[kind] {
			t.Errorf("no script is called %s", kind)
		}
	}
}

// sql changes rows past all faults.
func (u *run) sql(statement string, args ...any) {
	u.r.T.Helper()
	_, err := u.r.conn.Exec(u.r.T.Context(), statement, args...)
	u.r.Must(err)
}

// ends makes a change to the sandbox's row that ends the sandbox.
func ends(change string) func(*run) {
	return func(u *run) {
		u.sql("UPDATE sandboxes SET "+change+" WHERE id = $1", u.box)
		u.hasEnded()
	}
}

func (u *run) hasEnded() {
	u.r.Eventually("the sandbox has ended", func() bool { return u.r.Sandbox(u.box).EndedAt != nil })
}

func readyToPause(u *run) { u.readyAs(jobs.CreateSandbox{OnTimeout: "pause"}) }

func (u *run) pausesInTime() {
	u.sql("UPDATE sandboxes SET expires_at = now() WHERE id = $1", u.box)
	u.r.Eventually("the sandbox is paused", func() bool { return u.r.Sandbox(u.box).State == models.SandboxPaused })
}

// moved puts the sandbox on a node that died an hour ago.
func (u *run) moved(engine string) {
	u.sql(`INSERT INTO nodes (id, provider, engine, slots, beat_at, lease_until, retired_at) VALUES ('ghost', 'fake', $1, 1, now() - interval '1 hour', now() - interval '1 hour', now())
		ON CONFLICT (id) DO UPDATE SET engine = excluded.engine`, engine)
	u.sql("UPDATE sandboxes SET node_id = 'ghost' WHERE id = $1", u.box)
}

// copied writes another job like an earlier one, but for some columns.
func (u *run) copied(job string, but map[string]any) string {
	but["id"] = models.NewID("job_")
	text, err := json.Marshal(but)
	u.r.Must(err)
	u.sql("INSERT INTO jobs SELECT (jsonb_populate_record(j, $2::jsonb)).* FROM jobs j WHERE id = $1", job, string(text))
	return but["id"].(string)
}

// isRecovered finds a job that a dead worker was about to begin.
func (u *run) isRecovered() {
	var first string
	u.r.Must(u.r.conn.QueryRow(u.r.T.Context(), "SELECT id FROM jobs WHERE sandbox_id = $1 AND kind = 'write'", u.box).Scan(&first))
	u.jobs = []string{u.copied(first, map[string]any{
		"kind": "exec", "args": map[string]any{"command": "fake:append log x"}, "state": "running", "attempt": 1, "node_id": "ghost",
		"lease_until": "2020-01-01", "started_at": "2020-01-01", "finished_at": nil, "result": nil, "seq": 1000, "timeout_ms": 60_000,
	})}
}

func (u *run) waitsTooLong() {
	u.insist(func(o jobs.Options) (models.Submitted, error) {
		o.QueueDeadline = 100 * time.Millisecond
		return u.r.acts.Submit(u.r.T.Context(), u.box, &kind.Exec{Command: "true"}, o)
	})
}

func (u *run) loseRedis() {
	u.submit(&kind.Exec{Command: "fake:append log x"})
	u.r.Must(u.r.RDB.FlushDB(u.r.T.Context()).Err())
}

func (u *run) loseEngine() {
	u.jobs = []string{u.goes}
	u.moved("gone")
	u.hasEnded()
}

// readyToRelease has a sandbox of which only the rows of its create are there.
func readyToRelease(u *run) {
	ready(u)
	first := u.box
	var created string
	u.r.Must(u.r.conn.QueryRow(u.r.T.Context(), "SELECT id FROM jobs WHERE sandbox_id = $1", first).Scan(&created))
	u.box = models.NewID("sb")
	u.sql(`INSERT INTO sandboxes SELECT (jsonb_populate_record(s, jsonb_build_object('id', $2::text, 'state', 'creating', 'started_at', null))).*
		FROM sandboxes s WHERE id = $1`, first, u.box)
	u.goes = u.copied(created, map[string]any{
		"sandbox_id": u.box, "state": "queued", "attempt": 0, "node_id": nil, "lease_until": nil, "started_at": nil, "finished_at": nil, "result": nil,
		"queue": "node-ghost", "dispatched_at": "2100-01-01", // nobody misses it
	})
	out, err := u.r.Client.Delete(u.r.T.Context(), first, true, jobsrig.Options())
	u.r.Must(err)
	u.r.Wait(out.Jobs[0].ID)
}

func (u *run) isReleased() {
	u.moved("gone")
	u.jobs = []string{u.goes}
}

// readyStranded has a sandbox that ended a while ago.
func readyStranded(u *run) {
	readyWithFile(u)
	out, err := u.r.Client.Delete(u.r.T.Context(), u.box, true, jobsrig.Options())
	u.r.Must(err)
	u.r.Wait(out.Jobs[0].ID)
	u.sql("UPDATE sandboxes SET ended_at = now() - interval '1 minute' WHERE id = $1", u.box)
}

func (u *run) endsStranded() {
	var first string
	u.r.Must(u.r.conn.QueryRow(u.r.T.Context(), "SELECT id FROM jobs WHERE sandbox_id = $1 AND kind = 'write'", u.box).Scan(&first))
	u.moved("gone")
	u.jobs = []string{u.copied(first, map[string]any{
		"state": "queued", "attempt": 1, "node_id": nil, "started_at": nil, "finished_at": nil, "result": nil, "ready_at": nil, "dispatched_at": nil, "seq": 1000,
		"queued_at": "2020-01-01",
	})}
}

func (u *run) isAdopted() {
	u.moved("engine")
	u.submit(&kind.Exec{Command: "fake:append log x"})
}

// adoptedOnce also removes the dead node's queue, which housekeeping does once a minute.
func (u *run) adoptedOnce() {
	u.ranOnce()
	keys, err := u.r.RDB.Keys(u.r.T.Context(), "asynq:{node-ghost*").Result()
	u.r.Must(err)
	u.r.Must(u.r.RDB.Del(u.r.T.Context(), append(keys, "none")...).Err())
}

func (u *run) vanish() {
	u.jobs = []string{u.goes}
	u.r.State.Vanish(u.box)
	u.hasEnded()
}

// behind does something to the provider's sandboxes that no job has asked for.
func (u *run) behind(do func(*fake.Provider) error) {
	p := fake.New(fake.Options{State: u.r.State})
	u.r.Eventually("the provider lets it be done", func() bool { return do(p) == nil })
}

func (u *run) leaveOrphan() {
	id := models.NewID("sb")
	u.behind(func(p *fake.Provider) error {
		_, err := p.Create(u.r.T.Context(), providers.Spec{ID: id, Image: "fake"})
		return err
	})
	u.r.Eventually("the orphan is gone", func() bool {
		return !slices.ContainsFunc(u.r.list(), func(i providers.Instance) bool { return i.ID == id })
	})
}

func (u *run) pauseBehind() {
	u.behind(func(p *fake.Provider) error { return p.Pause(u.r.T.Context(), u.box) })
	u.r.Eventually("the row says that it is paused", func() bool { return u.r.Sandbox(u.box).State == models.SandboxPaused })
}

func readyToRecreate(u *run) { u.readyAs(jobs.CreateSandbox{OnLost: models.OnLostRecreate}) }

func (u *run) isRecreated() {
	u.r.State.Vanish(u.box)
	u.r.Eventually("another has taken its place", func() bool { return u.r.Sandbox(u.box).ReplacedBy != nil })
	u.box = *u.r.Sandbox(u.box).ReplacedBy
	u.r.Eventually("that runs", func() bool { return u.r.Sandbox(u.box).State == models.SandboxRunning })
}

// callBack has a receiver called at the end of a job. It is told again what it may not have been told.
func (u *run) callBack() {
	var mu sync.Mutex
	ids := map[string]int{}
	to := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		ids[req.Header.Get("webhook-id")]++
	}))
	defer to.Close()
	u.insist(func(o jobs.Options) (models.Submitted, error) {
		o.CallbackURL = to.URL
		return u.r.acts.Submit(u.r.T.Context(), u.box, &kind.Exec{Command: "fake:append log x"}, o)
	})
	u.r.Wait(u.jobs[0])
	// An attempt whose worker has died is made again after a minute.
	u.r.Eventually("it is delivered", func() bool {
		u.sql("UPDATE deliveries SET next_attempt_at = now() - interval '1 s' WHERE state = 'pending' AND next_attempt_at > now() + interval '10 s'")
		return u.r.count("SELECT count(*) FROM deliveries WHERE job_id = $1 AND state = 'delivered'", u.jobs[0]) == 1
	})
	mu.Lock()
	defer mu.Unlock()
	if len(ids) != 1 {
		u.r.T.Errorf("the callbacks had the ids %v", ids)
	}
}

func (u *run) isMetered() {
	u.r.State.SetUsed(u.box, providers.Used{CPU: 1500 * time.Millisecond, Memory: 1 << 20})
	u.r.Eventually("its use is written", func() bool {
		return u.r.count("SELECT coalesce(max(cpu_ms), 0)::int FROM usage_meters WHERE sandbox_id = $1", u.box) == 1500
	})
}

// readyToForget has things that are old enough: a sandbox with its job and events, a node with its queue, a key.
func readyToForget(u *run) {
	readyWithFile(u)
	u.over = u.box
	out, err := u.r.Client.Delete(u.r.T.Context(), u.box, true, jobsrig.Options())
	u.r.Must(err)
	u.r.Wait(out.Jobs[0].ID)
	ready(u)
	_, err = u.r.Store.FoldFacts(u.r.T.Context(), 1000)
	u.r.Must(err)
	u.r.Eventually("its use is folded", func() bool { return u.r.count("SELECT count(*) FROM usage_facts WHERE sandbox_id = $1", u.over) == 0 })
}

// isForgotten makes them old and sees them go. A loop that has failed comes again after a minute, or when another scheduler leads.
func (u *run) isForgotten() {
	u.sql("UPDATE jobs SET finished_at = now() - interval '2 days' WHERE sandbox_id = $1", u.over)
	u.sql("UPDATE sandboxes SET ended_at = now() - interval '2 days' WHERE id = $1", u.over)
	u.sql("SET session_replication_role = replica") // events are never changed, else
	u.sql("UPDATE events SET at = now() - interval '2 days' WHERE sandbox_id <> $1", u.box)
	u.sql("RESET session_replication_role")
	u.sql("INSERT INTO idempotency_keys VALUES ('default', 'old', '', 'job', now() - interval '2 days') ON CONFLICT DO NOTHING")
	u.sql("INSERT INTO usage_samples VALUES ('old', now() - interval '2 days', 1, 1, 1, 1)")
	u.sql(`INSERT INTO nodes (id, provider, engine, slots, lease_until) VALUES ('ghost', 'fake', 'gone', 1, now() - interval '1 hour') ON CONFLICT DO NOTHING`)
	left := func() bool {
		n := u.r.count(`SELECT (SELECT count(*) FROM jobs WHERE sandbox_id = $1) + (SELECT count(*) FROM sandboxes WHERE id = $1)
			+ (SELECT count(*) FROM events WHERE sandbox_id = $1) + (SELECT count(*) FROM idempotency_keys WHERE key = 'old')
			+ (SELECT count(*) FROM usage_samples WHERE sandbox_id = 'old') + (SELECT count(*) FROM nodes WHERE id = 'ghost')`, u.over)
		return n > 0
	}
	for try := 0; left() && try < 10; try++ {
		u.r.lead.Stop()
		u.r.lead = u.r.leading()
		began := time.Now()
		u.r.Eventually("its loops have looked", func() bool { return !left() || time.Since(began) > 3*time.Second })
	}
	if left() {
		u.r.T.Error("not all is forgotten")
	}
}
