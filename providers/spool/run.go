package spool

import (
	"cmp"
	"context"
	"errors"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"sandyard/providers"
)

const (
	endPatience   = 20 * time.Second // of a call that waits for a command which was ended
	startedAfter  = time.Second      // when a command that has not ended is asked for
	earlyPatience = time.Second      // before a command is ended that had not begun by its timeout
	maxLost       = 3                // calls for a command that runs on after its time
)

// signalOf names the signal that a shell means by an exit code. A program that exits with such a code by itself looks
// the same.
func signalOf(code int64) string {
	if code <= 128 || code > 128+64 {
		return ""
	}
	return unix.SignalName(syscall.Signal(code - 128))
}

// Run implements providers.Commands. Where nothing goes wrong it is one script, one more for a command that takes
// longer than a second and has a Started, and one more for each Patience of a backend that has one.
func (s *Spool) Run(ctx context.Context, cmd providers.Command) (providers.Result, error) {
	if err := check(cmd); err != nil {
		return providers.Result{}, err
	}
	text, uploads := s.start(cmd, true)
	if err := s.put(ctx, uploads); err != nil {
		return providers.Result{}, err
	}
	r := &running{s: s, cmd: cmd, text: text, began: time.Now()}
	for lost := 0; lost < maxLost; {
		asked := time.Now()
		a, err := r.call(ctx)
		r.text = s.attach(cmd)
		switch {
		case errors.Is(err, errGivenUp):
			lost++
			continue // the next call looks how it stands
		case err != nil:
			return providers.Result{}, err
		case a.state == "ended":
			r.started()
			return a.result(s, cmd)
		case a.state != "running":
			return providers.Result{}, providers.Internal.Errorf("the sandbox did not report the state of the command")
		}
		r.started()
		if r.late() { // and yet it runs
			lost++
		}
		s.rest(ctx, asked)
	}
	return providers.Result{}, providers.Unavailable.Errorf("the sandbox did not end a command that it had killed")
}

// rest waits after a call that says that a command runs, and has not waited for its end as it should: the backend is
// not asked without a break, whatever the sandbox says.
func (s *Spool) rest(ctx context.Context, asked time.Time) {
	t := newTimer(true, min(cmp.Or(s.o.Patience, patience), startedAfter)-time.Since(asked))
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// errGivenUp ends a call that did not return after the command's end.
var errGivenUp = errors.New("the call did not return")

// running is one Run under way.
type running struct {
	s     *Spool
	cmd   providers.Command
	text  string
	began time.Time
	told  bool
}

func (r *running) started() {
	if r.cmd.Started != nil && !r.told {
		r.told = true
		r.cmd.Started()
	}
}

// late says whether the command has had its time.
func (r *running) late() bool { return r.cmd.Timeout > 0 && time.Since(r.began) >= r.cmd.Timeout }

type answer struct {
	said said
	err  error
}

// call makes one call for the command, and looks after its time meanwhile.
func (r *running) call(ctx context.Context) (said, error) {
	ctx, letGo := context.WithCancel(ctx)
	answers := make(chan answer, 1)
	go func() {
		a, err := r.s.ask(ctx, r.cmd.User, r.text, 2*kept(r.cmd))
		answers <- answer{a, err}
	}()
	defer func() { letGo() }()
	over, asked := newTimer(
		r.cmd.Timeout > 0,
		r.cmd.Timeout-time.Since(r.began),
	), newTimer(
		r.cmd.Started != nil && !r.told,
		startedAfter,
	)
	defer over.Stop()
	defer asked.Stop()
	ended, full := false, 0
	for {
		select {
		case a := <-answers:
			if a.err == nil && a.said.state == "running" && !ended && r.late() { // it was faster than the clock
				_, a.err = r.s.end(ctx, r.cmd.Name, r.cmd.User, "timeout", r.cmd.Timeout)
			}
			return a.said, a.err
		case <-asked.C:
			if a, err := r.s.ask(ctx, r.cmd.User, r.s.head(r.cmd.Name)+statusScript, 0); err == nil && a.state == "running" {
				r.started()
			} else {
				asked.Reset(startedAfter)
			}
		case <-over.C:
			if ended {
				letGo()
				<-answers
				return said{}, errGivenUp
			}
			a, err := r.s.end(ctx, r.cmd.Name, r.cmd.User, "timeout", r.cmd.Timeout)
			switch {
			case errors.Is(err, &providers.Error{Class: providers.Busy}) && full < maxLost: // it has killed something
				full++
				over.Reset(earlyPatience)
			case err != nil:
				letGo()
				<-answers
				return said{}, err
			case a.state == "early":
				over.Reset(earlyPatience)
			default:
				ended = true
				over.Reset(endPatience)
			}
		}
	}
}

// newTimer is one that never fires where it is not wanted.
func newTimer(wanted bool, d time.Duration) *time.Timer {
	t := time.NewTimer(max(d, 0))
	if !wanted {
		t.Stop()
	}
	return t
}

// end kills a command's processes; one that has run for less than least is given the rest of it.
func (s *Spool) end(ctx context.Context, name, user, why string, least time.Duration) (said, error) {
	text := s.head(name) + "sy_why=" + why + " sy_least=" + number(hundredths(least)) + "\n" + killScript
	return s.askOwner(ctx, user, text)
}

// askOwner asks again as the user whose command it is.
func (s *Spool) askOwner(ctx context.Context, user, text string) (said, error) {
	a, err := s.ask(ctx, user, text, 0)
	if err == nil && a.state == "owner" && len(a.words) == 1 && owners.MatchString(a.words[0]) {
		a, err = s.ask(ctx, a.words[0], text, 0)
	}
	return a, err
}

// Kill implements providers.Commands.
func (s *Spool) Kill(ctx context.Context, name string) error {
	if !names.MatchString(name) {
		return nil
	}
	_, err := s.end(ctx, name, "", "kill", 0)
	return err
}

// Forget implements providers.Commands. A command that is still running is providers.Busy.
func (s *Spool) Forget(ctx context.Context, name string) error {
	if !names.MatchString(name) {
		return nil
	}
	a, err := s.askOwner(ctx, "", s.head(name)+forgetScript)
	if err == nil && a.state == "running" {
		err = providers.Busy.Errorf("the command is still running")
	}
	return err
}

// Start implements providers.Starter.
func (s *Spool) Start(ctx context.Context, cmd providers.Command) error {
	if err := check(cmd); err != nil {
		return err
	}
	cmd.Timeout, cmd.Stdin = 0, nil
	text, uploads := s.start(cmd, false)
	if err := s.put(ctx, uploads); err != nil {
		return err
	}
	a, err := s.ask(ctx, cmd.User, text, 2*kept(cmd))
	if err == nil && a.state == "ended" {
		_, err = a.result(s, cmd)
	}
	return err
}
