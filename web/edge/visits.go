package edge

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"sandyard/jobs/loop"
	"sandyard/models"
)

const (
	// askEvery is how often open visits are asked whether they may go on.
	askEvery   = time.Second
	askTimeout = 10 * time.Second
	// A worker whose lease has been over for so long, asked so many times in a row, will not answer any more. One that
	// only had no database for a while renews its lease at once.
	silentLease = 3 * time.Second
	silentAsked = 4
	// silentOpen is silentAsked for a stream that is open: it may have nothing to say, and costs more to lose.
	silentOpen = 10
)

// Why a visit ends before it is over.
var (
	errRevoked = errors.New("the access of this stream was revoked")
	errSilent  = errors.New("the sandbox's worker is dead")
)

// visit is a request that was let in, for as long as it lasts.
type visit struct {
	route    models.Route
	port     uint16
	by       right
	refuse   func(w http.ResponseWriter, err error) // of a call to the inside
	answered atomic.Bool                            // its answer has begun
	silent   int                                    // how often in a row its worker was found silent
	end      context.CancelCauseFunc
}

type visitKey struct{}

func visitOf(ctx context.Context) *visit {
	if v, ok := ctx.Value(visitKey{}).(*visit); ok {
		return v
	}
	return &visit{}
}

// visits are those under way.
type visits struct {
	store *models.Store
	log   *slog.Logger
	mu    sync.Mutex
	open  map[*visit]struct{}
}

func newVisits(store *models.Store, log *slog.Logger) *visits {
	return &visits{store: store, log: log, open: map[*visit]struct{}{}}
}

// begin returns the request as that of a visit, which lasts until leave is called.
func (s *visits) begin(r *http.Request, v *visit) (_ *http.Request, leave func()) {
	ctx, cancel := context.WithCancelCause(context.WithValue(r.Context(), visitKey{}, v))
	v.end = cancel
	s.mu.Lock()
	s.open[v] = struct{}{}
	s.mu.Unlock()
	return r.WithContext(ctx), func() {
		s.mu.Lock()
		delete(s.open, v)
		s.mu.Unlock()
		cancel(nil)
	}
}

// watch ends visits that may not go on, until the life ends.
func (s *visits) watch(ctx context.Context, life *loop.Life) {
	ctx, cancel := life.Context(ctx)
	defer cancel()
	life.Every(askEvery, nil, func() {
		if err := s.ask(ctx); err != nil && ctx.Err() == nil {
			s.log.WarnContext(ctx, "open streams not checked", "error", err)
		}
	})
}

func (s *visits) ask(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	all := s.list()
	if len(all) == 0 {
		return nil
	}
	ids := map[string]bool{}
	for _, v := range all {
		ids[v.route.SandboxID] = true
	}
	list := make([]string, 0, len(ids))
	for id := range ids {
		list = append(list, id)
	}
	found, err := s.store.Routes(ctx, list)
	if err != nil {
		return err
	}
	now := map[string]models.Route{}
	for _, r := range found {
		now[r.SandboxID] = r
	}
	for _, v := range all {
		v.judge(now[v.route.SandboxID])
	}
	return nil
}

func (s *visits) list() []*visit {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]*visit, 0, len(s.open))
	for v := range s.open {
		all = append(all, v)
	}
	return all
}

// judge ends a visit that nothing lets in any more, or whose worker is gone, though its machine may still take what it
// is sent: such as one that was stopped.
func (v *visit) judge(now models.Route) {
	if !v.by.holds(now, v.port) {
		v.end(errRevoked)
		return
	}
	gone := now.Gateway != v.route.Gateway || time.Duration(now.SilentMS)*time.Millisecond > silentLease
	if !gone {
		v.silent = 0
		return
	}
	most := silentAsked
	if v.answered.Load() {
		most = silentOpen
	}
	if v.silent++; v.silent >= most {
		v.end(errSilent)
	}
}
