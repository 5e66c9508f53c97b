package models

import (
	"encoding/json"
	"maps"
	"slices"
	"time"

	"sandyard/models/pg"
)

// tenantState is what decides whether a tenant's new sandboxes are let in.
type tenantState struct {
	Quota
	Standing

	ID     string
	Time   time.Time
	locked bool
}

// lockTenants locks the tenants of new sandboxes with the first trip, so that neither a quota nor a sandbox's key can
// be taken twice, and reads what their admission depends on.
func (b *batch) lockTenants() error {
	var tenants, users, owners, keys, labellers, labels []string
	for _, p := range b.open() {
		if p.New == nil {
			continue
		}
		tenants = append(tenants, p.TenantID)
		if p.New.UserID != nil {
			users = append(users, *p.New.UserID)
		}
		if p.New.Key != nil {
			owners, keys = append(owners, p.TenantID), append(keys, *p.New.Key)
		}
		if p.New.Reuse {
			labellers, labels = append(labellers, p.TenantID), append(labels, string(must(json.Marshal(p.New.Labels))))
		}
	}
	if len(tenants) == 0 {
		return nil
	}
	slices.Sort(tenants)
	tenants = slices.Compact(tenants)
	var locked []Tenant
	lock := pg.Build(b.tx).
		Clauses(b.locking()).
		Select("id").
		Where("id = ANY (?::text[])", idArray(tenants)).
		Order("id").
		Find(&[]Tenant{})
	if err := pg.Enqueue(lock, pg.Into(&locked)); err != nil {
		return err
	}
	err := pg.Enqueue(pg.Build(b.tx).Raw(`SELECT t.id, t.max_sandboxes, t.max_cpus, t.max_memory_mib, now() AS time, s.*
		FROM tenants t, LATERAL (`+standing+`tenant_id = t.id) s WHERE t.id = ANY (?::text[])`, idArray(tenants)), pg.Each(func(t tenantState) {
		t.locked = slices.ContainsFunc(locked, func(l Tenant) bool { return l.ID == t.ID })
		b.tenants[t.ID] = &t
	}))
	if err == nil {
		err = b.readUsers(users)
	}
	if err == nil && len(labels) > 0 {
		err = b.findLabelled(labellers, labels)
	}
	if err != nil || len(keys) == 0 {
		return err
	}
	return b.findNamed(owners, keys)
}

// findLabelled looks for the newest live sandboxes that have all labels of new ones, with the jobs that made them.
func (b *batch) findLabelled(tenants, labels []string) error {
	const labelled = `FROM unnest($1::text[], $2::text[]) AS v (tenant, labels)
		CROSS JOIN LATERAL (SELECT * FROM sandboxes WHERE tenant_id = v.tenant AND ended_at IS NULL AND state <> 'deleting'
			AND labels @> v.labels::jsonb ORDER BY created_at DESC, id DESC LIMIT 1) s`
	return b.findMade(labelled, []any{tenants, labels}, &b.labelled, &b.labelledCreates)
}

// findNamed looks for live sandboxes that have the keys of new ones, with the jobs that made them.
func (b *batch) findNamed(tenants, keys []string) error {
	const named = `FROM unnest($1::text[], $2::text[]) AS v (tenant, key)
		JOIN sandboxes s ON s.tenant_id = v.tenant AND s.key = v.key AND s.ended_at IS NULL`
	return b.findMade(named, []any{tenants, keys}, &b.named, &b.creates)
}

// findMade reads the sandboxes s of a FROM clause with its values, and the jobs that made them.
func (b *batch) findMade(from string, values []any, boxes *[]Sandbox, creates *[]Job) error {
	if err := pg.EnqueueRaw(b.tx, "SELECT s.* "+from, values, pg.Into(boxes)); err != nil {
		return err
	}
	return pg.EnqueueRaw(b.tx, "SELECT j.* "+from+` CROSS JOIN LATERAL (SELECT * FROM jobs WHERE sandbox_id = s.id
		AND kind = 'create' ORDER BY id LIMIT 1) j`, values, pg.Into(creates))
}

// admitSandboxes lets new sandboxes in.
func (b *batch) admitSandboxes() error {
	for _, p := range b.open() {
		if p.New == nil {
			continue
		}
		if err := b.admitSandbox(p); err != nil {
			return err
		}
	}
	return nil
}

