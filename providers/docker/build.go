package docker

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
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/pkg/stdcopy"

	"sandyard/providers"
	"sandyard/providers/confine"
	"sandyard/providers/docker/engineerr"
)

// labelBuild is on the images that builds have made; its value is the image's name.
const labelBuild = "sandyard.build"

const (
	// buildLife is when the container of a build ends whose worker has died and which nobody has removed.
	buildLife = 2 * time.Hour
	// guestProgram is the guest where a container sees it.
	guestProgram = confine.GuestDir + "/" + guestBinary
	// tailBytes of a failing step's output come with the error.
	tailBytes = 2 << 10
)

var _ providers.Builder = (*Provider)(nil)

// Image implements providers.Builder.
func (p *Provider) Image(ctx context.Context, name string) (providers.ImageConfig, error) {
	found, err := p.inspectImage(ctx, name)
	if err != nil {
		return providers.ImageConfig{}, engineerr.Translate(err, "look for the image")
	}
	c := providers.ImageConfig{Env: map[string]string{}}
	if found.Config != nil {
		c.WorkDir, c.User = found.Config.WorkingDir, found.Config.User
		for _, pair := range found.Config.Env {
			name, value, _ := strings.Cut(pair, "=")
			c.Env[name] = value
		}
	}
	return c, nil
}

// Build implements providers.Builder. The container has the name of the sandbox that it stands in for, so Delete and List
// know what a dead worker has left of it.
func (p *Provider) Build(ctx context.Context, b providers.Build, log io.Writer) error {
	if err := checkNames(b); err != nil {
		return err
	}
	unlock, err := p.alone(ctx, b.ID)
	if err != nil {
		return err
	}
	defer unlock()
	if err := p.clearBuild(ctx, b.ID); err != nil {
		return err
	}
	own, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watch := &buildWatch{limitMB: b.Resources.DiskMB, end: cancel}
	defer p.builds.begin(watch)() // as long as the container takes of the disk
	defer func() {
		last, stop := p.life.Own(ctx, removeTimeout+gvisorPatience)
		defer stop()
		if err := p.clearBuild(last, b.ID); err != nil {
			p.cfg.Logger.WarnContext(ctx, "build container not removed", "sandbox_id", b.ID, "error", err)
		}
	}()
	ref, err := p.launchBuild(ctx, b)
	if err != nil {
		return err
	}
	watch.layer = p.layerOf(ctx, ref)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		p.watchBuild(own, watch)
	}()
	err = p.keepsWrites(own, ref, b)
	if err == nil {
		err = p.runSteps(own, ref, b, log)
	}
	if err == nil {
		err = p.commit(own, watch, b)
	}
	if cause := context.Cause(own); cause != nil && ctx.Err() == nil {
		err = cause // what watchBuild has found
	}
	cancel(nil)
	<-watched
	return err
}

// checkNames refuses a build of which a name is none.
func checkNames(b providers.Build) error {
	_, err := fullName(b.From)
	if err == nil {
		_, err = fullName(b.Image)
	}
	return err
}

// clearBuild removes the container that stands in for a sandbox, if there is one.
func (p *Provider) clearBuild(ctx context.Context, id string) error {
	found, _, err := p.find(ctx, id)
	if err == nil {
		err = p.remove(ctx, found.ref)
	}
	if err != nil && providers.AsError(err).Class != providers.NotFound {
		return err
	}
	return nil
}

// launchBuild is startBuild when there is a free start, which it gives back when the container runs: a build may take as
// long as it likes, and others want to start.
func (p *Provider) launchBuild(ctx context.Context, b providers.Build) (string, error) {
	select {
	case p.starts <- struct{}{}:
		defer func() { <-p.starts }()
	case <-ctx.Done():
		return "", engineerr.Translate(ctx.Err(), "wait for a free start")
	}
	return p.startBuild(ctx, b)
}

// startBuild starts a container in which root may change the image's files, and nothing else: there is no network, the
// capabilities are those that installing files takes, and limits and system calls are a sandbox's.
func (p *Provider) startBuild(ctx context.Context, b providers.Build) (string, error) {
	from, err := fullName(b.From)
	if err != nil {
		return "", err
	}
	spec := providers.Spec{ID: b.ID, Image: from, WorkDir: confine.WorkDir, Runtime: cmp.Or(b.Runtime, p.cfg.Runtime), Resources: b.Resources}
	if err := p.checkRuntime(ctx, spec.Runtime); err != nil {
		return "", err
	}
	if err := p.safe(spec.Runtime); err != nil {
		return "", err
	}
	config := p.containerConfig(spec)
	config.User, config.WorkingDir, config.Env = "0:0", "/", nil
	// Nobody speaks to this guest: it reaps what the steps leave, and it ends.
	config.Entrypoint = []string{guestProgram, "stdio", "-workdir", "/", "-roots", confine.TempDir, "-unclaimed", buildLife.String()}
	ref, err := p.makeContainerWith(ctx, containerName(b.ID), config, spec, func(h *container.HostConfig) {
		h.ReadonlyRootfs, h.Tmpfs = false, nil
		h.Mounts = append(h.Mounts, p.guest.bind(hostnameFile), p.guest.bind(resolvFile))
		h.CapAdd = []string{"CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID"}
	})
	if err != nil {
		return "", engineerr.Translate(err, "create the build's container")
	}
	if err := p.api.ContainerStart(ctx, ref, container.StartOptions{}); err != nil {
		p.guest.forget() // as create does
		return "", startError(err)
	}
	return ref, nil
}

