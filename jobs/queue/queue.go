// Package queue is the way into Redis: tasks for workers and notices for those who wait, the servers that take tasks
// out, and job rates. Asynq and the Redis client are named here.
//
// Nothing is kept in Redis alone. What it loses is sent again from PostgreSQL.
package queue

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/hibiken/asynq"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"sandyard/models"
)

// Channels of Redis pub/sub. A lost message costs time, never a job.
const (
	wakeChannel      = "sandyard:wake:"      // + queue: a task was added
	doneChannel      = "sandyard:done:"      // + job id: it has ended
	interruptChannel = "sandyard:interrupt:" // + job or sandbox id: look whether it is to stop
	epochKey         = "sandyard:epoch"      // gone = Redis has lost its data
)

// Webhooks carries deliveries, apart from the jobs so that a slow receiver cannot hold them up.
const Webhooks = "webhooks"

// Queue is the way into Redis: it sends tasks and notices. Redis may be away or hang, which costs a caller callTime.
// The queue sends a task again that Redis did not take, for resendFor; then the sweep does.
type Queue struct {
	rdb       redis.UniversalClient
	client    *asynq.Client
	breaker   breaker
	resender  *resender
	unchecked prometheus.Counter
	log       *slog.Logger
}

// NewQueue returns a queue on rdb, which stays the caller's. Close it before rdb.
func NewQueue(rdb redis.UniversalClient, log *slog.Logger) *Queue {
	q := &Queue{rdb: rdb, client: asynq.NewClientFromRedisClient(rdb), unchecked: newUnchecked(), log: log}
	q.resender = newResender(q.sendAgain)
	return q
}

// Wait makes the queue wait so long for one answer of Redis, in place of callTime. It is called before all else.
func (q *Queue) Wait(patience time.Duration) { q.breaker.patience = patience }

// Close leaves the tasks that Redis has not taken to the sweep.
func (q *Queue) Close() { q.resender.close() }

// Ready says whether Redis answers.
func (q *Queue) Ready(ctx context.Context) error {
	if err := q.rdb.Ping(ctx).Err(); err != nil {
		return fmt.Errorf("redis does not answer: %w", err)
	}
	return nil
}

const (
	// tenantHeader says in a task whose job it is about. Tasks of older releases lack it.
	tenantHeader = "tenant"
	// taskTimeout is how long a worker may have a task before it has claimed the job.
	taskTimeout = 24 * time.Hour
	// margin is how much later than us Asynq gives a delivery up. Its deadline frees the slot but stops nothing, so it
	// must never come first.
	margin = 2 * time.Minute
)

// Send hands tasks to Redis and wakes the workers of their queues.
func (q *Queue) Send(ctx context.Context, tasks []models.Dispatch) {
	queued := make([]queuedTask, len(tasks))
	for i, d := range tasks {
		t := asynq.NewTaskWithHeaders(d.Kind, []byte(d.JobID), map[string]string{tenantHeader: d.TenantID})
		queued[i] = queuedTask{
			task:    t,
			queue:   d.Queue,
			id:      TaskID(d.JobID, d.Generation),
			timeout: taskTimeout,
			since:   time.Now(),
		}
	}
	q.sendAll(ctx, queued)
}

// SendDeliveries hands webhook attempts to Redis.
func (q *Queue) SendDeliveries(ctx context.Context, tasks []models.DeliveryTask) {
	queued := make([]queuedTask, len(tasks))
	for i, d := range tasks {
		id := TaskID(d.ID, d.Attempt)
		t := asynq.NewTask("webhook", []byte(id))
		if d.Again && q.spent(ctx, Webhooks, id) {
			id += ":" + uuid.NewString() // its name is taken
		}
		queued[i] = queuedTask{task: t, queue: Webhooks, id: id, timeout: margin, since: time.Now()}
	}
	q.sendAll(ctx, queued)
}

// sendAll hands tasks to Redis. The first one that Redis does not take is kept with those after it, to be sent again.
func (q *Queue) sendAll(ctx context.Context, tasks []queuedTask) {
	woken := map[string]bool{}
	for i, t := range tasks {
		if err := q.enqueue(ctx, t); err != nil {
			left := q.resender.keep(tasks[i:])
			q.report(ctx, "tasks not sent, the sweep sends them again", err, "count", len(tasks)-i, "left_to_sweep", left)
			break
		}
		woken[wakeChannel+t.queue] = true
	}
	q.publish(ctx, slices.Collect(maps.Keys(woken))...)
}