func (b *batch) admitSandbox(p *submission) error {
	t := b.tenants[p.TenantID]
	switch {
	case t == nil:
		p.err = ErrNotFound
		return nil
	case b.existing(p):
		return b.takePlace(p, p.out.Sandbox.ID)
	case !t.locked, b.keyTaken(p):
		p.err = errLocked
		return nil
	}
	if p.err = b.refuseSandbox(t, p.New); p.err != nil {
		return nil
	}
	if err := b.takePlace(p, p.New.ID); err != nil || p.err != nil {
		return err
	}
	b.stand(t, p.New)
	return b.insertSandbox(p)
}

// existing turns a create into a get where the tenant has a live sandbox of that key, or one with those labels.
func (b *batch) existing(p *submission) bool {
	var found []Sandbox
	switch {
	case p.New.Key != nil:
		found = b.named
	case p.New.Reuse:
		found = b.labelled
	}
	for _, box := range found {
		if p.New.Key != nil && (box.TenantID != p.TenantID || *box.Key != *p.New.Key) {
			continue
		}
		if p.New.Key == nil && !box.has(p.TenantID, p.New.Labels) {
			continue
		}
		p.out = Submitted{Sandbox: box, Existing: true}
		for _, j := range slices.Concat(b.creates, b.labelledCreates) {
			if j.SandboxID == box.ID {
				p.out.Jobs = []Job{j}
			}
		}
		return true
	}
	return false
}

// keyTaken says whether another submission of the group makes the sandbox of that key, or one with those labels: it is
// there with the next transaction.
func (b *batch) keyTaken(p *submission) bool {
	if p.New.Reuse {
		return slices.ContainsFunc(
			slices.Collect(maps.Values(b.boxes)),
			func(box *Sandbox) bool { return box.has(p.TenantID, p.New.Labels) },
		)
	}
	return p.New.Key != nil && slices.ContainsFunc(slices.Collect(maps.Values(b.boxes)), func(box *Sandbox) bool {
		return box.TenantID == p.TenantID && box.Key != nil && *box.Key == *p.New.Key
	})
}

func (b *batch) insertSandbox(p *submission) error {
	box := *p.New
	box.CreatedAt, box.LastActiveAt = b.now, b.now
	if box.Labels == nil {
		box.Labels = map[string]string{}
	}
	box.ExpiresAt = box.expiry(b.now, p.Timeout)
	box.ChangedBy = p.actor()
	b.boxes[box.ID] = &box // nobody else has seen it: there is nothing to lock and nothing to read
	if err := pg.Enqueue(pg.Build(b.tx).Create(&box), nil); err != nil || p.Build == nil {
		return err
	}
	return pg.Enqueue(pg.Build(b.tx).Create(p.Build), nil)
}

// work says what a sandbox has to do.
type work struct {
	ID                      string
	Stands, Active, Ordered *bool
	Now                     time.Time
}

// lockSandboxes locks every sandbox of the group that stood before, in one order, and finds those in which a job still
// waits or runs. The locks, which come before, make that final.
func (b *batch) lockSandboxes() error {
	var standing []string
	for _, p := range b.open() {
		if p.New == nil {
			standing = append(standing, p.SandboxID)
		}
	}
	if len(standing) == 0 {
		return nil
	}
	slices.Sort(standing)
	standing = slices.Compact(standing)
	lock := pg.Build(b.tx).
		Clauses(b.locking()).
		Where("id = ANY (?::text[])", idArray(standing)).
		Order("id").
		Find(&[]Sandbox{})
	if err := pg.Enqueue(lock, pg.Each(func(box Sandbox) { b.boxes[box.ID] = &box })); err != nil {
		return err
	}
	// A scalar subquery is looked up in the index for each sandbox; EXISTS may be hashed over all of the jobs. An array in
	// place of the document would have PostgreSQL make a new plan each time, which is dearer than the answer.
	return pg.Enqueue(pg.Build(b.tx).Raw(`
		SELECT id, now() AS now, (SELECT true FROM sandboxes WHERE id = s.id) AS stands,
			(SELECT true FROM jobs WHERE sandbox_id = s.id AND state IN ('queued', 'running') LIMIT 1) AS active,
			(SELECT true FROM jobs WHERE sandbox_id = s.id AND state IN ('queued', 'running') AND NOT parallel LIMIT 1) AS ordered
		FROM jsonb_array_elements_text(CAST(? AS jsonb)) AS s (id)`,
		string(must(json.Marshal(standing)))), pg.Into(&b.found))
}

