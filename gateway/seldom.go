package gateway

import (
	"context"
	"log/slog"
	"time"

	"golang.org/x/time/rate"
)

// Seldom logs what callers from outside can bring about as often as they like: one line a second is a warning, the
// others are for debugging. Its method may be called concurrently.
type Seldom struct {
	log       *slog.Logger
	sometimes rate.Sometimes
}

// NewSeldom returns a Seldom, one for each message.
func NewSeldom(log *slog.Logger) *Seldom {
	return &Seldom{log: log, sometimes: rate.Sometimes{Interval: time.Second}}
}

// Warn logs one line.
func (s *Seldom) Warn(ctx context.Context, message string, attributes ...any) {
	level := slog.LevelDebug
	s.sometimes.Do(func() { level = slog.LevelWarn })
	s.log.Log(ctx, level, message, attributes...)
}
