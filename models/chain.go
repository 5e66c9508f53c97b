package models

import (
	"slices"
	"time"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"
)

// Kinds of job that change what the tables say of a sandbox.
const (
	KindCreate = "create"
	KindDelete = "delete"
	KindPause  = "pause"
	KindResume = "resume"
)

// KindTimeout sets when a sandbox ends by itself.
const KindTimeout = "timeout"

// Kinds of job that run a command or act on a background exec.
const (
	KindExec       = "exec"
	KindExecWait   = "exec_wait"
	KindExecStdin  = "exec_stdin"
	KindExecSignal = "exec_signal"
	KindExecDelete = "exec_delete"
)

// Kinds of job about code that runs in a context, which keeps its state.
const (
	KindCode       = "code"
	KindCodeCreate = "code_create"
	KindCodeDelete = "code_delete"
)

// What a sandbox is wished to be.
const (
	DesiredRunning = "running"
	DesiredPaused  = "paused"
	DesiredDeleted = "deleted"
)

// Lane is a share of its tenant's window and of a worker's start slots that kinds of job have for themselves, so that jobs
// of one lane never wait for those of another.
type Lane string

// The lanes of jobs.
const (
	LaneRun    Lane = "run"    // programs of users, and waits for them: any of them may last
	LaneCreate Lane = "create" // new sandboxes
	LaneEnd    Lane = "end"    // deletes, pauses, resumes, timeouts: they make room, so nothing may hold them up
	LaneCall   Lane = "call"   // all others: files, ports, input and signals for commands
)

// Lanes lists the lanes with their kinds. A kind that is in none of the lists is a call.
func Lanes() map[Lane][]string {
	return map[Lane][]string{
		LaneRun:    {KindExec, KindExecWait, KindCode, KindCodeCreate, KindBuild},
		LaneCreate: {KindCreate},
		LaneEnd:    {KindDelete, KindPause, KindResume, KindTimeout},
		LaneCall:   nil,
	}
}

// LaneOf is the lane of a kind. The index jobs_ready and the dispatch call its twin in SQL, job_lane.
func LaneOf(kind string) Lane {
	for lane, kinds := range Lanes() {
		if slices.Contains(kinds, kind) {
			return lane
		}
	}
	return LaneCall
}

// dispatchReady takes the tenant's jobs that may run, by priority and age, as far as its window has room, and marks
// them as handed to Redis under a new generation.
func dispatchReady(tx *gorm.DB, tenant string, window int) (out []Dispatch, err error) {
	if err = dispatchLater(tx, tenant, window, into(&out)); err == nil {
		err = flush(tx)
	}
	return out, err
}

// dispatchLater is dispatchReady, left to the transaction: read takes what it answers, of type Dispatch. It is the only place
// that hands jobs over. The window bounds what Redis holds of each lane and no worker has claimed: a job that runs has left it.
func dispatchLater(tx *gorm.DB, tenant string, window int, read reader) error {
	return later(dry(tx).Raw(`
		WITH picked AS (
			SELECT ready.* FROM unnest(CAST('{run,create,end,call}' AS text[])) AS lanes (lane), LATERAL (
				SELECT j.id, CASE WHEN s.node_id IS NULL THEN s.provider ELSE 'node-' || s.node_id END AS queue
				FROM jobs j JOIN sandboxes s ON s.id = j.sandbox_id
				WHERE j.tenant_id = @tenant AND job_lane(j.kind) = lane AND j.state = 'queued' AND j.ready_at <= now() AND j.dispatched_at IS NULL
				ORDER BY j.priority DESC, j.ready_at, j.id
				LIMIT @window - (SELECT count(*) FROM (SELECT FROM jobs WHERE tenant_id = @tenant AND job_lane(kind) = lane
					AND state = 'queued' AND dispatched_at IS NOT NULL LIMIT @window) AS unclaimed)
				FOR UPDATE OF j SKIP LOCKED) AS ready)
		UPDATE jobs SET dispatched_at = now(), generation = generation + 1, queue = picked.queue
		FROM picked WHERE jobs.id = picked.id
		RETURNING jobs.id, jobs.tenant_id, jobs.kind, jobs.generation, jobs.queue`,
		map[string]any{"tenant": tenant, "window": window}), read)
}

// oldestOrdered is the job of a sandbox whose turn it is.
const oldestOrdered = `id = (SELECT id FROM jobs WHERE sandbox_id = @id AND NOT parallel AND state IN ('queued', 'running')
	ORDER BY seq LIMIT 1)`

// promote lets the oldest ordered job of a sandbox run, unless one runs or may run already, or it is frozen. The caller holds
// the sandbox's lock, and this is a statement of its own, so it sees every job that was committed before the lock was won. It is
// left to the transaction.
func promote(tx *gorm.DB, sandbox string) error {
	return release(tx, sandbox, oldestOrdered+" AND NOT ("+left+" AND EXISTS (SELECT 1 FROM sandboxes WHERE id = @id AND state = 'paused'))")
}

