package imagebuild

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/pkg/stdcopy"

	"sandyard/providers"
	"sandyard/providers/docker/engineerr"
)

const (
	// tailBytes of a failing step's output come with the error.
	tailBytes = 2 << 10
	// execPoll is the time between questions whether a step is over whose output has ended.
	execPoll = 20 * time.Millisecond
	// execTries is how often a program is started that the runtime cannot load, as gVisor at times on a busy machine.
	execTries = 5
	// execPause is the time between two of them.
	execPause = 200 * time.Millisecond
)

// keepsWrites refuses a runtime of gVisor that holds what the steps write in its own memory or a file of its own, as
// releases from 2023 on do by default: the engine would commit an image without any of it, and not say so.
func (b *Builder) keepsWrites(ctx context.Context, ref string) error {
	const mark = "/.sandyard-build"
	touch := providers.Step{Argv: []string{"/bin/sh", "-c", ": >" + mark}, User: "0:0", Dir: "/"}
	if code, err := b.runStep(ctx, ref, touch, io.Discard); err != nil || code != 0 { // without a shell nothing is known
		return err
	}
	_, err := b.cfg.API.ContainerStatPath(ctx, ref, mark)
	if errdefs.IsNotFound(err) {
		return providers.NotSupported.Errorf(
			"the runtime does not write a build's files to the container, so the image would not contain them; " +
				`add "--overlay2=none" to runsc's "runtimeArgs" in the engine's daemon.json, or build for a template with another runtime`,
		)
	}
	if err != nil {
		return buildError(err, "check what a step has written")
	}
	touch.Argv[2] = "rm " + mark
	_, err = b.runStep(ctx, ref, touch, io.Discard)
	return err
}

func (b *Builder) runSteps(ctx context.Context, ref string, build providers.Build, log io.Writer) error {
	for n, s := range build.Steps {
		fmt.Fprintf(log, "Step %d/%d : %s\n", n+1, len(build.Steps), s.Text)
		if len(s.Files) > 0 {
			err := b.cfg.API.CopyToContainer(ctx, ref, "/", bytes.NewReader(s.Files), container.CopyToContainerOptions{})
			switch {
			case err != nil && (ctx.Err() != nil || engineerr.ClassOf(err) == providers.Unavailable):
				return buildError(err, "copy files into the build")
			case err != nil: // the engine's words may hold paths with variables put in
				return stepFailed(n, build, s,
					"the files could not be copied; check that every directory in the destination is not a file or a link", "")
			}
		}
		if len(s.Argv) == 0 {
			continue
		}
		last := &tail{to: log}
		code, err := b.runStep(ctx, ref, s, last)
		if err != nil {
			return err
		}
		if code != 0 {
			return stepFailed(n, build, s, fmt.Sprintf("it ended with exit code %d", code), last.String())
		}
		if err := b.endStep(ctx, ref); err != nil {
			return err
		}
	}
	return nil
}

// endStep ends what a step has left running, before the next step or a copy.
func (b *Builder) endStep(ctx context.Context, ref string) error {
	var says tail
	says.to = io.Discard
	code, err := b.exec(
		ctx,
		ref,
		container.ExecOptions{User: "0:0", WorkingDir: "/", Cmd: []string{b.cfg.GuestProgram, "step", "--end"}},
		&says,
	)
	if err == nil && code != 0 {
		return providers.BuildFailed.Errorf("processes of a build step could not be ended: %s", says.String())
	}
	return err
}

func stepFailed(n int, build providers.Build, s providers.Step, why, output string) error {
	text := fmt.Sprintf("step %d of %d failed (%.300s): %s", n+1, len(build.Steps), s.Text, why)
	if output != "" {
		text += "; its last output: " + output
	}
	return providers.BuildFailed.Errorf("%s", text)
}

// runStep runs one program in the build's container and returns its exit code. When ctx ends, so does the container,
// and the program with it.
func (b *Builder) runStep(ctx context.Context, ref string, s providers.Step, log io.Writer) (int, error) {
	var env []string
	for _, name := range slices.Sorted(maps.Keys(s.Env)) {
		env = append(env, name+"="+s.Env[name])
	}
	if err := b.checkUser(ctx, ref, s.User); err != nil {
		return 0, err
	}
	return b.exec(ctx, ref, container.ExecOptions{
		User: s.User, WorkingDir: "/", Env: env,
		Cmd: append([]string{b.cfg.GuestProgram, "step", cmp.Or(s.Dir, "/")}, s.Argv...),
	}, log)
}

