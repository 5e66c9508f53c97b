package docker

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/go-units"

	"sandyard/providers"
	"sandyard/providers/confine"
)

// Labels of our containers.
const (
	labelFleet   = "sandyard.fleet"
	labelSandbox = "sandyard.sandbox"
	labelGuest   = "sandyard.guest"
	// labelPool is on what was made for the pool, also when it has become a sandbox: its name says which.
	labelPool = "sandyard.pool"
)

func containerName(id string) string { return "sandyard-" + id }

// memberName is no container name of any sandbox, for ids hold no dash.
func memberName(random string) string { return "sandyard-pool-" + random }

// sandboxOf finds the sandbox's id in the names of a container; while one is renamed it may have two.
func sandboxOf(names []string) (id string, ok bool) {
	for _, name := range names {
		id, ours := strings.CutPrefix(name, "/"+containerName(""))
		if ours && confine.ValidID(id) {
			return id, true
		}
	}
	return "", false
}

// complete fills what spec leaves open and refuses what this provider cannot do.
func (p *engine) complete(ctx context.Context, spec providers.Spec) (providers.Spec, error) {
	spec, err := confine.Complete(spec, p.cfg.Defaults)
	if err != nil {
		return spec, err
	}
	if spec.Image, err = fullName(spec.Image); err != nil {
		return spec, err
	}
	spec.Runtime = cmp.Or(spec.Runtime, p.cfg.Runtime)
	if err := p.checkRuntime(ctx, spec.Runtime); err != nil {
		return spec, err
	}
	return spec, p.safe(spec.Runtime)
}

func (p *Provider) containerConfig(spec providers.Spec) *container.Config {
	labels := maps.Clone(spec.Labels)
	if labels == nil {
		labels = make(map[string]string)
	}
	labels[labelFleet], labels[labelSandbox], labels[labelGuest] = p.cfg.Fleet, spec.ID, p.guest.sum
	return &container.Config{
		Image:      spec.Image,
		User:       fmt.Sprintf("%d:%d", confine.UserID, confine.UserID),
		WorkingDir: spec.WorkDir,
		Env:        environ(spec),
		Entrypoint: []string{confine.GuestDir + "/" + guestBinary, "stdio", "-workdir", spec.WorkDir, "-roots", spec.WorkDir + "," + confine.TempDir, "-users", confine.UserName},
		Cmd:        []string{},
		OpenStdin:  true,
		Labels:     labels,
		// The guest heeds no other: an engine that stops would wait for it in vain.
		StopSignal: "SIGKILL",
		// The runtime makes a network that has its own loopback and no more. The engine's part in that would take as long as
		// all else about a start.
		NetworkDisabled: true,
		// An image's own check would run a program in the sandbox that no job asked for.
		Healthcheck: &container.HealthConfig{Test: []string{"NONE"}},
	}
}

// environ is the environment of the guest, which every command inherits.
func environ(spec providers.Spec) []string {
	env := []string{}
	for _, name := range slices.Sorted(maps.Keys(spec.Env)) {
		env = append(env, name+"="+spec.Env[name])
	}
	if _, own := spec.Env["HOME"]; !own {
		env = append(env, "HOME="+spec.WorkDir)
	}
	return env
}

func (p *Provider) hostConfig(spec providers.Spec, seccomp string) *container.HostConfig {
	return &container.HostConfig{
		NetworkMode:    "none",
		ReadonlyRootfs: true,
		CapDrop:        []string{"ALL"},
		SecurityOpt:    []string{"no-new-privileges", "seccomp=" + seccomp},
		Runtime:        spec.Runtime,
		CgroupnsMode:   container.CgroupnsModePrivate,
		IpcMode:        container.IPCModePrivate,
		ShmSize:        confine.SharedMB(spec.Resources) << 20,
		Sysctls:        p.sysctls(spec),
		// Every byte between the guest and us passes the container's output; a log driver would store it all.
		LogConfig:     container.LogConfig{Type: "none"},
		RestartPolicy: container.RestartPolicy{Name: container.RestartPolicyDisabled},
		Tmpfs:         tmpfs(spec),
		Mounts:        p.guest.mounts(),
		Resources:     p.limits(spec),
	}
}

// sysctls are those of the sandbox's namespaces. gVisor's kernel has its own.
func (p *engine) sysctls(spec providers.Spec) map[string]string {
	if p.isGVisor(spec.Runtime) {
		return nil
	}
	return confine.Sysctls()
}

// tmpfs is where the sandbox may write. It cannot be changed later.
func tmpfs(spec providers.Spec) map[string]string {
	r := spec.Resources
	return map[string]string{
		spec.WorkDir: fmt.Sprintf("rw,exec,nosuid,nodev,size=%dm,nr_inodes=%d,uid=%d,gid=%d,mode=0755",
			r.DiskMB, confine.WorkDirFiles, confine.UserID, confine.UserID),
		confine.TempDir: tempOptions(confine.TempMB(r) << 20),
	}
}

func tempOptions(bytes int64) string {
	return fmt.Sprintf("rw,exec,nosuid,nodev,size=%d,nr_inodes=%d,mode=1777", bytes, confine.TempFiles)
}

// limits are what the spec asks for, in the engine's words.
func (p *engine) limits(spec providers.Spec) container.Resources {
	all := limits(spec.Resources)
	if p.isGVisor(spec.Runtime) {
		fitGVisor(&all)
	}
	return all
}

func limits(r providers.Resources) container.Resources {
	memory, pids := r.MemoryMB<<20, r.Pids+confine.GuestPids
	return container.Resources{
		Memory:     memory,
		MemorySwap: memory,
		NanoCPUs:   int64(r.CPUs * 1e9),
		PidsLimit:  &pids,
		Ulimits: []*units.Ulimit{
			{Name: "core"},
			{Name: "nofile", Soft: confine.OpenFiles, Hard: confine.GuestOpenFiles},
		},
	}
}

// classKey is the same for specs whose containers differ in nothing but what can be changed about one that runs.
func classKey(spec providers.Spec) string {
	fixed := []any{spec.Image, spec.Runtime, spec.WorkDir, tmpfs(spec), confine.SharedMB(spec.Resources)}
	if spec.Runtime != "" { // not every runtime lets them be changed
		fixed = append(fixed, spec.Resources)
	}
	return fmt.Sprintf("%q", fixed)
}