// keepsWrites refuses a runtime of gVisor that holds what the steps write in its own memory or a file of its own, as releases
// from 2023 on do by default: the engine would commit an image without any of it, and not say so.
func (p *Provider) keepsWrites(ctx context.Context, ref string, b providers.Build) error {
	if !p.isGVisor(cmp.Or(b.Runtime, p.cfg.Runtime)) {
		return nil
	}
	const mark = "/.sandyard-build"
	touch := providers.Step{Argv: []string{"/bin/sh", "-c", ": >" + mark}, User: "0:0", Dir: "/"}
	if code, err := p.runStep(ctx, ref, touch, io.Discard); err != nil || code != 0 { // without a shell nothing is known
		return err
	}
	_, err := p.api.ContainerStatPath(ctx, ref, mark)
	if errdefs.IsNotFound(err) {
		return providers.Errorf(providers.NotSupported, "the runtime does not write a build's files to the container, so the image would not contain them; "+
			`add "--overlay2=none" to runsc's "runtimeArgs" in the engine's daemon.json, or build for a template with another runtime`)
	}
	if err != nil {
		return buildError(err, "check what a step has written")
	}
	touch.Argv[2] = "rm " + mark
	_, err = p.runStep(ctx, ref, touch, io.Discard)
	return err
}

func (p *Provider) runSteps(ctx context.Context, ref string, b providers.Build, log io.Writer) error {
	for n, s := range b.Steps {
		fmt.Fprintf(log, "Step %d/%d : %s\n", n+1, len(b.Steps), s.Text)
		if len(s.Files) > 0 {
			err := p.api.CopyToContainer(ctx, ref, "/", bytes.NewReader(s.Files), container.CopyToContainerOptions{})
			switch {
			case err != nil && (ctx.Err() != nil || engineerr.ClassOf(err) == providers.Unavailable):
				return buildError(err, "copy files into the build")
			case err != nil: // the engine's words may hold paths with variables put in
				return stepFailed(n, b, s, "the files could not be copied; check that every directory in the destination is not a file or a link", "")
			}
		}
		if len(s.Argv) == 0 {
			continue
		}
		last := &tail{to: log}
		code, err := p.runStep(ctx, ref, s, last)
		if err != nil {
			return err
		}
		if code != 0 {
			return stepFailed(n, b, s, fmt.Sprintf("it ended with exit code %d", code), last.String())
		}
		if err := p.endStep(ctx, ref); err != nil {
			return err
		}
	}
	return nil
}

// endStep ends what a step has left running, before the next step or a copy.
func (p *Provider) endStep(ctx context.Context, ref string) error {
	var says tail
	says.to = io.Discard
	code, err := p.exec(ctx, ref, container.ExecOptions{User: "0:0", WorkingDir: "/", Cmd: []string{guestProgram, "step", "--end"}}, &says)
	if err == nil && code != 0 {
		return providers.Errorf(providers.BuildFailed, "processes of a build step could not be ended: %s", says.String())
	}
	return err
}

func stepFailed(n int, b providers.Build, s providers.Step, why, output string) error {
	text := fmt.Sprintf("step %d of %d failed (%.300s): %s", n+1, len(b.Steps), s.Text, why)
	if output != "" {
		text += "; its last output: " + output
	}
	return providers.Errorf(providers.BuildFailed, "%s", text)
}

// runStep runs one program in the build's container and returns its exit code. When ctx ends, so does the container,
// and the program with it.
func (p *Provider) runStep(ctx context.Context, ref string, s providers.Step, log io.Writer) (int, error) {
	var env []string
	for _, name := range slices.Sorted(maps.Keys(s.Env)) {
		env = append(env, name+"="+s.Env[name])
	}
	if err := p.checkUser(ctx, ref, s.User); err != nil {
		return 0, err
	}
	return p.exec(ctx, ref, container.ExecOptions{
		User: s.User, WorkingDir: "/", Env: env, Cmd: append([]string{guestProgram, "step", cmp.Or(s.Dir, "/")}, s.Argv...),
	}, log)
}

