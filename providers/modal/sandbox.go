package modal

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"

	vendor "github.com/modal-labs/modal-client/go"

	"sandyard/providers"
	"sandyard/providers/remote"
	"sandyard/providers/remote/scripted"
)

// sandbox is the inside of one that runs.
type sandbox struct {
	*scripted.Box

	p   *Provider
	id  string // ours
	box *vendor.Sandbox
}

var _ providers.Sandbox = (*sandbox)(nil)

// inside returns the inside of a sandbox that runs.
func (p *Provider) inside(id string, box *vendor.Sandbox, labels remote.Labels) *sandbox {
	workDir, home := labels.Dirs()
	s := &sandbox{p: p, id: id, box: box}
	s.Box = scripted.New(s, scripted.Options{
		ID: id, WorkDir: workDir, Home: home, Inline: maxInline, Patience: scriptPatience, Foreign: errNotModal, Log: p.log,
	})
	return s
}

// program is one that was started. Its output ends with the call's context.
type program struct {
	*vendor.ContainerProcess

	stop func() bool
}

// start runs a program and gives it its input, whole; nil = it reads none.
func (s *sandbox) start(ctx context.Context, argv []string, input []byte) (*program, error) {
	asking, stop := context.WithTimeout(ctx, remote.Patience)
	defer stop()
	run, err := s.box.Exec(asking, argv, &vendor.SandboxExecParams{Timeout: scriptLimit, Stderr: vendor.Ignore})
	if err != nil {
		return nil, err
	}
	if input != nil {
		fed := make(chan error, 1)
		go func() { fed <- feed(run.Stdin, input) }() // which no context ends
		select {
		case err = <-fed:
		case <-asking.Done():
			err = asking.Err()
		}
	}
	if err != nil {
		return nil, err
	}
	return &program{run, context.AfterFunc(ctx, func() { _ = run.Stdout.Close() })}, nil
}

func feed(to io.WriteCloser, input []byte) error {
	for part := range slices.Chunk(input, maxMessage) {
		if _, err := to.Write(part); err != nil {
			return err
		}
	}
	return to.Close()
}

// maxMessage is how much input one message holds.
const maxMessage = 1 << 20

// end lets go of a program, which may go on.
func (p *program) end() {
	p.stop()
	_ = p.Stdout.Close()
}

// Execute implements scripted.Backend. The line is input: Modal takes no arguments of more than 64 KiB.
func (s *sandbox) Execute(ctx context.Context, line string, most int64) (string, error) {
	ctx, end := s.p.calls.Begin(ctx, s.box.SandboxID)
	defer end()
	run, err := s.start(ctx, []string{"sh"}, []byte(line+"\n"))
	if err != nil {
		return "", s.Broken(ctx, err)
	}
	defer run.end()
	text, err := io.ReadAll(io.LimitReader(run.Stdout, most+1))
	switch {
	case err != nil || ctx.Err() != nil:
		return "", s.Broken(ctx, errors.Join(err, ctx.Err()))
	case int64(len(text)) > most:
		return "", errNotModal
	}
	return string(text), nil
}

// Download implements scripted.Backend. What is missing at the end of the file shows to who counts its bytes.
func (s *sandbox) Download(ctx context.Context, file string) (io.ReadCloser, int64, error) {
	ctx, end := s.p.calls.Begin(ctx, s.box.SandboxID)
	run, err := s.start(ctx, []string{"cat", "--", file}, nil)
	if err != nil {
		defer end()
		return nil, 0, s.Broken(ctx, err)
	}
	broken := func(err error) error { return s.Broken(ctx, err) }
	return scripted.Body{ReadCloser: run.Stdout, Broken: broken, End: func() { run.end(); end() }}, -1, nil
}

// Send implements scripted.Backend.
func (s *sandbox) Send(ctx context.Context, file string, data []byte) error {
	ctx, end := s.p.calls.Begin(ctx, s.box.SandboxID)
	defer end()
	run, err := s.start(ctx, []string{"sh", "-c", `cat 2>&1 >"$0"`, file}, data)
	if err != nil {
		return s.Broken(ctx, err)
	}
	defer run.end()
	said, err := io.ReadAll(io.LimitReader(run.Stdout, 4<<10))
	code := 0
	if err == nil {
		code, err = run.Wait(ctx, nil)
	}
	switch {
	case err != nil || ctx.Err() != nil:
		return s.Broken(ctx, errors.Join(err, ctx.Err()))
	case code == 0:
		return nil
	case strings.Contains(string(said), "o space left"):
		return providers.NoSpace.Errorf("the sandbox's disk is full")
	}
	return remote.Unavailable("not all of an upload has arrived in the sandbox", nil)
}

// Broken implements scripted.Backend. What cut a call knows more than the connection, and of a sandbox that does not
// answer Modal says how it stands.
func (s *sandbox) Broken(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return remote.GivenUp(ctx)
	}
	if own, ok := errors.AsType[*providers.Error](err); ok {
		return own
	}
	failed := translated("run a program in the sandbox", err)
	if remote.IsClass(failed, providers.Refused) || remote.IsClass(failed, providers.RateLimited) {
		return failed
	}
	standing := s.p.lives(ctx, s.box)
	switch {
	case ctx.Err() != nil:
		return remote.GivenUp(ctx)
	case errors.Is(standing, providers.ErrNotFound):
		s.p.refs.Forget(s.id, s.box.SandboxID)
		return &providers.Error{Class: providers.Lost, Message: providers.ErrLost.Message, Err: quiet(err)}
	case standing != nil:
		return remote.Unavailable("the sandbox does not answer, nor does Modal say how it stands", quiet(err))
	case remote.IsClass(failed, providers.Invalid):
		return failed
	}
	return remote.Unavailable("the connection to the sandbox broke, or Modal failed", quiet(err))
}
