package mcp

import (
	"context"
	"errors"
	"sync"

	"sandyard/models"
	"sandyard/web/middleware"
)

// maxKnown is how many sessions' sandboxes are remembered.
const maxKnown = 4096

// known remembers which sandbox a session worked in last, so that the next call need not look for it. It is only a
// guess: the submission finds out whether the sandbox still takes work, and as long as it does, no other has the
// session's key.
type known struct {
	mu sync.Mutex
	by map[string]string // by tenant and key
}

func (k *known) get(session string) string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.by[session]
}

func (k *known) put(session, box string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.by == nil || len(k.by) >= maxKnown {
		k.by = map[string]string{} // the others are looked for once more
	}
	k.by[session] = box
}

func (k *known) forget(session string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.by, session)
}

// inBox calls work with the sandbox of a call, whose first act is to submit a job. Where that finds that the remembered
// sandbox takes no work any more, nothing was done, and work is called again with the one that there is now.
func (s *Server) inBox(ctx context.Context, c *call, named string, work func(box string) error) error {
	session := middleware.RequestOf(ctx).Tenant + "\n" + c.session.key()
	if box := s.known.get(session); named == "" && box != "" {
		err := work(box)
		if ended := (*models.EndedError)(nil); !errors.As(err, &ended) && !errors.Is(err, models.ErrNotFound) {
			return err
		}
		s.known.forget(session)
	}
	box, err := s.sandbox(ctx, c, named)
	if err == nil {
		err = work(box.ID)
	}
	if err == nil && named == "" {
		s.known.put(session, box.ID)
	}
	return err
}
