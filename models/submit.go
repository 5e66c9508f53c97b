package models

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"
)

// Submission is what one request asks for: jobs on one sandbox that run in the order given, and with them the
// sandbox itself where it is new. All of it is accepted or none.
type Submission struct {
	TenantID  string
	SandboxID string
	// New is the row of a sandbox that does not exist yet. If the tenant has a live sandbox with the same Key,
	// that one is returned and nothing is made. One that replaces a lost sandbox is not made twice (ErrNotDue).
	New    *Sandbox
	Build  *Build // what the new sandbox is to build
	Jobs   []Job
	Answer int // index of the job that the request is about: IdempotencyKey stands for it
	// IdempotencyKey with Request, a digest of the request, makes a repeated submission return the first one's job.
	IdempotencyKey string
	Request        []byte
	// End ends the sandbox before anything else that waits for it: queued jobs are cancelled, running ones told to stop.
	End *End
	// Timeout sets when the sandbox expires, counted from the commit.
	Timeout time.Duration
	// OnlyLater lets a sandbox be that expires later than Timeout says. One that is paused expires that long after its
	// resume, so Timeout holds there, unless a resume that is on its way has a longer one.
	OnlyLater bool
	// Run, where set, is the run of a schedule that the jobs are for: they are its jobs, or they are none (ErrNotDue).
	Run *ScheduleRun
	// Passive: it is no use of the sandbox, whose idle time goes on.
	Passive bool
	// Only, where set, is asked under the sandbox's lock whether to go on; if not, Submit answers ErrNotDue.
	Only func(Situation) bool
}

// Situation is what a guarded submission may look at.
type Situation struct {
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
	Kind       string
	Generation int
	Queue      string
	TimeoutMS  int64 `gorm:"column:timeout_ms"`
}

// submission is a Submission on its way through a group commit.
type submission struct {
	Submission
	out       Submitted
	replay    *idempotencyKey
	err       error
	committed chan struct{}
}

func (p *submission) answer() string { return p.Jobs[p.Answer].ID }

func (p *submission) actor() string { return p.Jobs[p.Answer].Actor }

type idempotencyKey struct {
	TenantID string
	Key      string
	Request  []byte
	JobID    string
}

// commitTimeout bounds one group's transaction.
const commitTimeout = 15 * time.Second

