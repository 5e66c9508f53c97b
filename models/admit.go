package models

import (
	"encoding/json"
	"maps"
	"slices"
	"time"

	"gorm.io/gorm/clause"
)

// admitSandboxes lets new sandboxes in, tenant by tenant under the tenant's row lock, so that neither a quota nor a
// key can be taken twice.
func (b *batch) admitSandboxes() error {
	news := map[string][]*submission{}
	for _, p := range b.open() {
		if p.New != nil {
			news[p.TenantID] = append(news[p.TenantID], p)
		}
	}
	for _, tenant := range slices.Sorted(maps.Keys(news)) {
		if err := b.admitTenant(tenant, news[tenant]); err != nil {
			return err
		}
	}
	return nil
}

func (b *batch) admitTenant(id string, subs []*submission) error {
	t, now, err := b.lockTenant(id)
	if err != nil {
		return err
	}
	b.now = now.Time
	for _, p := range subs {
		switch found, err := b.findByKey(p); {
		case err != nil:
			return err
		case found:
			if err := b.takePlace(p, p.out.Sandbox.ID); err != nil {
				return err
			}
			continue
		case now.Live >= t.MaxSandboxes:
			p.err = &LimitError{Limit: "max_sandboxes", Used: now.Live, Max: t.MaxSandboxes}
			continue
		}
		if err := b.takePlace(p, p.New.ID); err != nil {
			return err
		}
		if p.err != nil {
			continue
		}
		if err := b.insertSandbox(p); err != nil {
			return err
		}
		now.Live++
	}
	return nil
}

// head says how many sandboxes a tenant has, and what time it is.
type head struct {
	Live int
	Time time.Time
}

func (b *batch) lockTenant(id string) (t Tenant, now head, err error) {
	lock := dry(b.tx).Clauses(clause.Locking{Strength: "NO KEY UPDATE"}).Where("id = ?", id).Find(&Tenant{})
	if err := later(lock, into(&t)); err != nil {
		return t, now, err
	}
	live := dry(b.tx).Raw("SELECT count(*) AS live, now() AS time FROM sandboxes WHERE tenant_id = ? AND ended_at IS NULL", id)
	if err := later(live, into(&now)); err != nil {
		return t, now, err
	}
	if err := flush(b.tx); err != nil {
		return t, now, err
	}
	if t.ID == "" {
		return t, now, ErrNotFound
	}
	return t, now, nil
}

// findByKey turns a create into a get where the tenant has a live sandbox of that key.
func (b *batch) findByKey(p *submission) (bool, error) {
	if p.New.Key == nil {
		return false, nil
	}
	var box Sandbox
	res := b.tx.Where("tenant_id = ? AND key = ? AND ended_at IS NULL", p.TenantID, *p.New.Key).Limit(1).Find(&box)
	if res.Error != nil || res.RowsAffected == 0 {
		return false, res.Error
	}
	p.out = Submitted{Sandbox: box, Existing: true}
	return true, b.tx.Where("sandbox_id = ? AND kind = 'create'", box.ID).Limit(1).Find(&p.out.Jobs).Error
}

func (b *batch) insertSandbox(p *submission) error {
	box := *p.New
	box.CreatedAt, box.LastActiveAt = b.now, b.now
	if box.Labels == nil {
		box.Labels = map[string]string{}
	}
	box.ExpiresAt = b.now.Add(p.Timeout)
	box.ChangedBy = p.actor()
	b.boxes[box.ID] = &box // nobody else has seen it: there is nothing to lock and nothing to read
	if err := later(dry(b.tx).Create(&box), nil); err != nil || p.Build == nil {
		return err
	}
	return later(dry(b.tx).Create(p.Build), nil)
}

// lockSandboxes locks every sandbox of the group that stood before, in one order, and refuses what may not run on it.
func (b *batch) lockSandboxes() error {
	for _, p := range b.open() {
		if b.boxes[p.SandboxID] == nil {
			b.standing = append(b.standing, p.SandboxID)
		}
	}
	if len(b.standing) > 0 {
		if err := b.readStanding(); err != nil {
			return err
		}
	}
	for _, p := range b.open() {
		p.err = b.refusal(p)
	}
	return nil
}

func (b *batch) readStanding() error {
	slices.Sort(b.standing)
	b.standing = slices.Compact(b.standing)
	var boxes []Sandbox
	lock := dry(b.tx).Clauses(clause.Locking{Strength: "NO KEY UPDATE"}).Where("id = ANY (?::text[])", idArray(b.standing)).Order("id").Find(&[]Sandbox{})
	if err := later(lock, into(&boxes)); err != nil {
		return err
	}
	if err := b.findBusy(); err != nil {
		return err
	}
	for i := range boxes {
		b.boxes[boxes[i].ID] = &boxes[i]
	}
	return nil
}

// refusal says why a submission may not go to its sandbox. Delete is welcome in every state.
func (b *batch) refusal(p *submission) error {
	box := b.boxes[p.SandboxID]
	switch {
	case box == nil || box.TenantID != p.TenantID:
		return ErrNotFound
	case p.Jobs[0].Kind == KindDelete:
		return nil
	case box.Ended() || box.Desired == DesiredDeleted:
		return box.endedError()
	}
	return nil
}

// work says what a sandbox has to do.
type work struct {
	ID              string
	Active, Ordered *bool
	Now             time.Time
}

// findBusy finds the sandboxes in which a job still waits or runs, and asks for the time on the way. The locks, which came
// before, make it final.
func (b *batch) findBusy() error {
	var found []work
	// A scalar subquery is looked up in the index for each sandbox; EXISTS may be hashed over all of the jobs. An array in
	// place of the document would have PostgreSQL make a new plan each time, which is dearer than the answer.
	err := later(dry(b.tx).Raw(`
		SELECT id, now() AS now,
			(SELECT true FROM jobs WHERE sandbox_id = s.id AND state IN ('queued', 'running') LIMIT 1) AS active,
			(SELECT true FROM jobs WHERE sandbox_id = s.id AND state IN ('queued', 'running') AND NOT parallel LIMIT 1) AS ordered
		FROM jsonb_array_elements_text(CAST(? AS jsonb)) AS s (id)`,
		string(must(json.Marshal(b.standing)))), into(&found))
	if err == nil {
		err = flush(b.tx)
	}
	for _, f := range found {
		b.active[f.ID], b.busy[f.ID], b.now = f.Active != nil, f.Ordered != nil, f.Now
	}
	return err
}

// guard asks each submission's condition. Of several on one sandbox only the first that holds goes on: the others were
// asked about what it is about to change.
func (b *batch) guard() error {
	passed := map[string]bool{}
	for _, p := range b.open() {
		switch {
		case p.Only == nil:
		case passed[p.SandboxID], !p.Only(Situation{*b.boxes[p.SandboxID], b.active[p.SandboxID], b.now}):
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
		if !p.Passive {
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
			box.TimeoutMS, box.ExpiresAt = p.Timeout.Milliseconds(), b.now.Add(p.Timeout)
			box.ChangedBy = p.actor()
			err := later(dry(b.tx).Model(box).Select("timeout_ms", "expires_at", "changed_by").Updates(box), nil)
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
	case !p.OnlyLater || box.Desired == DesiredPaused:
		return true
	case box.State == SandboxPaused:
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
		at := b.now.Add(j.ExpireIn)
		j.QueueDeadline = &at
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