// checkUser refuses a user whom the image does not have. The engine's own words would quote the name, which may be that
// of a variable's value.
func (b *Builder) checkUser(ctx context.Context, ref, user string) error {
	if strings.Trim(user, "0123456789:") == "" {
		return nil
	}
	code, _, err := b.execOnce(
		ctx,
		ref,
		container.ExecOptions{User: user, WorkingDir: "/", Cmd: []string{b.cfg.GuestProgram, "version"}},
		io.Discard,
	)
	unknown := err != nil && ctx.Err() == nil && engineerr.ClassOf(err) != providers.Unavailable
	if unknown || err == nil && code != 0 {
		return providers.BuildFailed.Errorf(
			"the image has no user or group with the name in USER; use numbers, such as 1000:1000",
		)
	}
	return err
}

// exec runs a program in the build's container and returns its exit code. What the runtime says of one that it could
// not start goes to log, too.
func (b *Builder) exec(ctx context.Context, ref string, what container.ExecOptions, log io.Writer) (int, error) {
	for try := 1; ; try++ {
		code, started, err := b.execOnce(ctx, ref, what, log)
		if err != nil || started || try == execTries {
			return code, err
		}
		select {
		case <-time.After(execPause):
		case <-ctx.Done():
			return 0, engineerr.Translate(ctx.Err(), "start a step")
		}
	}
}

func (b *Builder) execOnce(
	ctx context.Context,
	ref string,
	what container.ExecOptions,
	log io.Writer,
) (code int, started bool, err error) {
	what.AttachStdout, what.AttachStderr = true, true
	made, err := b.cfg.API.ContainerExecCreate(ctx, ref, what)
	if err != nil {
		return 0, false, buildError(err, "prepare a step")
	}
	attached, err := b.cfg.API.ContainerExecAttach(ctx, made.ID, container.ExecAttachOptions{})
	if err != nil {
		return 0, false, buildError(err, "run a step")
	}
	defer attached.Close()
	stop := context.AfterFunc(ctx, attached.Close)
	defer stop()
	if _, err := stdcopy.StdCopy(log, log, attached.Reader); err != nil && ctx.Err() == nil {
		return 0, false, buildError(err, "read a step's output")
	}
	if ctx.Err() != nil {
		return 0, false, engineerr.Translate(ctx.Err(), "finish a step")
	}
	return b.ended(ctx, made.ID)
}

// ended asks how an exec ended whose output has. The engine may be a moment behind. One that had no process was never
// started, whatever its output says, which a program may imitate.
func (b *Builder) ended(ctx context.Context, exec string) (code int, started bool, err error) {
	for {
		now, err := b.cfg.API.ContainerExecInspect(ctx, exec)
		if err != nil {
			return 0, false, buildError(err, "ask how a step ended")
		}
		if !now.Running {
			return now.ExitCode, now.Pid != 0, nil
		}
		select {
		case <-time.After(execPoll):
		case <-ctx.Done():
			return 0, false, engineerr.Translate(ctx.Err(), "wait for a step's end")
		}
	}
}

// buildError is engineerr.Translate for a container that is no sandbox: that it is gone says nothing about one.
func buildError(err error, doing string) error {
	e := providers.AsError(engineerr.Translate(err, doing))
	if engineerr.Unfrozen(err) { // the container is there, and another try may do
		return e
	}
	if e.Class == providers.NotFound || e.Class == providers.Busy {
		return providers.Unavailable.Errorf("the build container is gone: %w", err)
	}
	return e
}

// tail passes on what is written and keeps the end of it.
type tail struct {
	to   io.Writer
	kept []byte
}

func (t *tail) Write(b []byte) (int, error) {
	t.kept = append(t.kept, b...)
	t.kept = t.kept[max(0, len(t.kept)-tailBytes):]
	return t.to.Write(b)
}

func (t *tail) String() string {
	return strings.ReplaceAll(strings.ToValidUTF8(strings.TrimSpace(string(t.kept)), "\uFFFD"), "\x00", "")
}
