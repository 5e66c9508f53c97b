package docker

import (
	"context"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/image"

	"sandyard/imageref"
	"sandyard/providers"
	"sandyard/providers/docker/engineerr"
)

// fullName reads the name of an image and returns the form in which the engine is asked for it, docker.io/library/abc:latest
// for abc. The engine's API takes the name as part of a path, and a short one for the prefix of an id: the full form holds
// neither "..", nor is it ever an id.
func fullName(name string) (string, error) {
	ref, err := imageref.Parse(name)
	if err != nil {
		return "", providers.Invalid.Errorf("image: %w", err)
	}
	return ref.Full(), nil
}

// inspectImage describes the image of that name. Whatever else the engine may find by it is no such image.
func (p *engine) inspectImage(ctx context.Context, name string) (image.InspectResponse, error) {
	ref, err := imageref.Parse(name)
	if err != nil {
		return image.InspectResponse{}, providers.Invalid.Errorf("image: %w", err)
	}
	found, err := p.api.ImageInspect(ctx, ref.Full())
	if errdefs.IsNotFound(err) || err == nil && !ref.Among(slices.Concat(found.RepoTags, found.RepoDigests)) {
		return image.InspectResponse{}, imageMissing(ref)
	}
	return found, err
}

// imageOf is inspectImage that does not wait for long.
func (p *engine) imageOf(ctx context.Context, name string) (image.InspectResponse, error) {
	ctx, stop := context.WithTimeout(ctx, question)
	defer stop()
	return p.inspectImage(ctx, name)
}

// Ensure answers nil when the engine holds the image. It pulls a missing one where the configuration allows that, so
// it belongs to the start of a worker and not into a job. From then on the pool has containers of the image waiting.
func (p *Provider) Ensure(ctx context.Context, name string) error {
	full, err := fullName(name)
	if err != nil {
		return err
	}
	_, err = p.imageOf(ctx, full)
	if isMissing(err) && p.cfg.Pull {
		err = p.pull(ctx, full)
	}
	if err != nil {
		return engineerr.Translate(err, "provide image "+name)
	}
	if p.safe(p.cfg.Runtime) != nil {
		return nil // no sandbox will come for what would wait
	}
	p.pool.Stock(providers.PoolClass{Spec: p.members.memberSpec(full), Min: p.cfg.Pool.Size, Max: p.pool.Config().Max})
	return nil
}

func (p *engine) pull(ctx context.Context, name string) error {
	progress, err := p.api.ImagePull(ctx, name, image.PullOptions{})
	if err != nil {
		return err
	}
	defer progress.Close()
	return drainPull(progress)
}

func isMissing(err error) bool {
	return err != nil && providers.AsError(err).Class == providers.ImageMissing
}

// recipes are the templates that images/build.sh makes images for.
func recipes() []string {
	return []string{"python", "base", "node", "data-science", "code-server", "browser", "claude-code", "codex", "cloud", "all-in-one"}
}

func imageMissing(name imageref.Name) error {
	way := "docker pull or build it there"
	template := strings.TrimSuffix(strings.TrimPrefix(name.String(), "sandyard/"), ":default")
	if slices.Contains(recipes(), template) && name.String() == "sandyard/"+template+":default" {
		way = "on the worker's machine run: make image TEMPLATE=" + template
	}
	return providers.ImageMissing.Errorf("the docker engine holds no image %.200q; %s", name, way)
}
