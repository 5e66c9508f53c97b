package mcp

import (
	"context"
	"crypto/sha256"
	"encoding/base32"
	"encoding/json"
	"errors"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"sandyard/jobs/kind"
	"sandyard/models"
	"sandyard/toolset"
	"sandyard/web/middleware"
)

// call is one request of a client.
type call struct {
	session  session
	id       string          // of its message, as JSON
	content  []byte          // digest of what it asks for
	gone     context.Context // over when its client is
	began    time.Time
	notice   string // for the model, before all else
	progress func(ctx context.Context, message string)
}

type callKey struct{}

func newCall(gone context.Context, of session, m message) *call {
	sum := sha256.Sum256(append([]byte(m.Method+"\n"), m.Params...))
	return &call{
		session:  of,
		id:       string(m.ID),
		content:  sum[:],
		gone:     gone,
		began:    time.Now(),
		progress: func(context.Context, string) {},
	}
}

// callOf returns the call that a handler of the library answers, with a context that ends with its time or its client.
func callOf(ctx context.Context) (context.Context, *call, context.CancelFunc) {
	c, ok := ctx.Value(callKey{}).(*call)
	if !ok {
		panic("a handler was called outside of a request")
	}
	ctx, cancel := context.WithTimeout(ctx, toolset.MaxCall-time.Second)
	stop := context.AfterFunc(c.gone, cancel)
	return ctx, c, func() { stop(); cancel() }
}

// tells makes a call report its progress to a client that has asked for it.
func (c *call) tells(req *mcp.CallToolRequest) {
	token := req.Params.GetProgressToken()
	if token == nil {
		return
	}
	c.progress = func(ctx context.Context, text string) {
		_ = req.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ // it is only a comfort
			ProgressToken: token, Message: text, Progress: time.Since(c.began).Seconds(), Total: toolset.MaxCall.Seconds(),
		})
	}
}

// key is the idempotency key of a call: a message that is sent again within its session starts nothing again. Empty =
// the client has no session to tell its messages apart by.
func (s session) callKey(id string) string {
	if s.id == "" || id == "" || id == "null" {
		return ""
	}
	sum := sha256.Sum256([]byte(s.id + "\n" + s.name + "\n" + id))
	return keyPrefix + base32.HexEncoding.WithPadding(base32.NoPadding).EncodeToString(sum[:])
}

// joinable is how long a job counts as that of a call which has not been answered.
const joinable = 24 * time.Hour

// submit submits the one job of a call, beside all others of its sandbox: who waits for each keeps their order.
func (s *Server) submit(ctx context.Context, c *call, sandboxID string, args kind.Args) (models.Job, error) {
	r := middleware.RequestOf(ctx)
	o := r.Options()
	o.Parallel, o.IdempotencyKey, o.Request = true, c.session.callKey(c.id), c.content
	if o.IdempotencyKey != "" {
		o.Call, o.JoinIn = []byte(o.IdempotencyKey), joinable
	}
	done, err := s.c.Jobs.Submit(ctx, sandboxID, args, o)
	if errors.Is(err, models.ErrKeyReused) { // a client that counts from 1 again after a restart
		o.IdempotencyKey += ":" + base32.HexEncoding.EncodeToString(c.content)
		done, err = s.c.Jobs.Submit(ctx, sandboxID, args, o)
	}
	if err != nil {
		return models.Job{}, err
	}
	r.Held.Release() // what was sent stands in the database by now
	return middleware.Answer(done), nil
}

// progressEvery is how often a call that waits says so.
const progressEvery = 3 * time.Second

// follow waits for a job, at most for patience and as long as the call may take. The job has not ended where the wait
// is over or this process ends: then it is handed over to whoever asks next.
func (s *Server) follow(
	ctx context.Context,
	c *call,
	jobID string,
	wait time.Duration,
) (models.Job, models.Sandbox, error) {
	return s.followBy(ctx, c, s.mw.Await, jobID, wait)
}

// awaiting is how Stack waits for a job: Await, or Follow for one that is new.
type awaiting func(ctx context.Context, jobID string, wait time.Duration) (models.Job, models.Sandbox, error)

