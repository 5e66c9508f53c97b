package codecontext

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"sandyard/providers"
)

const (
	// look is how long one question about the cell waits for an answer.
	look = 30 * time.Second
	// grace is how long a cell has to stop when it is interrupted, before its context is killed.
	grace = 5 * time.Second
	// again is how often an interrupt is repeated meanwhile, for code that was just where it could not see it.
	again = 2 * time.Second
	// startLimit is how long a context has to start.
	startLimit = time.Minute
	// maxReport is how much may be told of one cell, in bytes: many times of what is kept.
	maxReport = 64 << 20
	// notFound is the exit code of a driver whose interpreter is missing.
	notFound = 127
)

// follower waits for the end of one cell.
type follower struct {
	box     Box
	cell    Cell
	once    bool   // it is interrupted once
	context string // the command that it is
	fed     providers.Fed
	begun   time.Time // of the cell; at first of its context's start
	report  report

	waited      bool            // for the cell's report
	dead        *providers.Exec // the context, when it ended under the cell
	forgotten   bool            // and nothing is known of it any more
	timedOut    bool
	interrupted time.Time
	signals     int
	killed      bool
	flooded     bool // more was told of it than a driver tells
}

// follow returns when the cell is done, or its context has ended.
func (f *follower) follow(ctx context.Context, stop <-chan struct{}) error {
	for offset := f.fed.Before[providers.Report]; ; {
		out, err := f.look(ctx, stop, offset)
		switch {
		case isClass(err, providers.NoExec):
			f.dead, f.forgotten = &providers.Exec{}, true
			return nil
		case err != nil:
			return err
		case out.Begin > offset:
			f.report.gap()
		}
		offset = out.Begin + int64(len(out.Data))
		if f.add(out.Data) {
			return nil
		}
		if !out.Exec.Running && len(out.Data) == 0 {
			f.dead = &out.Exec
			return nil
		}
		if f.flooded = offset-f.fed.Before[providers.Report] > maxReport; f.flooded && !f.killed {
			err = f.kill(ctx)
		} else {
			err = f.press(ctx, stop)
		}
		if err != nil {
			return err
		}
	}
}

// add takes a piece of the report. The cell's time begins when it does, as far as that can be seen.
func (f *follower) add(b []byte) (done bool) {
	before := f.report.begun
	done = f.report.add(b)
	if !before && f.report.begun && (!f.cell.Again || f.waited) {
		f.begun = time.Now()
	}
	f.waited = true
	return done
}

// behind says whether the cell was given to a context that had started, where another may still be running.
func (f *follower) behind() bool { return f.fed.Before[providers.Report] > 0 }

// look waits for more of the report, until there is something to do about the cell.
func (f *follower) look(ctx context.Context, stop <-chan struct{}, offset int64) (providers.Output, error) {
	outer := ctx
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	wait := min(look, max(0, time.Until(f.due())))
	if f.report.begun && f.interrupted.IsZero() {
		go func() { // ends with the look
			select {
			case <-stop:
				cancel()
			case <-ctx.Done():
			}
		}()
	}
	out, err := f.box.Output(
		ctx,
		f.context,
		providers.OutputQuery{Stream: providers.Report, Offset: offset, Wait: wait},
	)
	if err != nil && ctx.Err() != nil && outer.Err() == nil { // stopped
		return providers.Output{Begin: offset, Exec: providers.Exec{Running: true}}, nil
	}
	return out, err
}

// due is when the cell must be stopped, or killed.
func (f *follower) due() time.Time {
	switch {
	case f.killed:
		return time.Now().Add(look)
	case !f.report.begun && f.behind():
		return time.Now().Add(look)
	case !f.report.begun:
		return f.begun.Add(startLimit)
	case !f.interrupted.IsZero():
		if f.once {
			return f.interrupted.Add(grace)
		}
		return f.interrupted.Add(min(time.Duration(f.signals)*again, grace))
	case f.cell.Timeout <= 0:
		return time.Now().Add(look)
	}
	return f.begun.Add(f.cell.Timeout)
}

// press stops a cell whose time is over, or that is not wanted any more.
func (f *follower) press(ctx context.Context, stop <-chan struct{}) error {
	if !f.report.begun {
		return f.start(ctx)
	}
	over := f.cell.Timeout > 0 && time.Since(f.begun) >= f.cell.Timeout
	select {
	case <-stop:
	default:
		if !over {
			return nil
		}
		f.timedOut = f.timedOut || f.interrupted.IsZero()
	}
	if f.interrupted.IsZero() {
		f.interrupted = time.Now()
	}
	switch since := time.Since(f.interrupted); {
	case f.killed:
		return nil
	case since >= grace:
		return f.kill(ctx)
	case f.signals > 0 && f.once:
		return nil
	case since >= time.Duration(f.signals)*again:
		f.signals++
		id := f.cell.ID + ".int" + strconv.Itoa(f.signals)
		return ignore(f.box.Signal(ctx, f.context, id, "SIGINT"), providers.ExecEnded, providers.NoExec)
	}
	return nil
}

