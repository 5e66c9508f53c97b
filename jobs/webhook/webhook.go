// Package webhook makes the callbacks of jobs that have ended, signed as https://www.standardwebhooks.com says, and
// never to an address that the operator has closed.
package webhook

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"sandyard/jobs/queue"
	"sandyard/models"
	"sandyard/netguard"
)

const (
	// Slots are the attempts that a worker makes at once. They are many times what one tenant may use of them: a receiver
	// that does not answer holds its slot for long.
	Slots = 8 * models.DeliveryShare

	timeout = 15 * time.Second
	// lostAfter is when an attempt whose worker died is made again.
	lostAfter = time.Minute
)

// schedule is how long to wait after each failed attempt; after the last the delivery has failed. Together about three
// days.
func schedule() []time.Duration {
	return []time.Duration{
		time.Second, 5 * time.Second, 30 * time.Second, 5 * time.Minute, 30 * time.Minute, 2 * time.Hour, 5 * time.Hour,
		10 * time.Hour, 14 * time.Hour, 20 * time.Hour, 24 * time.Hour,
	}
}

// Sender makes the callbacks: with one id for all attempts of one event, retried until a 2xx answer.
type Sender struct {
	store *models.Store
	queue *queue.Queue
	http  *http.Client
	log   *slog.Logger
	slots shares

	choosing sync.Mutex      // what two looks at a time find free, both give away
	life     context.Context // of the looks
	end      context.CancelFunc
}

// New returns a Sender. It connects to no address that rules refuse.
func New(store *models.Store, queue *queue.Queue, rules netguard.Rules, log *slog.Logger) *Sender {
	life, end := context.WithCancel(context.Background())
	return &Sender{store: store, queue: queue, http: guardedClient(rules), log: log, life: life, end: end}
}

// Close ends the handing over: the store is not asked any more when it returns. Attempts that are under way go on.
func (h *Sender) Close() {
	h.end()
	h.choosing.Lock()
	defer h.choosing.Unlock()
}

// Dispatch hands due deliveries of a tenant, or of all (""), to Redis.
func (h *Sender) Dispatch(ctx context.Context, tenantID string) {
	tasks, err := h.due(tenantID) //nolint:contextcheck // Close ends the look, not the caller
	if err != nil {
		if h.life.Err() == nil {
			h.log.WarnContext(ctx, "deliveries not dispatched", "error", err)
		}
		return
	}
	h.queue.SendDeliveries(ctx, tasks)
}

// choosingTime bounds one look at the deliveries.
const choosingTime = 10 * time.Second

func (h *Sender) due(tenantID string) ([]models.DeliveryTask, error) {
	h.choosing.Lock()
	defer h.choosing.Unlock()
	ctx, cancel := context.WithTimeout(h.life, choosingTime)
	defer cancel()
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return h.store.DispatchDeliveries(ctx, tenantID, 100)
}

// Handle makes one attempt at a delivery.
func (h *Sender) Handle(ctx context.Context, t queue.Task) error {
	id, attempt, err := queue.ParseTaskID(t.Payload)
	if err != nil {
		return errors.Join(err, queue.ErrNever)
	}
	ctx = context.WithoutCancel(ctx)
	task := models.DeliveryTask{ID: id, Attempt: attempt}
	tenant, endpoint, err := h.store.DeliveryTo(ctx, id)
	if errors.Is(err, models.ErrNotFound) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("find delivery: %w", err)
	}
	if !h.slots.take(tenant, endpoint) {
		return h.store.PutBackDelivery(ctx, task)
	}
	again, err := h.deliver(ctx, task)
	h.slots.giveBack(tenant, endpoint)
	h.Dispatch(ctx, tenant) // there is room again
	if again > 0 && again < time.Minute {
		time.AfterFunc(again, func() { h.Dispatch(ctx, tenant) }) // the scheduler would be up to a second late
	}
	return err
}

// deliver makes the attempt, and says when to make another one; 0 = never.
func (h *Sender) deliver(ctx context.Context, t models.DeliveryTask) (again time.Duration, err error) {
	d, err := h.store.ClaimDelivery(ctx, t, lostAfter)
	if errors.Is(err, models.ErrStale) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("claim delivery: %w", err)
	}
	r := h.attempt(ctx, d)
	if err := h.store.FinishDelivery(ctx, d, r); err != nil {
		return 0, fmt.Errorf("finish delivery: %w", err)
	}
	if r.Error == "" || r.GiveUp {
		return 0, nil
	}
	return r.RetryIn, nil
}

