package worker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"sandyard/jobs/kind"
	"sandyard/models"
	"sandyard/providers"
)

const (
	// startName names a template's start command in its sandbox: started at most once, whoever tries.
	startName = "start"
	// startOutput is kept of what it writes.
	startOutput = 256 << 10
	// One look whether a sandbox is ready, and the time between two of them.
	probeTimeout = 5 * time.Second
	probePause   = 50 * time.Millisecond
	probeRest    = time.Second
)

// comeUp runs the template's start command in a new sandbox and waits until its programs are ready.
func (a *attempt) comeUp(ctx context.Context, s kind.Spec) error {
	limit := kind.ReadyTimeout(models.Definition{StartCommand: s.Start, Ready: s.Ready})
	if limit == 0 {
		return nil
	}
	a.slot.Rest()
	sb, err := a.open(ctx)
	if err != nil {
		return err
	}
	u := &startup{inside: sb, spec: s, try: a.job.Attempt}
	own, cancel := context.WithTimeoutCause(ctx, limit, errNotReady)
	defer cancel()
	err = u.run(own)
	if err != nil && errors.Is(context.Cause(own), errNotReady) && ctx.Err() == nil {
		err = providers.NotReady.Errorf(
			"the template's programs were not ready within %v (%v); check its start command and its readiness probe",
			limit,
			u.why,
		)
	}
	return err
}

var errNotReady = errors.New("not ready in time")

// startup is the coming up of one sandbox's programs.
type startup struct {
	inside providers.Sandbox
	spec   kind.Spec
	try    int   // of the job
	looks  int   // at readiness
	why    error // it was not ready at the last look
}

func (u *startup) run(ctx context.Context) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	if u.spec.Start != "" {
		cmd := providers.Command{Name: startName, Shell: u.spec.Start, MaxOutput: startOutput}
		starter, ok := u.inside.(providers.Starter)
		if !ok {
			return providers.NotSupported.Errorf("this provider cannot run a template's start command")
		}
		if err := starter.Start(ctx, cmd); err != nil {
			return err
		}
		watched := make(chan struct{})
		go func() {
			defer close(watched)
			u.watch(ctx, cmd, stop)
		}()
		defer func() { stop(nil); <-watched }()
	}
	if u.spec.Ready == nil {
		return nil
	}
	return u.await(ctx)
}

// watch ends the wait when the start command fails. One that exits 0 may have left its programs in the background.
func (u *startup) watch(ctx context.Context, cmd providers.Command, stop context.CancelCauseFunc) {
	res, err := u.inside.Run(ctx, cmd)
	if err == nil && (res.ExitCode != 0 || res.Signal != "") {
		stop(
			providers.NotReady.Errorf(
				"the template's start command ended with exit code %d: %s",
				res.ExitCode,
				lastWords(res),
			),
		)
	}
}

// lastWords is the end of what a command wrote, for an error's text.
func lastWords(res providers.Result) string {
	text := strings.TrimSpace(string(res.Stdout) + "\n" + string(res.Stderr))
	if cut := len(text) - 1000; cut > 0 {
		text = "…" + text[cut:]
	}
	return strings.ToValidUTF8(strings.ReplaceAll(text, "\x00", ""), "\uFFFD")
}

// await looks until the sandbox is ready.
func (u *startup) await(ctx context.Context) error {
	pause := probePause
	for {
		ready, err := u.look(ctx)
		if ready {
			return nil
		}
		if err != nil && ctx.Err() == nil {
			u.why = err
		}
		if gone := providers.AsError(err).Class; err != nil && ctx.Err() == nil &&
			(gone == providers.Lost || gone == providers.NotFound) {
			return err
		}
		select {
		case <-time.After(pause):
			pause = min(pause*2, probeRest)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// look says whether the sandbox is ready now, and if not, why.
func (u *startup) look(ctx context.Context) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	u.looks++
	p := u.spec.Ready
	switch {
	case p.HTTP != nil:
		return u.get(ctx, *p.HTTP)
	case p.TCP != nil:
		c, err := u.dial(ctx, p.TCP.Port)
		if err != nil {
			return false, err
		}
		return true, c.Close()
	}
	name := fmt.Sprintf("ready-%d-%d", u.try, u.looks)
	res, err := u.inside.Run(
		ctx,
		providers.Command{Name: name, Shell: p.Command, Timeout: probeTimeout, MaxOutput: 4 << 10},
	)
	if err != nil {
		return false, err
	}
	if res.ExitCode != 0 {
		return false, fmt.Errorf("the probe command exited with code %d: %s", res.ExitCode, lastWords(res))
	}
	return true, u.inside.Forget(ctx, name)
}

func (u *startup) dial(ctx context.Context, port int) (net.Conn, error) {
	d, ok := u.inside.(interface {
		DialPort(ctx context.Context, port uint16) (net.Conn, error)
	})
	if !ok {
		return nil, providers.NotSupported.Errorf(
			"this provider does not support access to ports; use a command as the template's probe",
		)
	}
	return d.DialPort(ctx, uint16(port))
}

func (u *startup) get(ctx context.Context, p models.HTTPProbe) (bool, error) {
	transport := &http.Transport{
		DisableKeepAlives: true,
		DialContext:       func(ctx context.Context, _, _ string) (net.Conn, error) { return u.dial(ctx, p.Port) },
	}
	web := &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	req, err := http.NewRequestWithContext(
		ctx,
		http.MethodGet,
		"http://localhost:"+strconv.Itoa(p.Port)+"/"+strings.TrimPrefix(p.Path, "/"),
		nil,
	)
	if err != nil {
		return false, err
	}
	answer, err := web.Do(req)
	if err != nil {
		return false, err
	}
	if answer.StatusCode >= 400 {
		err = fmt.Errorf("the probe got the response %s", answer.Status)
	}
	return err == nil, errors.Join(err, answer.Body.Close())
}