// sendAgain hands a task to Redis that was kept, and wakes the workers of its queue.
func (q *Queue) sendAgain(ctx context.Context, t queuedTask) error {
	if err := q.enqueue(ctx, t); err != nil {
		return err
	}
	q.publish(ctx, wakeChannel+t.queue)
	return nil
}

// enqueue returns nil when Redis holds the task. One with the same id is there from a send whose answer was lost.
// MaxRetry is 1 so that a task whose worker died ends as a no-op instead of in the archive.
func (q *Queue) enqueue(ctx context.Context, t queuedTask) error {
	return q.breaker.call(ctx, func(ctx context.Context) error {
		_, err := q.client.EnqueueContext(
			ctx,
			t.task,
			asynq.Queue(t.queue),
			asynq.TaskID(t.id),
			asynq.MaxRetry(1),
			asynq.Timeout(t.timeout),
		)
		if errors.Is(err, asynq.ErrTaskIDConflict) {
			return nil
		}
		return err
	})
}

// report logs a call that Redis did not answer. Calls that were not made because of it say no more.
func (q *Queue) report(ctx context.Context, what string, err error, attrs ...any) {
	if err != nil && !errors.Is(err, errRedisAway) {
		q.log.WarnContext(ctx, what, append(attrs, "error", err)...)
	}
}

// TaskID is the name of the task of one generation of a job, or of one attempt of a delivery.
func TaskID(id string, generation int) string { return id + ":" + strconv.Itoa(generation) }

// ParseTaskID reads what TaskID has written.
func ParseTaskID(s string) (string, int, error) {
	id, generation, ok := strings.Cut(s, ":")
	n, err := strconv.Atoi(generation)
	if !ok || err != nil {
		return "", 0, fmt.Errorf("malformed task id %q", s)
	}
	return id, n, nil
}

// Announce tells waiting clients that jobs have ended.
func (q *Queue) Announce(ctx context.Context, ids ...string) {
	q.publish(ctx, prefixed(doneChannel, ids)...)
}

// Interrupt makes the worker that runs this job, or jobs of this sandbox, look whether it is to stop.
func (q *Queue) Interrupt(ctx context.Context, id string) {
	q.publish(ctx, interruptChannel+id)
}

// noticeBatch bounds one pipeline of notices.
const noticeBatch = 1000

// publish sends a notice on each channel.
func (q *Queue) publish(ctx context.Context, channels ...string) {
	for batch := range slices.Chunk(channels, noticeBatch) {
		err := q.breaker.call(ctx, func(ctx context.Context) error {
			_, err := q.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
				for _, c := range batch {
					p.Publish(ctx, c, "")
				}
				return nil
			})
			return err
		})
		q.report(ctx, "job notices not sent", err)
	}
}

// Follow does what the end of jobs asks for: notices first, because somebody waits for them.
func (q *Queue) Follow(ctx context.Context, f models.FinishEffects) {
	q.Announce(ctx, f.Ended...)
	q.Send(ctx, f.Dispatch)
}

// Missing returns those tasks, all sent a while ago and not claimed, that Redis will not hand out: gone holds those
// that it does not have any more, active those that it has handed to a worker which does not say that it has them. It
// reads Asynq's keys directly, because its Inspector fails for a queue whose registration was lost; a test pins their
// layout.
func (q *Queue) Missing(ctx context.Context, tasks []models.Dispatch) (gone, active []models.Dispatch, err error) {
	states, hands := make([]*redis.StringCmd, len(tasks)), make([]*redis.IntCmd, len(tasks))
	_, err = q.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, d := range tasks {
			states[i] = p.HGet(ctx, taskKey(d.Queue, TaskID(d.JobID, d.Generation)), "state")
			hands[i] = p.Exists(ctx, handKey+d.JobID)
		}
		return nil
	})
	if err != nil && !errors.Is(err, redis.Nil) {
		return nil, nil, err
	}
	for i, cmd := range states {
		switch {
		case waits(cmd), hands[i].Val() > 0:
		case cmd.Val() == "active":
			active = append(active, tasks[i])
		default:
			gone = append(gone, tasks[i])
		}
	}
	return gone, active, nil
}

const (
	handKey = "sandyard:hand:" // + job id: a worker has its task, and no slot for it yet
	// HandTime is how long the sweep believes that after the worker has said so for the last time.
	HandTime = 10 * time.Second
)