// admitJobs refuses what may not run on its sandbox.
func (b *batch) admitJobs() error {
	for _, p := range b.open() {
		p.err = b.refusal(p)
	}
	return nil
}

// refusal says why a submission may not go to its sandbox. Delete is welcome in every state.
func (b *batch) refusal(p *submission) error {
	box := b.boxes[p.SandboxID]
	switch {
	case box == nil && b.stands(p.SandboxID):
		return errLocked
	case box == nil || box.TenantID != p.TenantID:
		return ErrNotFound
	case p.Jobs[0].Kind == KindDelete:
		return nil
	case box.Ended() || box.Desired == DesiredDeleted:
		return box.EndedError()
	}
	return nil
}

// stands says whether a sandbox that was not locked exists.
func (b *batch) stands(id string) bool {
	return slices.ContainsFunc(b.found, func(f work) bool { return f.ID == id && f.Stands != nil })
}

// guard asks each submission's conditions. Of several on one sandbox only the first that holds goes on: the others were
// asked about what it is about to change.
func (b *batch) guard() error {
	passed := map[string]bool{}
	for _, p := range b.open() {
		switch {
		case p.Guard == nil && p.Due == nil:
		case passed[p.SandboxID],
			p.Due != nil && !b.due[dueKey{p.Due, p.SandboxID}],
			p.Guard != nil && !p.Guard(SandboxSnapshot{*b.boxes[p.SandboxID], b.active[p.SandboxID], b.now}):
			p.err = ErrNotDue
		default:
			passed[p.SandboxID] = true
		}
	}
	return nil
}

// place gives each job its number in the sandbox and decides whether it may run at once.
func (b *batch) place() error {
	for _, p := range b.open() {
		box := b.boxes[p.SandboxID]
		p.out.Jobs = slices.Clone(p.Jobs)
		if !p.NoActivity {
			box.LastActiveAt = b.now
		}
		for i := range p.out.Jobs {
			first, err := b.overtakes(p.out.Jobs[i], box)
			if err != nil {
				return err
			}
			b.placeJob(&p.out.Jobs[i], box, first)
		}
		if p.moves(box, b.now) {
			box.TimeoutMS, box.ExpiresAt = p.Timeout.Milliseconds(), box.expiry(b.now, p.Timeout)
			box.ChangedBy = p.actor()
			err := pg.Enqueue(pg.Build(b.tx).Model(box).Select("timeout_ms", "expires_at", "changed_by").Updates(box), nil)
			if err != nil {
				return err
			}
		}
		if err := b.wish(p, box); err != nil {
			return err
		}
		p.out.Sandbox = *box
	}
	return nil
}

// moves says whether the submission changes when a sandbox expires.
func (p *submission) moves(box *Sandbox, now time.Time) bool {
	switch {
	case p.Timeout == 0 || p.New != nil:
		return false
	case !p.ExtendOnly || box.Desired == DesiredPaused:
		return true
	case box.State == SandboxPaused, box.State == SandboxCreating: // its clock starts anew
		return p.Timeout.Milliseconds() > box.TimeoutMS
	}
	return now.Add(p.Timeout).After(box.ExpiresAt)
}

func (b *batch) placeJob(j *Job, box *Sandbox, first bool) {
	box.NextSeq++
	j.Seq, j.QueuedAt, j.State = box.NextSeq, b.now, Queued
	if makesSandbox(j.Kind) { // parallel jobs of a sandbox wait until it runs, which this job alone brings about
		j.Parallel = false
	}
	if j.ExpireIn > 0 {
		j.QueueDeadline = new(b.now.Add(j.ExpireIn))
	}
	if j.Call != nil {
		j.JoinableAt = new(b.now.Add(j.JoinIn))
	}
	switch {
	case j.Kind == KindDelete && box.EndedAt != nil: // nothing is left to do
		j.State, j.StartedAt, j.FinishedAt, j.Parallel = Succeeded, &b.now, &b.now, true
	case j.Parallel && box.State == SandboxCreating && j.Kind != KindDelete: // runs as soon as the sandbox does
	case j.Parallel:
		j.ReadyAt = &b.now
	case first, !b.busy[box.ID]:
		j.ReadyAt = &b.now
		b.busy[box.ID] = true
	}
}