// Submit commits sub together with whatever else is being submitted. Errors: ErrNotFound for a sandbox that is not
// the tenant's, *EndedError, *LimitError, ErrKeyReused, ErrUncertain. After all others nothing was accepted, also where
// the database broke off: an answer that was lost is looked for.
func (s *Store) Submit(ctx context.Context, sub Submission) (Submitted, error) {
	if !isID(sub.SandboxID) {
		return Submitted{}, ErrNotFound
	}
	for try := 0; ; try++ {
		p := &submission{Submission: sub, committed: make(chan struct{})}
		s.submit.do(p)
		if p.err != nil || p.replay == nil {
			return p.out, p.err
		}
		out, err := s.replay(ctx, p)
		if IsUnavailable(err) {
			err = uncertain(err) // something stands under the key, and cannot be read
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

// commitSubmissions commits a group, or, when something in it breaks the transaction, each submission by itself.
func (s *Store) commitSubmissions(group []*submission) {
	ctx, cancel := context.WithTimeout(context.Background(), commitTimeout)
	defer cancel()
	err := s.commitSurely(ctx, group)
	switch {
	case err == nil:
	case len(group) == 1, IsUnavailable(err), errors.Is(err, ErrUncertain):
		for _, p := range group {
			p.err = err
		}
	default:
		for _, p := range group {
			if err := s.commitSurely(ctx, []*submission{p}); err != nil {
				p.err = err
			}
		}
	}
}

func (s *Store) commitGroup(ctx context.Context, group []*submission) error {
	return s.tx(ctx, func(tx *gorm.DB) error {
		b := &batch{
			tx: tx, group: group, window: s.limits.Window,
			boxes: map[string]*Sandbox{}, active: map[string]bool{}, busy: map[string]bool{},
		}
		for _, p := range group {
			p.out, p.replay, p.err = Submitted{}, nil, nil
		}
		for _, step := range []func() error{
			b.claimKeys, b.claimRuns, b.admitSandboxes, b.lockSandboxes, b.guard, b.applyEnds, b.place,
			b.insert, b.releaseKeys, b.releaseRuns, b.settleEnds, b.dispatch,
		} {
			if err := step(); err != nil {
				return err
			}
		}
		return nil
	})
}

// batch is the one transaction of a group.
type batch struct {
	tx     *gorm.DB
	group  []*submission
	window int
	now    time.Time           // of the database
	boxes  map[string]*Sandbox // of the group, each locked
	active map[string]bool     // sandboxes with a job that has not ended
	busy   map[string]bool     // those with an ordered one
	// standing are the sandboxes that this transaction has not made.
	standing []string
}

// open returns the submissions that are still to be carried out.
func (b *batch) open() []*submission {
	return slices.DeleteFunc(slices.Clone(b.group), func(p *submission) bool {
		return p.err != nil || p.replay != nil || p.out.Existing
	})
}

// claimKeys takes the idempotency keys of the group; who finds his taken becomes a replay.
func (b *batch) claimKeys() error {
	keys := b.keys()
	if len(keys) == 0 {
		return nil
	}
	if err := b.tx.Clauses(clause.OnConflict{DoNothing: true}).Create(&keys).Error; err != nil {
		return err
	}
	for _, p := range b.open() {
		if p.IdempotencyKey == "" {
			continue
		}
		owner, err := b.ownerOf(p)
		if err != nil {
			return err
		}
		if owner.JobID != p.answer() {
			p.replay = &owner
		}
	}
	return nil
}

// ownerOf returns who has the submission's key. One that is forgotten for its age just now is taken anew.
func (b *batch) ownerOf(p *submission) (owner idempotencyKey, err error) {
	for {
		err = b.tx.Where("tenant_id = ? AND key = ?", p.TenantID, p.IdempotencyKey).Take(&owner).Error
		if !errors.Is(err, gorm.ErrRecordNotFound) {
			return owner, err
		}
		mine := p.key()
		if err = b.tx.Clauses(clause.OnConflict{DoNothing: true}).Create(&mine).Error; err != nil {
			return owner, err
		}
	}
}

func (p *submission) key() idempotencyKey {
	return idempotencyKey{p.TenantID, p.IdempotencyKey, p.Request, p.answer()}
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

// releaseKeys gives back the keys of refused submissions: the same request may be made again.
func (b *batch) releaseKeys() error {
	for _, p := range b.group {
		if p.IdempotencyKey == "" || p.err == nil && !p.out.Existing {
			continue
		}
		err := b.tx.Where("tenant_id = ? AND key = ? AND job_id = ?", p.TenantID, p.IdempotencyKey, p.answer()).
			Delete(&idempotencyKey{}).Error
		if err != nil {
			return err
		}
	}
	return nil
}

// dispatch hands what may run to Redis, each task by the caller that submitted it.
func (b *batch) dispatch() error {
	owner := map[string]*submission{}
	tenants := map[string]*submission{}
	for _, p := range b.group {
		if p.err == nil && p.replay == nil {
			tenants[p.TenantID] = p
		}
		for _, j := range p.out.Jobs {
			owner[j.ID] = p
		}
	}
	for tenant, fallback := range tenants {
		err := dispatchLater(b.tx, tenant, b.window, each(func(d Dispatch) {
			p := cmp.Or(owner[d.JobID], fallback)
			p.out.Dispatch = append(p.out.Dispatch, d)
		}))
		if err != nil {
			return err
		}
	}
	return nil
}
