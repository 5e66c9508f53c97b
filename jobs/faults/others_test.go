package faults_test

import (
	"errors"
	"math"
	"slices"
	"time"

	"sandyard/dev/jobsrig"
	"sandyard/jobs"
	"sandyard/jobs/kind"
	"sandyard/models"
	"sandyard/providers/codecontext"
	"sandyard/providers/dockerfile"
)

// otherScripts are runs of what is more, or something else, than a job in a sandbox.
func otherScripts() []script {
	code := func(*run) kind.Args {
		return &kind.Code{Language: codecontext.Python, Code: "fake:append log x; fake:stdout out"}
	}
	return []script{
		{name: "build", act: (*run).build, check: (*run).isBuilt},
		{name: "port", ready: ready, act: args(openPort), check: func(u *run) { u.hasGrants(1) }},
		{name: "port revoked", ready: readyWithPort, act: (*run).revoke, check: func(u *run) { u.hasGrants(0) }},
		{name: "code", ready: ready, act: args(code), check: (*run).ranOnce},
		{name: "code again", ready: readyWithContext, act: args(code), check: (*run).ranOnce},
		{name: "code_create", ready: ready, act: args(func(*run) kind.Args { return &kind.CreateContext{Language: codecontext.Python} }), check: (*run).startedOnce},
		{name: "code_delete", ready: readyWithContext, act: args(func(*run) kind.Args { return &kind.DeleteContext{Context: codecontext.Python} })},
		{name: "schedule", ready: readyWithSchedule, act: (*run).fallDue, check: (*run).firedOnce, loops: []string{
			"(*Store).FireSchedules", "(*Scheduler).submitRuns", "(*Store).SettleRuns",
		}},
		{name: "ticket", ready: ready, act: (*run).enter, check: (*run).enteredOnce},
		{name: "usage", ready: readyToCount, act: (*run).use, check: (*run).isCounted, loops: []string{
			"(*Store).FoldFacts", "(*Store).FoldSpans",
		}},
	}
}

// build makes an image, and the template that has it.
func (u *run) build() {
	u.insist(func(o jobs.Options) (models.Submitted, error) {
		return u.r.acts.Build(u.r.T.Context(), jobs.NewBuild{Template: u.template(), Recipe: dockerfile.Recipe{Script: "make", From: "fake"}}, o)
	})
}

func (u *run) template() string { return "made-" + u.key[len("build-"):] }

func (u *run) isBuilt() {
	r := u.r
	t, err := r.Store.Template(r.T.Context(), jobsrig.Tenant, u.template())
	r.Must(err)
	r.images.Mu.Lock()
	defer r.images.Mu.Unlock()
	if t.Version != 1 || !slices.Contains(r.images.Held, t.Image) {
		r.T.Errorf("the template is at version %d with image %s; the engine holds %v", t.Version, t.Image, r.images.Held)
	}
	if n := r.count("SELECT count(*) FROM builds WHERE template = $1 AND finished_at IS NOT NULL", u.template()); n != 1 {
		r.T.Errorf("%d builds were finished", n)
	}
}

func openPort(*run) kind.Args { return &kind.Port{Port: 8000} }

func readyWithPort(u *run) {
	ready(u)
	out, err := jobs.NewClient(u.r.Store, u.r.Rig.Queue, u.r.acts.Catalog(), u.r.Log).Submit(u.r.T.Context(), u.box, openPort(u), jobsrig.Options())
	u.r.Must(err)
	u.r.Wait(out.Jobs[0].ID)
	u.hasGrants(1)
}

func (u *run) hasGrants(want int) {
	grants, err := u.r.Store.PortGrants(u.r.T.Context(), jobsrig.Tenant, u.box)
	u.r.Must(err)
	if all := u.r.count("SELECT count(*) FROM port_grants WHERE sandbox_id = $1", u.box); len(grants) != want || all != 1 {
		u.r.T.Errorf("%d of %d grants hold", len(grants), all)
	}
}

func (u *run) revoke() {
	u.again(func() error {
		_, err := u.r.acting.RevokePort(u.r.T.Context(), jobsrig.Tenant, u.box, 8000, "")
		return err
	})
}

func readyWithContext(u *run) {
	ready(u)
	u.r.Wait(u.r.Cell(u.box, "fake:stdout first"))
}

func (u *run) ranOnce() {
	if log := u.r.Content(u.box, "log"); log != "x" {
		u.r.T.Errorf("the cell ran as %q", log)
	}
}

// startedOnce looks that the context takes cells, and was started for the job that was to.
func (u *run) startedOnce() {
	r := u.r
	var id string
	r.Must(r.conn.QueryRow(r.T.Context(), "SELECT id FROM jobs WHERE sandbox_id = $1 AND kind = 'code_create'", u.box).Scan(&id))
	name := (&kind.CreateContext{}).ContextOf(r.Job(id))
	if n := r.State.Starts("code." + name + ".python." + id); n != 1 {
		r.T.Errorf("context %q was started %d times", name, n)
	}
	cell := r.Wait(r.Cell(u.box, "fake:stdout here", func(c *kind.Code, _ *jobs.Options) { c.Context = name }))
	if res := r.CodeResult(cell); string(cell.Stdout) != "here" || res.ExecutionCount != 1 {
		r.T.Errorf("a cell in it: %s %q", cell.Result, cell.Stdout)
	}
}