func (s *Server) followBy(
	ctx context.Context,
	c *call,
	await awaiting,
	jobID string,
	wait time.Duration,
) (j models.Job, box models.Sandbox, err error) {
	leave, err := s.mw.Waits.Enter(middleware.RequestOf(ctx).Tenant)
	if err != nil {
		return j, box, err
	}
	defer leave()
	end := min(time.Since(c.began)+wait, patience)
	for {
		left := end - time.Since(c.began)
		j, box, err = await(ctx, jobID, max(0, min(left, progressEvery)))
		if err != nil || j.State.Terminal() || left <= progressEvery || ctx.Err() != nil || s.quit.Err() != nil {
			return j, box, err
		}
		c.progress(ctx, "job "+j.ID+" is "+string(j.State))
	}
}

// carry submits the job of a call and waits for it. Where the client is gone before that, the job is cancelled; where
// the wait is over, the job is handed over and the error is *running.
func (s *Server) carry(
	ctx context.Context,
	c *call,
	sandboxID string,
	args kind.Args,
	wait time.Duration,
) (models.Job, models.Sandbox, error) {
	job, err := s.submit(ctx, c, sandboxID, args)
	if err != nil {
		return job, models.Sandbox{}, err
	}
	young := func(ctx context.Context, _ string, wait time.Duration) (models.Job, models.Sandbox, error) {
		return s.mw.Follow(ctx, models.Submitted{Jobs: []models.Job{job}}, wait)
	}
	j, box, err := s.followBy(ctx, c, young, job.ID, wait)
	switch {
	case err == nil && j.State.Terminal():
		return j, box, nil
	case c.gone.Err() != nil && s.quit.Err() == nil:
		return j, box, errors.Join(c.gone.Err(), s.cancel(ctx, job.ID))
	case err != nil && ctx.Err() == nil:
		return j, box, err
	}
	if err := s.handOver(ctx, job.ID); err != nil {
		return j, box, err
	}
	return j, box, &running{job}
}

// handOver leaves a job to whoever asks for it next: the end of its call does not end it any more.
func (s *Server) handOver(ctx context.Context, jobID string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cancelPatience)
	defer cancel()
	return s.c.Store.CallAnswered(ctx, middleware.RequestOf(ctx).Tenant, jobID)
}

// running is the outcome of a call whose job goes on.
type running struct{ job models.Job }

func (r *running) Error() string { return "job " + r.job.ID + " is " + string(r.job.State) }

// cancelPatience bounds what is still done for a client that is gone.
const cancelPatience = 5 * time.Second

func (s *Server) cancel(ctx context.Context, jobID string) error {
	r := middleware.RequestOf(ctx)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cancelPatience)
	defer cancel()
	_, err := s.c.Jobs.Cancel(ctx, r.Tenant, jobID, r.Actor())
	return err
}

// cancelled ends the job of a call that the client has given up, on whichever process that call is. A job that was
// handed over goes on. The notice may overtake the call's submission, so that is waited for a short time.
func (s *Server) cancelled(ctx context.Context, of session, m message) error {
	var params struct {
		RequestID json.RawMessage `json:"requestId"`
	}
	key := ""
	if json.Unmarshal(m.Params, &params) == nil {
		key = of.callKey(string(params.RequestID))
	}
	if key == "" {
		return nil
	}
	looking, stop := context.WithTimeout(ctx, overtaken)
	defer stop()
	tick := time.NewTicker(endingEvery)
	defer tick.Stop()
	for {
		job, err := s.unanswered(ctx, key)
		switch {
		case err == nil && job != "":
			return s.cancel(ctx, job)
		case !errors.Is(err, models.ErrNotFound):
			return err
		}
		select {
		case <-tick.C:
		case <-looking.Done():
			return nil // a call that has no job
		}
	}
}

// overtaken is how long a call's submission may come after the notice that it is cancelled.
const overtaken = 2 * time.Second

// unanswered returns the job of a call, or "" where it has ended or was handed over, or ErrNotFound.
func (s *Server) unanswered(ctx context.Context, key string) (string, error) {
	tenant := middleware.RequestOf(ctx).Tenant
	id, err := s.c.Store.JobOfKey(ctx, tenant, key)
	if err != nil {
		return "", err
	}
	j, err := s.c.Store.Job(ctx, tenant, id)
	if err != nil || j.State.Terminal() || j.JoinableAt == nil {
		return "", err
	}
	return id, nil
}
