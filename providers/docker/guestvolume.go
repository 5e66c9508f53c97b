package docker

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/mount"
	"github.com/docker/docker/client"

	"sandyard/providers"
	"sandyard/providers/confine"
	"sandyard/providers/docker/engineerr"
	"sandyard/providers/guestconn"
)

const (
	// complete is written last, so a volume that holds it holds all of the guest.
	completeFile = "complete"
	fillTimeout  = time.Minute
	fillPoll     = 50 * time.Millisecond
)

// guestVolume is the guest's files in a read-only volume of the engine, named by their content, so that workers of
// different releases share an engine. It is filled by copying into a container that never starts, which also works
// on an engine far away.
type guestVolume struct {
	sum     string // of the content
	fleet   string // that removes it again, if it has made it
	life    guestconn.Life
	archive []byte
	mu      sync.Mutex
	dir     string // where it is on the engine's machine, from when it is filled
}

func newGuestVolume(cfg Config, life guestconn.Life) (*guestVolume, error) {
	files, err := guestFiles(cfg.Guest)
	if err != nil {
		return nil, err
	}
	archive, err := pack(files)
	if err != nil {
		return nil, providers.Invalid.Errorf("read the guest: %w", err)
	}
	sum := sha256.Sum256(archive)
	return &guestVolume{sum: hex.EncodeToString(sum[:8]), fleet: cfg.Fleet, life: life, archive: archive}, nil
}

// The guest's programs. The supervisor is started for every command, so there may be a smaller program for it; the
// guest looks for it at its side and does without.
const (
	guestBinary      = "guest"
	supervisorBinary = "sup"
	// hostsFile is what the engine would write for a container with a network of its own.
	hostsFile = "hosts"
	// hostnameFile and resolvFile stand in for files of the engine's own in builds, whose root could fill its disk with them.
	hostnameFile = "hostname"
	resolvFile   = "resolv.conf"
)

func guestFiles(root fs.FS) (map[string][]byte, error) {
	binary, err := fs.ReadFile(root, guestBinary)
	if err != nil { // which does not name the directory, as os.DirFS itself does
		return nil, providers.Invalid.Errorf("no guest binary in %v (run make build): %w", root, err)
	}
	files := map[string][]byte{
		guestBinary: binary, hostsFile: []byte(confine.Hosts), hostnameFile: []byte("sandbox\n"), resolvFile: nil, completeFile: nil,
	}
	small, err := fs.ReadFile(root, supervisorBinary)
	if err == nil {
		files[supervisorBinary] = small
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, providers.Invalid.Errorf("read the guest's supervisor: %w", err)
	}
	return files, nil
}

