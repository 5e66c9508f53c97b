package worker

import (
	"context"
	"fmt"
	"sync"
	"time"

	"sandyard/models"
)

const (
	// maxBuildLog is kept of a build's log; the rest is counted and dropped.
	maxBuildLog = 1 << 20
	// buildLogChunk and buildLogDelay are when what was written becomes visible.
	buildLogChunk = 16 << 10
	buildLogDelay = 250 * time.Millisecond
)

// buildLog writes the log of a build, or of what prepares a sandbox, into its rows. A nil one drops everything.
type buildLog struct {
	save  func(data []byte) error
	quit  chan struct{}
	loop  sync.WaitGroup
	mu    sync.Mutex
	open  []byte
	kept  int
	lost  int64
	write func(error)
}

func (a *attempt) openBuildLog(ctx context.Context, build string) *buildLog {
	return a.openLog(ctx, func(ctx context.Context, h models.AttemptRef, data []byte) error {
		return a.w.store.AppendBuildLog(ctx, h, build, data)
	})
}

// openLog opens a log whose pieces are saved by save, as long as the attempt has its job.
func (a *attempt) openLog(ctx context.Context, save func(context.Context, models.AttemptRef, []byte) error) *buildLog {
	ctx = context.WithoutCancel(ctx)
	l := &buildLog{
		quit: make(chan struct{}),
		save: func(data []byte) error {
			ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
			defer cancel()
			return save(ctx, a.held(), data)
		},
		write: func(err error) { a.log.Warn("part of a log lost", "error", err) },
	}
	l.loop.Go(l.flushLoop)
	return l
}

// Write implements io.Writer. It never fails: a build does not end for its log.
func (l *buildLog) Write(b []byte) (int, error) {
	if l == nil {
		return len(b), nil
	}
	l.mu.Lock()
	room := max(0, min(len(b), maxBuildLog-l.kept))
	l.open, l.kept, l.lost = append(l.open, b[:room]...), l.kept+room, l.lost+int64(len(b)-room)
	full := len(l.open) >= buildLogChunk
	l.mu.Unlock()
	if full {
		l.flush()
	}
	return len(b), nil
}

func (l *buildLog) flushLoop() {
	tick := time.NewTicker(buildLogDelay)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			l.flush()
		case <-l.quit:
			return
		}
	}
}

func (l *buildLog) flush() {
	l.mu.Lock()
	defer l.mu.Unlock() // also while it is saved: the pieces stay in their order
	if len(l.open) == 0 {
		return
	}
	if err := l.save(l.open); err != nil {
		l.write(err)
	}
	l.open = nil
}

func (l *buildLog) close() {
	close(l.quit)
	l.loop.Wait()
	if l.lost > 0 {
		l.mu.Lock()
		l.open = append(l.open, fmt.Sprintf("\n… %d more bytes were dropped\n", l.lost)...)
		l.mu.Unlock()
	}
	l.flush()
}
