package models

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"sandyard/models/pg"
)

// Submission is what one request asks for: jobs on one sandbox that run in the order given, and with them the
// sandbox itself where it is new. All of it is accepted or none.
type Submission struct {
	TenantID  string
	User      string // whose limit of queued jobs holds; empty = only the tenant's does
	SandboxID string
	Audit     *AuditEntry // who asks, and for what; nil = the platform does by itself
	// New is the row of a sandbox that does not exist yet. If the tenant has a live sandbox with the same Key,
	// that one is returned and nothing is made. One that replaces a lost sandbox is not made twice (ErrNotDue).
	New        *Sandbox
	Build      *Build // what the new sandbox is to build
	Jobs       []Job
	PrimaryJob int // index of the job that the request is about: IdempotencyKey stands for it
	// IdempotencyKey with Request, a digest of the request, makes a repeated submission return the first one's job.
	IdempotencyKey string
	Request        []byte
	// End ends the sandbox before anything else that waits for it: queued jobs are cancelled, running ones told to stop.
	End *End
	// Timeout sets when the sandbox expires, counted from the commit.
	Timeout time.Duration
	// ExtendOnly lets a sandbox be that expires later than Timeout says. One that is paused expires that long after its
	// resume, so Timeout holds there, unless a resume that is on its way has a longer one.
	ExtendOnly bool
	// Run, where set, is the run of a schedule that the jobs are for: they are its jobs, or they are none (ErrNotDue).
	Run *ScheduleRun
	// NoActivity: it is no use of the sandbox, whose idle time goes on.
	NoActivity bool
	// Due, where set, must still hold under the sandbox's lock; if not, Submit answers ErrNotDue. Submissions of one
	// round share a rule.
	Due *DueRule
	// Guard, where set, is asked under the sandbox's lock whether to go on; if not, Submit answers ErrNotDue.
	Guard func(SandboxSnapshot) bool
}

// SandboxSnapshot is what a guarded submission may look at.
type SandboxSnapshot struct {
	Sandbox Sandbox
	Active  bool      // a job waits or runs
	Now     time.Time // of the database
}

// End says why a sandbox ends and who wanted it.
type End struct {
	Reason string
	Actor  string
}

// Submitted is what became of a Submission.
type Submitted struct {
	Sandbox  Sandbox
	Jobs     []Job
	Replayed bool       // an earlier request with the same idempotency key did this
	Existing bool       // a live sandbox with this key stood already
	Dispatch []Dispatch // to be sent to Redis now
	Ended    []string   // jobs that End has cancelled
}

// Dispatch names a task for Redis.
type Dispatch struct {
	JobID      string `gorm:"column:id"`
	TenantID   string
	Kind       string
	Generation int
	Queue      string
}

// submission is a Submission on its way through a group commit.
type submission struct {
	Submission
	out       Submitted
	replay    *idempotencyKey
	err       error
	came      time.Time
	bytes     int // that its commit sends, about
	committed chan struct{}
}

// row is the row whose lock orders the submission among others: the sandbox's, or where that is new its tenant's.
func (p *submission) row() string {
	if p.New != nil {
		return p.TenantID
	}
	return p.SandboxID
}

// size is about how many bytes the commit of a submission sends.
func (sub *Submission) size() (n int) {
	for _, j := range sub.Jobs {
		n += len(j.Args) + len(j.Input)
	}
	if sub.New != nil {
		n += len(sub.New.Spec)
	}
	if sub.Build != nil {
		n += len(sub.Build.Recipe) + len(sub.Build.Files)
	}
	return n
}

func (p *submission) answer() string { return p.Jobs[p.PrimaryJob].ID }

func (p *submission) actor() string { return p.Jobs[p.PrimaryJob].Actor }

// commitTimeout bounds one group's transaction.
const commitTimeout = 15 * time.Second

// Submit commits sub together with whatever else is being submitted. Errors: ErrNotFound for a sandbox that is not the
// tenant's, *EndedError, *LimitError, ErrKeyReused, pg.ErrUncertain, ErrClosed. After all others nothing was accepted,
// also where the database broke off: an answer that was lost is looked for.
func (s *Store) Submit(ctx context.Context, sub Submission) (Submitted, error) {
	if !isID(sub.SandboxID) {
		return Submitted{}, ErrNotFound
	}
	if s.submit.isClosed() {
		return Submitted{}, ErrClosed
	}
	done, err := s.admitJobs(ctx, &sub)
	if errors.As(err, new(*LimitError)) && s.Accepted(ctx, sub.TenantID, sub.IdempotencyKey) {
		done, err = func(bool) {}, nil // it only asks for what is there
	}
	if err != nil {
		return Submitted{}, err
	}
	var ended []string
	if sub.End != nil {
		if ended, err = s.endParts(ctx, sub); err != nil && !errors.Is(err, ErrNotFound) {
			done(false)
			return Submitted{}, err
		}
	}
	out, err := s.submitAdmitted(ctx, sub)
	if sub.Audit != nil && err == nil && !out.Replayed && !out.Existing {
		sub.Audit.Written = true
	}
	out.Ended = append(out.Ended, ended...)
	done(err == nil && !out.Replayed && !out.Existing)
	return out, err
}