// pack makes the same archive from the same files, whatever their times. It is kept, so it takes no more room than it needs.
func pack(files map[string][]byte) ([]byte, error) {
	const block, trailer = 512, 2 * 512
	size := trailer
	for _, content := range files {
		size += block + (len(content)+block-1)/block*block
	}
	out := bytes.NewBuffer(make([]byte, 0, size))
	w := tar.NewWriter(out)
	for _, name := range []string{supervisorBinary, guestBinary, hostsFile, hostnameFile, resolvFile, completeFile} {
		content, present := files[name]
		if !present {
			continue
		}
		header := &tar.Header{Name: name, Mode: 0o555, Size: int64(len(content)), Typeflag: tar.TypeReg, Format: tar.FormatUSTAR}
		if err := w.WriteHeader(header); err != nil {
			return nil, err
		}
		if _, err := w.Write(content); err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return out.Bytes(), err
}

const (
	guestVolumePrefix = "sandyard-guest-"
	fillerSuffix      = "-fill"
)

func (g *guestVolume) name() string { return guestVolumePrefix + g.sum }

func (g *guestVolume) mount(readOnly bool) mount.Mount {
	return mount.Mount{
		Type:     mount.TypeVolume,
		Source:   g.name(),
		Target:   confine.GuestDir,
		ReadOnly: readOnly,
		VolumeOptions: &mount.VolumeOptions{
			NoCopy: true,
			Labels: g.labels(),
		},
	}
}

// mounts are what a container gets of a volume that has been filled.
func (g *guestVolume) mounts() []mount.Mount {
	return []mount.Mount{g.mount(true), g.bind(hostsFile)}
}

// bind puts a file of the volume into /etc. It is bound by its place on the engine's machine, for not every engine mounts a
// part of a volume.
func (g *guestVolume) bind(name string) mount.Mount {
	g.mu.Lock()
	defer g.mu.Unlock()
	return mount.Mount{Type: mount.TypeBind, Source: path.Join(g.dir, name), Target: "/etc/" + name, ReadOnly: true}
}

func (g *guestVolume) labels() map[string]string {
	return map[string]string{labelGuest: g.sum, labelFleet: g.fleet}
}

// ensure fills the volume unless this process already saw it filled. image is any image the engine holds.
func (g *guestVolume) ensure(ctx context.Context, api *client.Client, image string) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.dir != "" {
		return nil
	}
	ctx, stop := context.WithTimeout(ctx, fillTimeout)
	defer stop()
	filler, err := g.claim(ctx, api, image)
	if err != nil {
		return engineerr.Translate(err, "prepare the guest volume")
	}
	defer discard(ctx, g.life, api, filler)
	if err := g.fill(ctx, api, filler); err != nil {
		return engineerr.Translate(err, "fill the guest volume")
	}
	volume, err := api.VolumeInspect(ctx, g.name())
	if err != nil {
		return engineerr.Translate(err, "find the guest volume")
	}
	g.dir = volume.Mountpoint
	return nil
}

// forget makes the next ensure look again: somebody may have pruned the volume, which the engine then makes anew, empty.
func (g *guestVolume) forget() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.dir = ""
}

// claim makes the container through which the volume is filled. Its name is the lock between workers: who finds it
// taken waits until it is gone.
func (g *guestVolume) claim(ctx context.Context, api *client.Client, image string) (string, error) {
	name := g.name() + fillerSuffix
	config := &container.Config{Image: image, Entrypoint: []string{"/never"}, NetworkDisabled: true, Labels: g.labels()}
	host := &container.HostConfig{LogConfig: container.LogConfig{Type: "none"}, Mounts: []mount.Mount{g.mount(false)}}
	for {
		made, err := api.ContainerCreate(ctx, config, host, nil, nil, name)
		if err == nil {
			return made.ID, nil
		}
		if !errdefs.IsConflict(err) {
			return "", err
		}
		g.discardStale(ctx, api, name)
		select {
		case <-time.After(fillPoll):
		case <-ctx.Done():
			return "", fmt.Errorf("another worker holds %s: %w", name, ctx.Err())
		}
	}
}

// discardStale removes the filler of a worker that died while it filled.
func (g *guestVolume) discardStale(ctx context.Context, api *client.Client, name string) {
	found, err := api.ContainerInspect(ctx, name)
	if err != nil {
		return
	}
	made, err := time.Parse(time.RFC3339Nano, found.Created)
	if err == nil && engineNow(ctx, api).Sub(made) > fillTimeout {
		discard(ctx, g.life, api, found.ID)
	}
}

func discard(ctx context.Context, life guestconn.Life, api *client.Client, id string) {
	ctx, stop := life.Own(ctx, removeTimeout)
	defer stop()
	_ = api.ContainerRemove(ctx, id, container.RemoveOptions{Force: true, RemoveVolumes: true})
}

func (g *guestVolume) fill(ctx context.Context, api *client.Client, filler string) error {
	_, err := api.ContainerStatPath(ctx, filler, confine.GuestDir+"/"+completeFile)
	if err == nil || !errdefs.IsNotFound(err) {
		return err
	}
	return api.CopyToContainer(ctx, filler, confine.GuestDir, bytes.NewReader(g.archive), container.CopyToContainerOptions{})
}