// promoteAll is promote where the parallel jobs, or those that are frozen, waited for the sandbox to run.
func promoteAll(tx *gorm.DB, sandbox string) error {
	return release(tx, sandbox, "sandbox_id = @id AND (parallel OR "+oldestOrdered+")")
}

func release(tx *gorm.DB, sandbox, which string) error {
	return later(dry(tx).Exec("UPDATE jobs SET ready_at = now() WHERE state = 'queued' AND ready_at IS NULL AND "+which,
		map[string]any{"id": sandbox}), nil)
}

// settle follows up on jobs that have just ended: it writes their callbacks down and lets the next job run.
func settle(tx *gorm.DB, sandbox string, ended []string) error {
	if len(ended) == 0 {
		return nil
	}
	if _, err := recordDeliveries(tx, ended); err != nil {
		return err
	}
	return promote(tx, sandbox)
}

// endQueued ends the queued jobs of a locked sandbox but its deletes with the next flush, which adds their ids to ended.
// Where they are cancelled, actor says by whom.
func endQueued(tx *gorm.DB, sandbox string, to JobState, why JobError, actor *string, ended *[]string) error {
	return later(dry(tx).Model(&Job{}).Clauses(clause.Returning{Columns: []clause.Column{{Name: "id"}}}).
		Where("sandbox_id = ? AND state = 'queued' AND kind <> ?", sandbox, KindDelete).
		Updates(map[string]any{
			"state": gorm.Expr(endOfQueued, to, to), "error": jsonOf(why), "finished_at": gorm.Expr("now()"),
			"cancelled_by": gorm.Expr("coalesce(cancelled_by, ?)", actor),
		}), ids(ended))
}

// endOfQueued is how a queued job ends that cannot fare on. Of a program that was started nobody can say how it ended.
const endOfQueued = "CASE WHEN cancel_requested_at IS NOT NULL THEN 'cancelled' WHEN ? = 'failed' AND " + left + " THEN 'lost' ELSE ? END"

// ids reads the ids of jobs.
func ids(all *[]string) reader { return each(func(j Job) { *all = append(*all, j.ID) }) }

// applyEnds carries out the End of each submission: no new work, queued jobs cancelled, running ones told to stop.
func (b *batch) applyEnds() error {
	for _, p := range b.open() {
		box := b.boxes[p.SandboxID]
		if p.End == nil || box.EndedAt != nil {
			continue
		}
		ended, err := endNow(b.tx, box, *p.End)
		if err != nil {
			return err
		}
		p.out.Ended = ended
	}
	return nil
}

func (b *batch) settleEnds() error {
	for _, p := range b.open() {
		if err := settle(b.tx, p.SandboxID, p.out.Ended); err != nil {
			return err
		}
	}
	return nil
}

// endNow turns a locked, live sandbox to deleting and returns the queued jobs it cancelled.
func endNow(tx *gorm.DB, box *Sandbox, why End) (ended []string, err error) {
	box.State, box.Desired = SandboxDeleting, DesiredDeleted
	if box.EndReason == nil {
		box.EndReason, box.EndActor = &why.Reason, &why.Actor
	}
	box.ChangedBy = why.Actor
	err = later(dry(tx).Model(box).Select("state", "desired", "end_reason", "end_actor", "changed_by").Updates(box), nil)
	if err != nil {
		return nil, err
	}
	err = later(dry(tx).Exec(`UPDATE jobs SET cancel_requested_at = coalesce(cancel_requested_at, now()),
			cancelled_by = coalesce(cancelled_by, @actor)
		WHERE id IN (SELECT id FROM jobs WHERE sandbox_id = @id AND state = 'running' AND kind <> 'delete' ORDER BY id FOR UPDATE)`,
		map[string]any{"id": box.ID, "actor": why.Actor}), nil)
	if err != nil {
		return nil, err
	}
	if err = endQueued(tx, box.ID, Cancelled, sandboxGone(*box), &why.Actor, &ended); err == nil {
		err = flush(tx)
	}
	return ended, err
}

func sandboxGone(box Sandbox) JobError {
	e := box.endedError()
	return JobError{Code: "sandbox_" + string(box.State), Message: e.Error() + "; it accepts no more jobs; create another sandbox"}
}

func jobIDs(jobs []Job) []string {
	ids := make([]string, len(jobs))
	for i, j := range jobs {
		ids[i] = j.ID
	}
	return ids
}

// milliseconds is d as PostgreSQL's interval.
func milliseconds(d time.Duration) any {
	return gorm.Expr("? * interval '1 ms'", d.Milliseconds())
}