// InHand says that this worker has tasks of these jobs and will come to them.
func (q *Queue) InHand(ctx context.Context, jobs []string) error {
	if len(jobs) == 0 {
		return nil
	}
	_, err := q.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, id := range jobs {
			p.Set(ctx, handKey+id, "", HandTime)
		}
		return nil
	})
	return err
}

// waits says whether Asynq will hand out the task whose state was asked for.
func waits(state *redis.StringCmd) bool {
	return slices.Contains([]string{"pending", "scheduled", "retry"}, state.Val())
}

// spent says whether Redis still has the task but hands it out to nobody, at least not for long: it was handed to a
// worker that has not heard of it, or has failed too often.
func (q *Queue) spent(ctx context.Context, queue, id string) bool {
	var state *redis.StringCmd
	err := q.breaker.call(ctx, func(ctx context.Context) error {
		if state = q.rdb.HGet(ctx, taskKey(queue, id), "state"); errors.Is(state.Err(), redis.Nil) {
			return nil
		}
		return state.Err()
	})
	return err == nil && state.Err() == nil && !waits(state)
}

// taskKey is where Asynq keeps a task.
func taskKey(queue, id string) string { return "asynq:{" + queue + "}:t:" + id }

// ForgetNode removes the queues of a node that is gone.
func (q *Queue) ForgetNode(ctx context.Context, node string) error {
	return q.forget(ctx, "node-"+node)
}

// forget removes a queue with whatever is in it. Asynq's Inspector would refuse where a worker was killed with a task
// in hand, and would not find the queue at all after Redis has lost its data. A test pins the layout.
func (q *Queue) forget(ctx context.Context, queue string) error {
	prefix := "asynq:{" + queue + "}:"
	keys := append(counters(prefix), prefix+"lease", prefix+"paused")
	for _, state := range []string{"pending", "active"} {
		ids, err := q.rdb.LRange(ctx, prefix+state, 0, -1).Result()
		if err != nil {
			return err
		}
		keys = append(append(keys, prefix+state), prefixed(prefix+"t:", ids)...)
	}
	for _, state := range []string{"scheduled", "retry", "archived", "completed"} {
		ids, err := q.rdb.ZRange(ctx, prefix+state, 0, -1).Result()
		if err != nil {
			return err
		}
		keys = append(append(keys, prefix+state), prefixed(prefix+"t:", ids)...)
	}
	return errors.Join(q.rdb.Del(ctx, keys...).Err(), q.rdb.SRem(ctx, "asynq:queues", queue).Err())
}

// countedDays is for how long Asynq keeps a day's counters.
const countedDays = 90

// counters are the keys under which Asynq counts a queue's tasks, in all and by day.
func counters(prefix string) []string {
	keys := []string{prefix + "processed", prefix + "failed"}
	today := time.Now().UTC() // Asynq, too, counts by this machine's own clock
	for day := -1; day <= countedDays; day++ {
		date := today.AddDate(0, 0, -day).Format(time.DateOnly)
		keys = append(keys, prefix+"processed:"+date, prefix+"failed:"+date)
	}
	return keys
}

func prefixed(prefix string, names []string) []string {
	out := make([]string, len(names))
	for i, n := range names {
		out[i] = prefix + n
	}
	return out
}

// Epoch is the mark that only a loss of Redis' data removes; empty = it is gone.
func (q *Queue) Epoch(ctx context.Context) (string, error) {
	mark, err := q.rdb.Get(ctx, epochKey).Result()
	if errors.Is(err, redis.Nil) {
		err = nil
	}
	return mark, err
}

// SetEpoch writes the mark, unless there is one.
func (q *Queue) SetEpoch(ctx context.Context, mark string) error {
	return q.rdb.SetNX(ctx, epochKey, mark, 0).Err()
}

// Interrupts hands the ids of Interrupt to take, from now on until stop is called; then done is closed.
func Interrupts(
	ctx context.Context,
	rdb redis.UniversalClient,
	take func(id string),
) (stop func(), done <-chan struct{}) {
	sub, ended := rdb.PSubscribe(ctx, interruptChannel+"*"), make(chan struct{})
	go func() {
		defer close(ended)
		for m := range sub.Channel() {
			take(strings.TrimPrefix(m.Channel, interruptChannel))
		}
	}()
	return func() { _ = sub.Close() }, ended // the connection is given up either way
}