func readyWithSchedule(u *run) {
	ready(u)
	u.schedule = u.r.Schedule(jobsrig.ExecIn(u.box, "fake:append log x; fake:exit 3"))
}

// fallDue makes the schedule due and waits until its run has ended. It has no second one before an hour is over.
func (u *run) fallDue() {
	u.r.Due(time.Second, u.schedule)
	u.r.Eventually("the run has ended", func() bool {
		runs := u.r.Runs(u.schedule)
		return len(runs) > 0 && runs[0].EndedAt != nil
	})
}

func (u *run) firedOnce() {
	runs := u.r.Runs(u.schedule)
	if len(runs) != 1 || runs[0].State != "succeeded" {
		u.r.T.Errorf("the runs are %v", jobsrig.StatesOf(runs))
	}
	if n := u.r.count("SELECT count(*) FROM jobs WHERE sandbox_id = $1 AND kind = 'exec'", u.box); n != 1 {
		u.r.T.Errorf("%d jobs were submitted", n)
	}
	u.ranOnce()
	_, err := u.r.Store.DeleteSchedule(u.r.T.Context(), jobsrig.Tenant, u.schedule, "test")
	u.r.Must(err)
}

// enter asks for tickets until one lets in. One that was used up without an answer is lost.
func (u *run) enter() {
	for u.tickets == 0 {
		ticket := u.ticket()
		use := func(s *models.Store) error {
			_, err := s.UseTicket(u.r.T.Context(), ticket, models.TicketUse{Sandbox: u.box, Own: true})
			return err
		}
		u.again(func() error {
			err := use(u.r.acting)
			if err == nil {
				u.tickets++
			}
			if errors.Is(err, models.ErrTicketUsed) {
				return nil
			}
			return err
		})
		if err := use(u.r.Store); !errors.Is(err, models.ErrTicketUsed) {
			u.r.T.Errorf("a used ticket answers %v", err)
		}
	}
}

func (u *run) ticket() (plain string) {
	var key string
	u.r.Must(u.r.conn.QueryRow(u.r.T.Context(), "SELECT id FROM api_keys LIMIT 1").Scan(&key))
	t := models.TerminalTicket{TenantID: jobsrig.Tenant, KeyID: key, SandboxID: u.box, Terminal: "main"}
	u.again(func() (err error) {
		plain, _, err = u.r.acting.IssueTicket(u.r.T.Context(), t, time.Minute)
		return err
	})
	return plain
}

func (u *run) enteredOnce() {
	if used := u.r.count("SELECT count(*) FROM terminal_tickets WHERE sandbox_id = $1 AND used_at IS NOT NULL", u.box); u.tickets > used || used > 2 {
		u.r.T.Errorf("%d tickets were used up to be let in %d times", used, u.tickets)
	}
}

// usage is what all sandboxes have used up to now.
func (r *faultRig) usage() (all models.Usage) {
	rows, err := r.Store.Usage(r.T.Context(), models.UsageQuery{
		Tenant: jobsrig.Tenant, From: time.Now().Add(-24 * time.Hour), To: time.Now().Add(time.Hour), By: []string{"hour"}, Limit: 100,
	})
	r.Must(err)
	for _, row := range rows {
		all.RunningSeconds += row.RunningSeconds
	}
	return all
}

// readyToCount begins while no sandbox lives.
func readyToCount(u *run) {
	u.used = u.r.usage()
	ready(u)
}

// use runs a command, ends the sandbox and waits until the hours have it all.
func (u *run) use() {
	u.submit(&kind.Exec{Command: "fake:append log x"})
	u.r.Wait(u.jobs[0])
	out, err := u.r.Client.Delete(u.r.T.Context(), u.box, true, jobsrig.Options())
	u.r.Must(err)
	u.r.Wait(out.Jobs[0].ID)
	u.r.Eventually("all is folded", func() bool { return u.r.Unfolded() == 0 })
}

func (u *run) isCounted() {
	if got, want := u.r.usage().RunningSeconds-u.used.RunningSeconds, u.r.Lived(u.box, "running"); want == 0 || math.Abs(got-want) > 1e-5 {
		u.r.T.Errorf("%g s are counted, and it ran %g s", got, want)
	}
	counted := u.r.count("SELECT coalesce(sum(jobs), 0)::bigint FROM usage_parts WHERE tenant_id = $1", jobsrig.Tenant)
	if ended := u.r.count("SELECT count(*) FROM jobs WHERE finished_at IS NOT NULL"); counted != ended {
		u.r.T.Errorf("%d jobs are counted, and %d have ended", counted, ended)
	}
}