// checkUser refuses a user whom the image does not have. The engine's own words would quote the name, which may be that of a
// variable's value.
func (p *Provider) checkUser(ctx context.Context, ref, user string) error {
	if strings.Trim(user, "0123456789:") == "" {
		return nil
	}
	code, err := p.exec(ctx, ref, container.ExecOptions{User: user, WorkingDir: "/", Cmd: []string{guestProgram, "version"}}, io.Discard)
	unknown := err != nil && ctx.Err() == nil && engineerr.ClassOf(err) != providers.Unavailable
	if unknown || err == nil && code != 0 {
		return providers.Errorf(providers.BuildFailed, "the image has no user or group with the name in USER; use numbers, such as 1000:1000")
	}
	return err
}

// exec runs a program in the build's container and returns its exit code.
func (p *Provider) exec(ctx context.Context, ref string, what container.ExecOptions, log io.Writer) (int, error) {
	what.AttachStdout, what.AttachStderr = true, true
	made, err := p.api.ContainerExecCreate(ctx, ref, what)
	if err != nil {
		return 0, buildError(err, "prepare a step")
	}
	attached, err := p.api.ContainerExecAttach(ctx, made.ID, container.ExecAttachOptions{})
	if err != nil {
		return 0, buildError(err, "run a step")
	}
	defer attached.Close()
	stop := context.AfterFunc(ctx, attached.Close)
	defer stop()
	if _, err := stdcopy.StdCopy(log, log, attached.Reader); err != nil && ctx.Err() == nil {
		return 0, buildError(err, "read a step's output")
	}
	if ctx.Err() != nil {
		return 0, engineerr.Translate(ctx.Err(), "finish a step")
	}
	return p.exitCode(ctx, made.ID)
}

// exitCode asks how an exec ended whose output has. The engine may be a moment behind.
func (p *Provider) exitCode(ctx context.Context, exec string) (int, error) {
	for {
		ended, err := p.api.ContainerExecInspect(ctx, exec)
		if err != nil {
			return 0, buildError(err, "ask how a step ended")
		}
		if !ended.Running {
			return ended.ExitCode, nil
		}
		select {
		case <-time.After(removePoll):
		case <-ctx.Done():
			return 0, engineerr.Translate(ctx.Err(), "wait for a step's end")
		}
	}
}

// buildError is translate for a container that is no sandbox: that it is gone says nothing about one.
func buildError(err error, doing string) error {
	e := providers.AsError(engineerr.Translate(err, doing))
	if e.Class == providers.NotFound || e.Class == providers.Busy {
		return providers.Errorf(providers.Unavailable, "the build container is gone: %w", err)
	}
	return e
}

// commit makes the image of what the steps have left. What still runs writes nothing more once it was measured.
func (p *Provider) commit(ctx context.Context, watch *buildWatch, b providers.Build) error {
	ref := watch.layer.ref
	if err := p.api.ContainerPause(ctx, ref); err != nil {
		return buildError(err, "hold the build's container")
	}
	if watch.limitMB > 0 {
		if err := watch.look(ctx); err != nil {
			return err
		}
	}
	base, err := p.inspectImage(ctx, b.From)
	if err != nil {
		return buildError(err, "look for the base image")
	}
	config := &container.Config{User: b.Config.User, WorkingDir: b.Config.WorkDir, Entrypoint: []string{"/bin/sh"}, Labels: map[string]string{}}
	if base.Config != nil && len(base.Config.Entrypoint) > 0 {
		config.Entrypoint = base.Config.Entrypoint
	}
	maps.Copy(config.Labels, b.Labels)
	// What the container's own labels were for ends here.
	config.Labels[labelFleet], config.Labels[labelBuild], config.Labels[labelSandbox] = p.cfg.Fleet, b.Image, ""
	for _, name := range slices.Sorted(maps.Keys(b.Config.Env)) {
		config.Env = append(config.Env, name+"="+b.Config.Env[name])
	}
	_, err = p.api.ContainerCommit(ctx, ref, container.CommitOptions{Reference: b.Image, Config: config})
	if err != nil {
		return buildError(err, "keep the image")
	}
	return nil
}

// Built implements providers.Builder.
func (p *Provider) Built(ctx context.Context) ([]string, error) {
	found, err := p.api.ImageList(ctx, image.ListOptions{Filters: filters.NewArgs(
		filters.Arg("label", labelFleet+"="+p.cfg.Fleet), filters.Arg("label", labelBuild))})
	if err != nil {
		return nil, engineerr.Translate(err, "list the images")
	}
	var names []string
	for _, i := range found {
		if name := i.Labels[labelBuild]; slices.Contains(i.RepoTags, name) { // not what was made on top of one
			names = append(names, name)
		}
	}
	return names, nil
}

// RemoveImage implements providers.Builder.
func (p *Provider) RemoveImage(ctx context.Context, name string) error {
	full, err := fullName(name)
	if err != nil {
		return err
	}
	_, err = p.api.ImageRemove(ctx, full, image.RemoveOptions{PruneChildren: true})
	if err == nil || errdefs.IsNotFound(err) || errdefs.IsConflict(err) {
		return nil
	}
	return engineerr.Translate(err, "remove the image")
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
