package middleware

import (
	"bytes"
	"context"
	"sync"
	"time"

	"github.com/gofiber/fiber/v2"

	"sandyard/web/problem"
)

const (
	// bodyCopies is how many times a body or an answer is in memory at once: as it came, decoded, checked, and as
	// PostgreSQL's driver sends or has read it.
	bodyCopies = 5
	// budgetPatience is how long a request waits for memory that other requests hold.
	budgetPatience = 5 * time.Second
	// smallBody is what a request may hold beyond the budget's limits, so that large requests do not stop small ones.
	smallBody = 256 << 10
	// DefaultBodyMemory fits a process of 512 MB with bodies of DefaultMaxBody.
	DefaultBodyMemory = 256 << 20
)

// budget bounds the memory that the bodies and large answers of all requests take, in all and per tenant.
type budget struct {
	limit, share int // bytes: in all, and of one tenant

	mu    sync.Mutex
	used  int
	by    map[string]int
	freed chan struct{} // closed at the next release
}

// BodyMemory is how many bytes the bodies and large answers of a server with this configuration may take.
func BodyMemory(configured, maxBody int) int {
	if configured > 0 {
		return configured
	}
	return max(DefaultBodyMemory, 2*bodyCopies*maxBody)
}

// newBudget returns a budget of which one tenant may have three quarters, but always one body of the largest size.
func newBudget(limit, maxBody int) *budget {
	limit = BodyMemory(limit, maxBody)
	return &budget{
		limit: limit,
		share: max(limit/4*3, min(limit, bodyCopies*maxBody)),
		by:    map[string]int{},
		freed: make(chan struct{}),
	}
}

// take reserves n bytes for a tenant. It waits a short time for other requests to end, then refuses with a 503.
func (b *budget) take(ctx context.Context, tenantID string, n int) error {
	patience := time.NewTimer(budgetPatience)
	defer patience.Stop()
	for {
		freed, ok := b.try(tenantID, n)
		if ok {
			return nil
		}
		select {
		case <-freed:
		case <-patience.C:
			return overBudget()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// try reserves n bytes if there is room, and otherwise returns a channel that is closed when it may be worth another
// try.
func (b *budget) try(tenantID string, n int) (freed <-chan struct{}, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	limit, share := b.limit, b.share
	if n <= smallBody {
		limit, share = limit+limit/4, share+share/4
	}
	if b.used > 0 && b.used+n > limit || b.by[tenantID] > 0 && b.by[tenantID]+n > share {
		return b.freed, false
	}
	b.used += n
	b.by[tenantID] += n
	return nil, true
}

func (b *budget) give(tenantID string, n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used -= n
	if b.by[tenantID] -= n; b.by[tenantID] == 0 {
		delete(b.by, tenantID)
	}
	close(b.freed)
	b.freed = make(chan struct{})
}

func overBudget() *problem.Problem {
	return problem.RetryLater(problem.New(fiber.StatusServiceUnavailable, "body_memory_full",
		"the memory for large bodies and answers is in use; try again, with fewer such requests at once"), 2)
}

// Hold is what one request has reserved. A request is one goroutine's at a time.
type Hold struct {
	budget *budget
	tenant string
	n      int
}

// Add reserves the memory that size more bytes of a body or an answer take.
func (h *Hold) Add(ctx context.Context, size int) error {
	if h.budget == nil || size <= 0 {
		return nil
	}
	if err := h.budget.take(ctx, h.tenant, size*bodyCopies); err != nil {
		return err
	}
	h.n += size * bodyCopies
	return nil
}

// Or is h, or an empty Hold of the tenant's where the request's body has not been taken.
func (h Hold) Or(s *Stack, tenantID string) Hold {
	if h.budget == nil {
		h = Hold{budget: s.budget, tenant: tenantID}
	}
	return h
}

// shrink gives back what exceeds n bytes.
func (h *Hold) shrink(n int) {
	if h.n > n {
		h.budget.give(h.tenant, h.n-n)
		h.n = n
	}
}

// Release gives everything back. It may be called again.
func (h *Hold) Release() { h.shrink(0) }

// holdAnswer keeps what the request has reserved until its answer is written, or cannot be.
func (s *Stack) holdAnswer(c *fiber.Ctx, r *Request) {
	res := c.Response()
	if r.Held.n == 0 || res.IsBodyStream() || len(res.Body()) <= smallBody {
		return
	}
	body := res.Body()
	if kept := res.SwapBody(nil); len(kept) > 0 { // not where the body is the handler's own memory
		body = kept
	}
	r.Held.shrink(len(body))
	held := r.Held
	r.Held.n = 0
	res.SetBodyStream(&heldAnswer{bytes.NewReader(body), held}, len(body))
}

// heldAnswer is an answer whose memory is counted until fasthttp closes it, which it also does when the client has
// gone.
type heldAnswer struct {
	*bytes.Reader

	held Hold
}

// Close implements io.Closer.
func (a *heldAnswer) Close() error {
	a.held.Release()
	a.Reader = bytes.NewReader(nil)
	return nil
}
