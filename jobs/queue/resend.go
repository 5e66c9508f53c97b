package queue

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
)

const (
	// resendFirst and resendMost bound the wait before the next attempt, which doubles: the first one comes when the
	// breaker lets calls through again.
	resendFirst, resendMost = redisAway + 50*time.Millisecond, 2 * time.Second
	// resendFor is how long a task is kept. After that the sweep sends it.
	resendFor = 30 * time.Second
	// resendHeld bounds the tasks that are kept, a few hundred bytes each. The sweep sends the others.
	resendHeld = 10_000
)

// queuedTask is a task with what Asynq is to know about it.
type queuedTask struct {
	task    *asynq.Task
	queue   string
	id      string
	timeout time.Duration
	since   time.Time // when it was first to be sent
}

// resender keeps the tasks that Redis did not take and sends them again. The same task twice is no harm: its id is the
// same, and a worker claims a job once.
type resender struct {
	send func(context.Context, queuedTask) error

	mu      sync.Mutex
	held    []queuedTask
	running bool
	ended   bool
	quit    chan struct{}
	loop    sync.WaitGroup
}

func newResender(send func(context.Context, queuedTask) error) *resender {
	return &resender{send: send, quit: make(chan struct{})}
}

// keep takes tasks over, and says how many it has no room for.
func (r *resender) keep(tasks []queuedTask) (left int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended {
		return len(tasks)
	}
	n := min(len(tasks), resendHeld-len(r.held))
	r.held = append(r.held, tasks[:n]...)
	if !r.running && n > 0 {
		r.running = true
		r.loop.Go(r.run)
	}
	return len(tasks) - n
}

// run ends when nothing is held any more.
func (r *resender) run() {
	for wait := resendFirst; ; wait = min(2*wait, resendMost) {
		select {
		case <-time.After(wait):
		case <-r.quit:
			return
		}
		if !r.round(context.Background()) { // each send has a deadline of its own
			return
		}
	}
}

// round sends what is held until Redis does not answer, and says whether there is to be another one.
func (r *resender) round(ctx context.Context) bool {
	for {
		t, ok := r.first()
		if !ok {
			return false
		}
		err := r.send(ctx, t)
		switch {
		case err == nil || time.Since(t.since) > resendFor:
			r.drop()
		case errors.Is(err, redis.ErrClosed):
			r.clear()
			return false
		default:
			return true
		}
		select {
		case <-r.quit:
			return false
		default:
		}
	}
}

// first returns the oldest task; false ends the loop.
func (r *resender) first() (queuedTask, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.held) == 0 {
		r.held, r.running = nil, false
		return queuedTask{}, false
	}
	return r.held[0], true
}

func (r *resender) drop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.held = r.held[1:]
}

// clear drops everything, when the client of Redis is closed.
func (r *resender) clear() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.held, r.running = nil, false
}

// close leaves what is held to the sweep.
func (r *resender) close() {
	r.mu.Lock()
	if !r.ended {
		r.ended = true
		close(r.quit)
	}
	r.mu.Unlock()
	r.loop.Wait()
}