// start gives up a context that does not start. Before it has, there is nobody to heed an interrupt.
func (f *follower) start(ctx context.Context) error {
	if f.killed || f.behind() || time.Since(f.begun) < startLimit {
		return nil
	}
	return f.kill(ctx)
}

func (f *follower) kill(ctx context.Context) error {
	f.killed = true
	return f.box.Kill(ctx, f.context)
}

func ignore(err error, classes ...providers.Class) error {
	if isClass(err, classes...) {
		return nil
	}
	return err
}

// missing says that the context could not start for lack of its interpreter.
func (f *follower) missing() bool {
	return f.dead != nil && !f.report.begun && f.dead.ExitCode != nil && *f.dead.ExitCode == notFound
}

// outcome is the cell's, with its output.
func (f *follower) outcome(ctx context.Context) (Outcome, error) {
	r := &f.report
	o := Outcome{
		Results: r.results, Cut: r.cut, Error: bounded(r.last.Error), ExitCode: r.last.ExitCode, Count: r.count,
		TimedOut: f.timedOut, Duration: time.Since(f.begun),
	}
	if f.dead != nil {
		o.StateLost, o.Error = true, f.death()
		o.ExitCode = f.dead.ExitCode
	}
	if f.forgotten {
		return o, nil
	}
	fed, err := f.box.Settle(ctx, f.context, f.cell.ID)
	if isClass(err, providers.NoExec) && f.dead != nil { // it has died before it was given the cell
		fed.After, err = [3]int64{f.dead.StdoutBytes, f.dead.StderrBytes}, nil
	}
	if err != nil {
		return o, ignore(err, providers.NoExec)
	}
	before := f.fed.Before
	o.StdoutBytes, o.StderrBytes = max(0, fed.After[0]-before[0]), max(0, fed.After[1]-before[1])
	o.Stdout, err = f.output(ctx, providers.Stdout, before[0], fed.After[0])
	if err == nil {
		o.Stderr, err = f.output(ctx, providers.Stderr, before[1], fed.After[1])
	}
	return o, err
}

// output reads the last bytes of a stream between two offsets.
func (f *follower) output(ctx context.Context, stream providers.Stream, from, to int64) ([]byte, error) {
	var all []byte
	for from = max(from, to-f.cell.MaxOutput); from < to; {
		out, err := f.box.Output(
			ctx,
			f.context,
			providers.OutputQuery{Stream: stream, Offset: from, Max: int(to - from)},
		)
		if err != nil || len(out.Data) == 0 {
			return all, ignore(err, providers.NoExec)
		}
		if out.Begin > from {
			all = nil // what comes before the gap is not the end
		}
		all = append(all, out.Data[:max(0, min(int64(len(out.Data)), to-out.Begin))]...)
		from = out.Begin + int64(len(out.Data))
	}
	return all, nil
}

// death says why the context has ended.
func (f *follower) death() *Error {
	const lost = "its state is lost, and the next cell starts a new one"
	e := &Error{Name: ContextDied}
	switch d := f.dead; {
	case f.killed && !f.report.begun:
		e.Name, e.Value = ContextKilled, fmt.Sprintf(
			"the context did not start within %v, so it was killed; try again",
			startLimit,
		)
	case f.flooded:
		e.Name, e.Value = ContextKilled, fmt.Sprintf(
			"the cell wrote more than %d MiB to its driver's report, so its context was killed; %s",
			maxReport>>20,
			lost,
		)
	case f.killed:
		e.Name, e.Value = ContextKilled, fmt.Sprintf(
			"the cell did not stop within %v when it was interrupted, so its context was killed; %s",
			grace,
			lost,
		)
	case f.forgotten:
		e.Value = "the context was deleted; " + lost
	case d.OOMKilled && d.Signal == "SIGKILL":
		e.Name, e.Value = OutOfMemory, "the kernel killed the context for lack of memory; "+lost
	case d.Signal != "":
		e.Value = fmt.Sprintf("the context was ended by %s; %s", d.Signal, lost)
	case d.ExitCode != nil:
		e.Value = fmt.Sprintf("the context ended with exit code %d; %s", *d.ExitCode, lost)
	}
	return e
}

// In returns the sandbox as one that runs cells.
func In(sb providers.Sandbox) (Box, error) {
	if box, ok := sb.(Box); ok {
		return box, nil
	}
	return nil, providers.NotSupported.Errorf(
		"this provider does not support background execs, which code contexts need",
	)
}
