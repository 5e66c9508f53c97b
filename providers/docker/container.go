package docker

import (
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/mount"
	"github.com/docker/go-units"

	"sandyard/providers"
)

// Labels of our containers.
const (
	labelFleet   = "sandyard.fleet"
	labelSandbox = "sandyard.sandbox"
	labelGuest   = "sandyard.guest"
	// labelPool is on what was made for the pool, also when it has become a sandbox: its name says which.
	labelPool = "sandyard.pool"
)

const (
	user           = "1000:1000"
	userName       = "sandbox" // what commands may call that user
	defaultWorkDir = "/workspace"
	guestDir       = "/.sandyard"
	minMemoryMB    = 32
	// guestPids are the guest's own threads and those of its idle supervisors, which count towards the limit of processes.
	guestPids = 40
	// nearMemory is what the programs of a sandbox are left when its work directory is full.
	nearMemory = 16
)

// standard is what a sandbox gets where neither its spec nor the configuration says otherwise.
func standard() providers.Resources {
	return providers.Resources{CPUs: 1, MemoryMB: 512, DiskMB: 256, Pids: 256}
}

var validID = regexp.MustCompile(`^[a-z0-9]{1,64}$`)

// systemDirs are where a work directory would hide what the system or the guest needs.
func systemDirs() []string {
	return []string{"/bin", "/boot", "/dev", "/etc", "/lib", "/lib64", "/proc", "/run", "/sbin", "/sys", "/tmp", "/usr", "/var", guestDir}
}

func containerName(id string) string { return "sandyard-" + id }

// memberName is no container name of any sandbox, for ids hold no dash.
func memberName(random string) string { return "sandyard-pool-" + random }

// sandboxOf finds the sandbox's id in the names of a container; while one is renamed it may have two.
func sandboxOf(names []string) (id string, ok bool) {
	for _, name := range names {
		id, ours := strings.CutPrefix(name, "/"+containerName(""))
		if ours && validID.MatchString(id) {
			return id, true
		}
	}
	return "", false
}

func withDefaults(r, d providers.Resources) providers.Resources {
	if r.CPUs == 0 {
		r.CPUs = d.CPUs
	}
	if r.MemoryMB == 0 {
		r.MemoryMB = d.MemoryMB
	}
	if r.Pids == 0 {
		r.Pids = d.Pids
	}
	if r.DiskMB == 0 {
		r.DiskMB = min(d.DiskMB, r.MemoryMB/2)
	}
	return r
}

// complete fills what spec leaves open and refuses what this provider cannot do.
func (p *Provider) complete(spec providers.Spec) (providers.Spec, error) {
	if !validID.MatchString(spec.ID) {
		return spec, providers.Errorf(providers.Invalid, "sandbox id %.80q: letters a-z and digits only, at most 64", spec.ID)
	}
	if spec.Image == "" {
		return spec, providers.Errorf(providers.Invalid, "the sandbox needs an image")
	}
	if spec.Network {
		return spec, providers.Errorf(providers.NotSupported, "the docker provider gives sandboxes no network; create it with network off")
	}
	if spec.WorkDir == "" {
		spec.WorkDir = defaultWorkDir
	}
	if err := checkWorkDir(spec.WorkDir); err != nil {
		return spec, err
	}
	if err := checkEnv(spec.Env); err != nil {
		return spec, err
	}
	spec.Resources = withDefaults(spec.Resources, p.cfg.Defaults)
	return spec, checkResources(spec.Resources)
}

func checkWorkDir(dir string) error {
	inSystem := slices.ContainsFunc(systemDirs(), func(s string) bool { return dir == s || strings.HasPrefix(dir, s+"/") })
	if !path.IsAbs(dir) || path.Clean(dir) != dir || dir == "/" || inSystem || strings.ContainsAny(dir, "\x00:,") {
		return providers.Errorf(providers.Invalid, "work directory %.200q: give an absolute, clean path outside the system's directories, such as /workspace", dir)
	}
	return nil
}

func checkEnv(env map[string]string) error {
	for name, value := range env {
		if name == "" || strings.ContainsAny(name, "=\x00") || strings.Contains(value, "\x00") {
			return providers.Errorf(providers.Invalid, "environment variable %.80q: a name holds no '=' and neither holds NUL", name)
		}
	}
	return nil
}

func checkResources(r providers.Resources) error {
	switch {
	case r.CPUs < 0 || r.MemoryMB < 0 || r.DiskMB < 0 || r.Pids < 0:
		return providers.Errorf(providers.Invalid, "resources must not be negative")
	case r.MemoryMB < minMemoryMB:
		return providers.Errorf(providers.Invalid, "memory of %d MB: at least %d MB are needed", r.MemoryMB, minMemoryMB)
	case r.DiskMB > r.MemoryMB-nearMemory:
		return providers.Errorf(providers.Invalid, "disk of %d MB: the work directory is held in the sandbox's %d MB of memory; ask for at most %d MB or for more memory", r.DiskMB, r.MemoryMB, r.MemoryMB-nearMemory)
	case r.Pids != 0 && r.Pids < 32:
		return providers.Errorf(providers.Invalid, "limit of %d processes: at least 32 are needed", r.Pids)
	default:
		return nil
	}
}

func (p *Provider) containerConfig(spec providers.Spec) *container.Config {
	labels := maps.Clone(spec.Labels)
	if labels == nil {
		labels = make(map[string]string)
	}
	labels[labelFleet], labels[labelSandbox], labels[labelGuest] = p.cfg.Fleet, spec.ID, p.guest.sum
	return &container.Config{
		Image:      spec.Image,
		User:       user,
		WorkingDir: spec.WorkDir,
		Env:        environ(spec),
		Entrypoint: []string{guestDir + "/" + guestBinary, "stdio", "-workdir", spec.WorkDir, "-roots", spec.WorkDir + ",/tmp", "-users", userName},
		Cmd:        []string{},
		OpenStdin:  true,
		Labels:     labels,
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
		Runtime:        p.cfg.Runtime,
		CgroupnsMode:   container.CgroupnsModePrivate,
		IpcMode:        container.IPCModePrivate,
		ShmSize:        16 << 20,
		// Every byte between the guest and us passes the container's output; a log driver would store it all.
		LogConfig:     container.LogConfig{Type: "none"},
		RestartPolicy: container.RestartPolicy{Name: container.RestartPolicyDisabled},
		Tmpfs:         tmpfs(spec),
		Mounts:        []mount.Mount{p.guest.mount(true)},
		Resources:     limits(spec.Resources),
	}
}

// tmpfs is where the sandbox may write. It cannot be changed later.
func tmpfs(spec providers.Spec) map[string]string {
	r := spec.Resources
	return map[string]string{
		spec.WorkDir: fmt.Sprintf("rw,exec,nosuid,nodev,size=%dm,nr_inodes=100k,uid=1000,gid=1000,mode=0755", r.DiskMB),
		"/tmp":       fmt.Sprintf("rw,exec,nosuid,nodev,size=%dm,nr_inodes=10k,mode=1777", min(64, r.MemoryMB/4)),
	}
}

func limits(r providers.Resources) container.Resources {
	memory, pids := r.MemoryMB<<20, r.Pids+guestPids
	return container.Resources{
		Memory:     memory,
		MemorySwap: memory,
		NanoCPUs:   int64(r.CPUs * 1e9),
		PidsLimit:  &pids,
		Ulimits: []*units.Ulimit{
			{Name: "core"},
			{Name: "nofile", Soft: 1024, Hard: 4096},
		},
	}
}
