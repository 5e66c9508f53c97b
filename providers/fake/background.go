package fake

import (
	"context"
	"slices"
	"time"

	"sandyard/providers"
)

// OpBackground is every call of providers.Background and providers.Processes.
const OpBackground Op = "background"

// lookEvery is how often a call that waits for output looks for it.
const lookEvery = 5 * time.Millisecond

// Launch implements providers.Background.
func (s *sandbox) Launch(ctx context.Context, cmd providers.Command) (info providers.Exec, err error) {
	err = s.inside(ctx, OpBackground, func(b *box) error {
		e, err := s.p.state.launch(b, cmd)
		if err != nil {
			return err
		}
		b.mu.Lock()
		e.behind = true
		b.mu.Unlock()
		if cmd.Timeout > 0 {
			s.p.state.working.Go(func() { e.expire(cmd.Timeout) })
		}
		info = e.info()
		return nil
	})
	return info, err
}

func (e *execution) expire(limit time.Duration) {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-timer.C:
		e.timeOut()
	case <-e.done:
	case <-e.box.over:
	}
}

// Execs implements providers.Background.
func (s *sandbox) Execs(ctx context.Context) (list []providers.Exec, err error) {
	err = s.inside(ctx, OpBackground, func(b *box) error {
		b.mu.Lock()
		var found []*execution
		for _, e := range b.execs {
			if e.behind && !e.forgot {
				found = append(found, e)
			}
		}
		b.mu.Unlock()
		slices.SortFunc(found, func(a, b *execution) int { return a.begun.Compare(b.begun) })
		for _, e := range found {
			list = append(list, e.info())
		}
		return nil
	})
	return list, err
}

// Exec implements providers.Background.
func (s *sandbox) Exec(ctx context.Context, name string, wait time.Duration) (info providers.Exec, err error) {
	err = s.command(ctx, name, func(e *execution) error {
		return s.until(ctx, e, wait, func() bool { info = e.info(); return !info.Running })
	})
	if err != nil {
		return providers.Exec{}, err
	}
	return info, nil
}

// Output implements providers.Background.
func (s *sandbox) Output(ctx context.Context, name string, q providers.OutputQuery) (out providers.Output, err error) {
	err = s.command(ctx, name, func(e *execution) error {
		return s.until(ctx, e, q.Wait, func() bool {
			out.Exec = e.info() // before the output: of one that has ended nothing is added
			out.Data, out.Begin = e.output(q), q.Offset
			return len(out.Data) > 0 || !out.Exec.Running
		})
	})
	return out, err
}

func (e *execution) output(q providers.OutputQuery) []byte {
	e.box.mu.Lock()
	defer e.box.mu.Unlock()
	kept := map[providers.Stream][]byte{providers.Stdout: e.out.kept, providers.Stderr: e.errs.kept, providers.Report: e.report.kept}[q.Stream]
	rest := kept[min(q.Offset, int64(len(kept))):]
	if q.Max > 0 && len(rest) > q.Max {
		rest = rest[:q.Max]
	}
	return slices.Clone(rest)
}

// Feed implements providers.Background.
func (s *sandbox) Feed(ctx context.Context, name string, in providers.Input) (fed providers.Fed, err error) {
	err = s.command(ctx, name, func(e *execution) error {
		over := !e.info().Running
		e.box.mu.Lock()
		defer e.box.mu.Unlock()
		known, again := e.fed[in.ID]
		switch {
		case again:
			fed = known.told()
			return nil
		case over:
			return providers.ExecEnded.Errorf("the command has ended")
		case !e.cmd.StdinOpen || e.inputOver:
			return providers.Invalid.Errorf("the command takes no input")
		}
		if e.fed == nil {
			e.fed = map[string]fedAt{}
		}
		e.fed[in.ID], e.inputOver = fedAt{time.Now(), e.totals()}, in.EOF
		fed = e.fed[in.ID].told()
		e.input = append(e.input, in.Data...)
		return nil
	})
	return fed, err
}

// Settle implements providers.Background.
func (s *sandbox) Settle(ctx context.Context, name, id string) (fed providers.Fed, err error) {
	err = s.command(ctx, name, func(e *execution) error {
		e.box.mu.Lock()
		defer e.box.mu.Unlock()
		at, known := e.fed[id]
		if !known {
			return providers.ErrNoExec
		}
		fed = at.told()
		fed.After = e.totals()
		return nil
	})
	return fed, err
}

// Signal implements providers.Background: every signal ends the command.
func (s *sandbox) Signal(ctx context.Context, name, id, signal string) error {
	return s.command(ctx, name, func(e *execution) error {
		running := e.info().Running
		e.box.mu.Lock()
		again := e.heard[id]
		if running && !again {
			if e.heard == nil {
				e.heard = map[string]bool{}
			}
			e.heard[id], e.signalled = true, signal
		}
		e.box.mu.Unlock()
		switch {
		case again:
			return nil
		case !running:
			return providers.ExecEnded.Errorf("the command has ended")
		}
		e.kill()
		return nil
	})
}

func (s *sandbox) command(ctx context.Context, name string, do func(*execution) error) error {
	return s.inside(ctx, OpBackground, func(b *box) error {
		b.mu.Lock()
		e := b.named(name)
		b.mu.Unlock()
		if e == nil {
			return providers.ErrNoExec
		}
		return do(e)
	})
}

// named is the command of a name, or that was given an input of it. The caller holds the lock.
func (b *box) named(name string) *execution {
	for own, e := range b.execs {
		if _, fed := e.fed[name]; (own == name || fed) && !e.forgot {
			return e
		}
	}
	return nil
}

// until asks again until what is waited for has come, or the wait is over.
func (s *sandbox) until(ctx context.Context, e *execution, wait time.Duration, come func() bool) error {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for halt := e.box.halt(); !come(); {
		select {
		case <-halt:
			return providers.ErrPaused
		case <-e.done:
			come()
			return nil
		case <-tick.C:
		case <-timer.C:
			return nil
		case <-ctx.Done():
			return detached(ctx.Err())
		case <-s.p.closed:
			return s.p.usable(ctx)
		case <-e.box.over:
			return providers.ErrLost
		}
	}
	return nil
}

func (e *execution) info() providers.Exec {
	e.box.mu.Lock()
	defer e.box.mu.Unlock()
	i := providers.Exec{
		ID: e.cmd.Name, Running: true, Pid: e.pid, StdoutBytes: e.out.total, StderrBytes: e.errs.total,
		AgeMS: time.Since(e.begun).Milliseconds(), DurationMS: time.Since(e.begun).Milliseconds(),
	}
	select {
	case <-e.done:
		i.Running, i.ExitCode, i.Signal, i.OOMKilled = false, &e.res.ExitCode, e.res.Signal, e.res.OOMKilled
		i.TimedOut, i.DurationMS = e.timed, e.res.Duration.Milliseconds()
	default:
	}
	return i
}

// copyInput is fake:input: it copies what is fed to stdout, until the input ends.
func (e *execution) copyInput(string) error {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		e.box.mu.Lock()
		got, over := e.input, e.inputOver
		e.input = nil
		e.box.mu.Unlock()
		if err := e.print(&e.out, got); err != nil || over {
			return err
		}
		select {
		case <-tick.C:
		case <-e.ctx.Done():
			return nil
		case <-e.box.over:
			e.stopped = true
			return nil
		}
	}
}

// print writes to an output that others may be reading.
func (e *execution) print(to *capped, b []byte) error {
	e.box.mu.Lock()
	defer e.box.mu.Unlock()
	return to.write(b)
}
