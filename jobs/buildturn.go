package jobs

import (
	"context"
	"sync"
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
	freed chan struct{}        // closed when a turn has become free
	alone map[string]*oneBuild // by build
}

// oneBuild is held while an engine's image of one build is made.
type oneBuild struct {
	token chan struct{}
	users int
}

func newBuildTurns(most int) *buildTurns {
	if most <= 0 {
		most = defaultBuilds
	}
	return &buildTurns{most: most, taken: map[string]int{}, freed: make(chan struct{}), alone: map[string]*oneBuild{}}
}

// wait takes a turn for the tenant, when there is one, and returns how to give it back. It calls waiting once if there
// is none.
func (t *buildTurns) wait(ctx context.Context, tenant string, waiting func()) (done func(), err error) {
	for {
		freed, ok := t.take(tenant)
		if ok {
			return func() { t.free(tenant) }, nil
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

func (t *buildTurns) take(tenant string) (freed <-chan struct{}, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.all >= t.most || t.taken[tenant] >= max(1, t.most/2) {
		return t.freed, false
	}
	t.all++
	t.taken[tenant]++
	return nil, true
}

func (t *buildTurns) free(tenant string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.all--
	if t.taken[tenant]--; t.taken[tenant] == 0 {
		delete(t.taken, tenant)
	}
	close(t.freed)
	t.freed = make(chan struct{})
}

// once waits until nobody else makes the image of this build, and returns how to let the next one in.
func (t *buildTurns) once(ctx context.Context, build string) (done func(), err error) {
	t.mu.Lock()
	b := t.alone[build]
	if b == nil {
		b = &oneBuild{token: make(chan struct{}, 1)}
		t.alone[build] = b
	}
	b.users++
	t.mu.Unlock()
	leave := func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if b.users--; b.users == 0 {
			delete(t.alone, build)
		}
	}
	select {
	case b.token <- struct{}{}:
		return func() { <-b.token; leave() }, nil
	case <-ctx.Done():
		leave()
		return nil, ctx.Err()
	}
}