func (h *Sender) attempt(ctx context.Context, d models.Delivery) models.DeliveryResult {
	status, wait, err := h.post(ctx, d)
	h.log.InfoContext(
		ctx,
		"webhook attempted",
		"delivery",
		d.ID,
		"job_id",
		d.JobID,
		"attempt",
		d.Attempt,
		"status",
		status,
		"error",
		err,
		"cause",
		errors.Unwrap(err),
	)
	if err == nil {
		return models.DeliveryResult{Status: status}
	}
	r := models.DeliveryResult{Status: status, Error: err.Error(), GiveUp: status == http.StatusGone}
	schedule := schedule()
	if d.Attempt > len(schedule) {
		r.GiveUp = true
		return r
	}
	next := schedule[d.Attempt-1]
	r.RetryIn = max(next, min(wait, 2*next)) + rand.N(next/5)
	return r
}

// post sends the event and returns the answer's status and how long it asks to wait.
func (h *Sender) post(ctx context.Context, d models.Delivery) (status int, wait time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	req, err := h.request(ctx, d)
	if err != nil {
		return 0, 0, &undeliveredError{"the platform could not send the request; it tries again", err}
	}
	resp, err := h.http.Do(req)
	if err != nil {
		return 0, 0, noAnswer(err)
	}
	defer resp.Body.Close()
	_, _ = io.CopyN(io.Discard, resp.Body, 16<<10) // politeness only
	if resp.StatusCode/100 != 2 {
		after, _ := strconv.Atoi(resp.Header.Get("Retry-After"))
		told := fmt.Sprintf("the receiver responded %d %s", resp.StatusCode, http.StatusText(resp.StatusCode))
		return resp.StatusCode, time.Duration(after) * time.Second, &undeliveredError{told: told}
	}
	return resp.StatusCode, 0, nil
}

func (h *Sender) request(ctx context.Context, d models.Delivery) (*http.Request, error) {
	body, err := h.event(ctx, d)
	if err != nil {
		return nil, err
	}
	tenant, err := h.store.Tenant(ctx, d.TenantID)
	if err != nil {
		return nil, err
	}
	signer, err := standardwebhooks.NewWebhook(tenant.WebhookSecret)
	if err != nil {
		return nil, err
	}
	now := h.store.Now(ctx) // receivers refuse what is far from their time
	signature, err := signer.Sign(d.ID, now, body)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, d.URL, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "sandyard-webhooks")
	req.Header.Set(standardwebhooks.HeaderWebhookID, d.ID)
	req.Header.Set(standardwebhooks.HeaderWebhookTimestamp, strconv.FormatInt(now.Unix(), 10))
	req.Header.Set(standardwebhooks.HeaderWebhookSignature, signature)
	return req, nil
}

// Event is the body of a callback. It is thin: the result is fetched with the job.
type Event struct {
	Type      string    `json:"type"`
	Timestamp time.Time `json:"timestamp"`
	Data      EventData `json:"data"`
}

// EventData is the job that has ended.
type EventData struct {
	JobID      string           `json:"job_id"`
	SandboxID  string           `json:"sandbox_id"`
	Kind       string           `json:"kind"`
	State      models.JobState  `json:"state"`
	Attempt    int              `json:"attempt"`
	ExitCode   *int             `json:"exit_code,omitempty"`
	Error      *models.JobError `json:"error,omitempty"`
	QueuedAt   time.Time        `json:"queued_at"`
	StartedAt  *time.Time       `json:"started_at,omitempty"`
	FinishedAt *time.Time       `json:"finished_at,omitempty"`
	URL        string           `json:"url"` // path on this server
}

func (h *Sender) event(ctx context.Context, d models.Delivery) ([]byte, error) {
	j, err := h.store.Job(ctx, d.TenantID, d.JobID)
	if err != nil {
		return nil, err
	}
	e := Event{Type: d.Event, Timestamp: d.CreatedAt.UTC(), Data: EventData{
		JobID: j.ID, SandboxID: j.SandboxID, Kind: j.Kind, State: j.State, Attempt: j.Attempt, Error: j.Error,
		QueuedAt: j.QueuedAt, StartedAt: j.StartedAt, FinishedAt: j.FinishedAt, URL: "/v1/jobs/" + j.ID,
	}}
	if models.IsProgram(j.Kind) && len(j.Result) > 0 {
		var r struct {
			ExitCode *int `json:"exit_code"`
		}
		if err := json.Unmarshal(j.Result, &r); err != nil {
			return nil, err
		}
		e.Data.ExitCode = r.ExitCode
	}
	return json.Marshal(e)
}
