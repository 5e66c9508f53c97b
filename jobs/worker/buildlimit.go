package worker

import (
	"context"
	"sync"

	"sandyard/keymutex"
)

// defaultBuilds is how many builds a worker runs at once where its configuration does not say.
const defaultBuilds = 4

// buildTurns bounds the builds that run at once on a worker. No tenant has more than half of the turns, so that one
// whose builds take hours keeps nobody else from building.
type buildTurns struct {
	most  int
	mu    sync.Mutex
	taken map[string]int // by tenant
	all   int
	freed chan struct{}  // closed when a turn has become free
	alone keymutex.Mutex // held while an engine's image of one build is made
}

func newBuildTurns(most int) *buildTurns {
	if most <= 0 {
		most = defaultBuilds
	}
	return &buildTurns{most: most, taken: map[string]int{}, freed: make(chan struct{})}
}

// wait takes a turn for the tenant, when there is one, and returns how to give it back. It calls waiting once if there
// is none.
func (t *buildTurns) wait(ctx context.Context, tenantID string, waiting func()) (done func(), err error) {
	for {
		freed, ok := t.take(tenantID)
		if ok {
			return func() { t.free(tenantID) }, nil
		}
		if waiting != nil {
			waiting()
			waiting = nil
		}
		select {
		case <-freed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (t *buildTurns) take(tenantID string) (freed <-chan struct{}, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.all >= t.most || t.taken[tenantID] >= max(1, t.most/2) {
		return t.freed, false
	}
	t.all++
	t.taken[tenantID]++
	return nil, true
}

func (t *buildTurns) free(tenantID string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.all--
	if t.taken[tenantID]--; t.taken[tenantID] == 0 {
		delete(t.taken, tenantID)
	}
	close(t.freed)
	t.freed = make(chan struct{})
}
