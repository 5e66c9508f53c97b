package middleware

import (
	"fmt"
	"sync"

	"github.com/gofiber/fiber/v2"

	"sandyard/web/problem"
)

// How many requests of one tenant one process serves at once that last as long as the client likes.
const (
	DefaultTenantWaits   = 1000
	DefaultTenantStreams = 200
)

// Crowd counts what each tenant has open.
type Crowd struct {
	limit string // its name
	most  int

	mu sync.Mutex
	by map[string]int
}

// NewCrowd returns a Crowd of which each tenant may have so many; limit is the name of the limit.
func NewCrowd(limit string, most int) *Crowd {
	return &Crowd{limit: limit, most: most, by: map[string]int{}}
}

// Enter counts one more until leave is called, or refuses with a 429. Leave may be called again.
func (c *Crowd) Enter(tenantID string) (leave func(), err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := c.by[tenantID]; n >= c.most {
		return nil, c.full(n)
	}
	c.by[tenantID]++
	return sync.OnceFunc(func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.by[tenantID]--; c.by[tenantID] == 0 {
			delete(c.by, tenantID)
		}
	}), nil
}

func (c *Crowd) full(n int) *problem.Problem {
	p := problem.New(
		fiber.StatusTooManyRequests,
		"limit_reached",
		fmt.Sprintf(
			"the limit %s is reached: %d requests of this kind are open; end some of them, or ask your operator to raise it",
			c.limit,
			n,
		),
	)
	used, most := float64(n), float64(c.most)
	p.Limit, p.Used, p.Max = c.limit, &used, &most
	return problem.RetryLater(p, 5)
}