func (s *Store) submitAdmitted(ctx context.Context, sub Submission) (Submitted, error) {
	for try := 0; ; try++ {
		p := &submission{Submission: sub, came: time.Now(), bytes: sub.size(), committed: make(chan struct{})}
		if err := s.submit.do(p); err != nil {
			return Submitted{}, err
		}
		if errors.Is(p.err, errKeyGone) && try < 3 {
			continue
		}
		if p.err != nil || p.replay == nil {
			return p.out, p.err
		}
		out, err := s.replay(ctx, p)
		if pg.IsUnavailable(err) {
			err = pg.Uncertain(err) // something stands under the key, and cannot be read
		}
		if try == 3 || !errors.Is(err, ErrNotFound) {
			return out, err
		}
		// Whoever had the key was refused in the same moment and has given it back.
	}
}

func (s *Store) replay(ctx context.Context, p *submission) (Submitted, error) {
	if !slices.Equal(p.replay.Request, p.Request) {
		return Submitted{}, ErrKeyReused
	}
	job, err := s.Job(ctx, p.TenantID, p.replay.JobID)
	if err != nil {
		return Submitted{}, err
	}
	box, err := s.Sandbox(ctx, p.TenantID, job.SandboxID)
	return Submitted{Sandbox: box, Jobs: []Job{job}, Replayed: true}, err
}

// PruneKeys forgets idempotency keys older than age, and says how many.
func (s *Store) PruneKeys(ctx context.Context, age time.Duration, limit int) (int, error) {
	return s.pruneOld(ctx, "idempotency_keys", "created_at", age, limit)
}

// errKeyGone says that an idempotency key was forgotten for its age in the moment in which it was looked for.
var errKeyGone = errors.New("the idempotency key has just expired")

type idempotencyKey struct {
	TenantID string
	Key      string
	Request  []byte
	JobID    string
}

func (p *submission) key() idempotencyKey {
	return idempotencyKey{p.TenantID, p.IdempotencyKey, p.Request, p.answer()}
}

// ownedKey is what is unique of an idempotency key.
type ownedKey struct{ tenant, key string }

// claimKeys takes the idempotency keys of the group with the first trip, and reads who has them.
func (b *batch) claimKeys() error {
	keys := b.keys()
	if len(keys) == 0 {
		return nil
	}
	args := []any{
		column(keys, func(k idempotencyKey) string { return k.TenantID }),
		column(keys, func(k idempotencyKey) string { return k.Key }),
		column(keys, func(k idempotencyKey) []byte { return k.Request }),
		column(keys, func(k idempotencyKey) string { return k.JobID }),
	}
	err := pg.EnqueueRaw(b.tx, `INSERT INTO idempotency_keys (tenant_id, key, request, job_id)
		SELECT * FROM unnest($1::text[], $2::text[], $3::bytea[], $4::text[]) ON CONFLICT DO NOTHING`, args, nil)
	if err != nil {
		return err
	}
	b.owners = map[ownedKey]idempotencyKey{}
	return pg.EnqueueRaw(
		b.tx,
		`SELECT k.tenant_id, k.key, k.request, k.job_id FROM unnest($1::text[], $2::text[]) AS v (tenant, key)
		JOIN idempotency_keys k ON k.tenant_id = v.tenant AND k.key = v.key`,
		args[:2],
		pg.Each(func(k idempotencyKey) { b.owners[ownedKey{k.TenantID, k.Key}] = k }),
	)
}

// settleKeys makes replays of those whose keys others have.
func (b *batch) settleKeys() {
	for _, p := range b.open() {
		if p.IdempotencyKey == "" {
			continue
		}
		switch owner, found := b.owners[ownedKey{p.TenantID, p.IdempotencyKey}]; {
		case !found:
			p.err = errKeyGone
		case owner.JobID != p.answer():
			p.replay = &owner
		}
	}
}

// keys returns the keys in one order for all groups, so that two of them cannot wait for each other.
func (b *batch) keys() []idempotencyKey {
	var keys []idempotencyKey
	for _, p := range b.group {
		if p.IdempotencyKey != "" {
			keys = append(keys, p.key())
		}
	}
	slices.SortFunc(keys, func(x, y idempotencyKey) int {
		return cmp.Or(cmp.Compare(x.TenantID, y.TenantID), cmp.Compare(x.Key, y.Key))
	})
	return keys
}

// releaseKeys gives back the keys of submissions that were not carried out: the same request may be made again.
func (b *batch) releaseKeys() error {
	for _, p := range b.group {
		if p.IdempotencyKey == "" || p.err == nil && !p.out.Existing {
			continue
		}
		err := pg.Enqueue(
			pg.Build(b.tx).Where("tenant_id = ? AND key = ? AND job_id = ?", p.TenantID, p.IdempotencyKey, p.answer()).
				Delete(&idempotencyKey{}),
			nil,
		)
		if err != nil {
			return err
		}
	}
	return nil
}

// JobOfKey returns the id of the job that was submitted under a tenant's idempotency key, or ErrNotFound.
func (s *Store) JobOfKey(ctx context.Context, tenantID, key string) (string, error) {
	var k idempotencyKey
	err := s.db.WithContext(ctx).Where("tenant_id = ? AND key = ?", tenantID, key).Take(&k).Error
	return k.JobID, notFound(err)
}
