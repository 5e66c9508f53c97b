package mcp

import (
	"context"
	"errors"

	"sandyard/cache"
	"sandyard/models"
	"sandyard/web/middleware"
)

// maxKnown is how many sessions' sandboxes are remembered, so that the next call need not look for them. That is only a
// guess: the submission finds out whether the sandbox still takes work, and as long as it does, no other has the
// session's key.
const maxKnown = 4096

// inBox calls work with the sandbox of a call, whose first act is to submit a job. Where that finds that the remembered
// sandbox takes no work any more, nothing was done, and work is called again with the one that there is now.
func (s *Server) inBox(ctx context.Context, c *call, named string, work func(box string) error) error {
	session := middleware.RequestOf(ctx).Tenant + "\n" + c.session.key()
	if box := s.known.Get(session); named == "" && box != nil {
		err := work(box.Value())
		if ended := (*models.EndedError)(nil); !errors.As(err, &ended) && !errors.Is(err, models.ErrNotFound) {
			return err
		}
		s.known.Delete(session)
	}
	box, err := s.sandbox(ctx, c, named)
	if err == nil {
		err = work(box.ID)
	}
	if err == nil && named == "" {
		s.known.Set(session, box.ID, cache.Life)
	}
	return err
}
