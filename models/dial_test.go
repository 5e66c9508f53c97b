package models_test

import (
	"context"
	"errors"
	"testing"

	"sandyard/dev/faultproxy"
	"sandyard/dev/testenv"
	"sandyard/models"
	"sandyard/models/pg"
)

// TestSilentDatabaseIsGivenUp: a read that nobody has given a deadline ends where the server or the network swallows it,
// and its connection does not stay lost.
func TestSilentDatabaseIsGivenUp(t *testing.T) {
	testenv.Long(t, "it takes many seconds")
	t.Parallel()
	for name, f := range map[string]faultproxy.Fault{"unheard": faultproxy.Hang, "unanswered": faultproxy.HangAfter} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, proxy := openWired(t, 1)
			read := func() error {
				_, err := s.Job(context.Background(), "nobody", "job_none")
				return err
			}
			decide, struck := strike("where tenant_id = $1 and id = $2", 1, f)
			proxy.On(decide)
			if err := read(); !pg.IsUnavailable(err) || struck.Load() != 1 {
				t.Errorf("the read is told %v, %d were struck", err, struck.Load())
			}
			proxy.On(nil)
			if err := read(); !errors.Is(err, models.ErrNotFound) {
				t.Errorf("the next read is told %v", err)
			}
		})
	}
}
