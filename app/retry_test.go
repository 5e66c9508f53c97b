package app

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestAwait asks a server that starts late, one that never does, one that refuses, and one that nobody waits for any
// more.
func TestAwait(t *testing.T) {
	t.Parallel()
	silent, refused := errors.New("no answer"), errors.New("refused")
	for name, c := range map[string]struct {
		after   time.Duration // of the start, it answers with end
		end     error
		stop    time.Duration // the process is told to stop; 0 = never
		want    error
		says    string
		took    time.Duration
		tries   int
		warning int
	}{
		"late":    {after: 12 * time.Second, took: 12 * time.Second, tries: 25, warning: 3},
		"never":   {after: time.Hour, want: silent, says: "gave up after 30s: no answer", took: patience, tries: 60, warning: 6},
		"refuses": {after: time.Second, end: refused, want: refused, took: time.Second, tries: 3, warning: 1},
		"stopped": {
			after: time.Hour, stop: 1200 * time.Millisecond, want: context.Canceled, took: 1200 * time.Millisecond,
			tries: 3, warning: 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if c.stop > 0 {
					time.AfterFunc(c.stop, cancel)
				}
				var log bytes.Buffer
				tries, began := 0, time.Now()
				hopeless := func(err error) bool { return errors.Is(err, refused) }
				open := func(context.Context) (int, error) {
					if tries++; time.Since(began) < c.after {
						return 0, silent
					}
					return 42, c.end
				}
				got, err := await(ctx, slog.New(slog.NewTextHandler(&log, nil)), "it", hopeless, open)
				if !errors.Is(err, c.want) || err != nil && !strings.Contains(err.Error(), c.says) || err == nil && got != 42 {
					t.Errorf("%d, %v", got, err)
				}
				if took := time.Since(began); took != c.took || tries < c.tries || tries > c.tries+1 { // the end may be a try
					t.Errorf("%d tries in %v", tries, took)
				}
				n := strings.Count(log.String(), "it does not answer yet")
				if n < c.warning || n > c.warning+tries-c.tries {
					t.Errorf("%d warnings: %s", n, &log)
				}
			})
		})
	}
}
