package local

import (
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"

	"sandyard/providers"
	"sandyard/providers/local/keeper"
)

const (
	userID         = 1000
	userName       = "sandbox" // what commands may call that user
	defaultWorkDir = "/workspace"
	minMemoryMB    = 32
	// guestPids are the guest's own threads and those of its idle supervisors, which count towards the limit of processes.
	guestPids = 40
	// nearMemory is what the programs of a sandbox are left when its work directory is full.
	nearMemory                                = 16
	workDirFiles, tempFiles, tempMB, sharedMB = 100 << 10, 10 << 10, 64, 16
)

// standard is what a sandbox gets where neither its spec nor the configuration says otherwise.
func standard() providers.Resources {
	return providers.Resources{CPUs: 1, MemoryMB: 512, DiskMB: 256, Pids: 256}
}

var validID = regexp.MustCompile(`^[a-z0-9]{1,64}$`)

// systemDirs are where a work directory would hide what the system or the guest needs.
func systemDirs() []string {
	return []string{"/bin", "/boot", "/dev", "/etc", "/lib", "/lib64", "/proc", "/run", "/sbin", "/sys", "/tmp", "/usr", "/var", keeper.GuestDir}
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
		return spec, providers.Errorf(providers.NotSupported, "the local provider gives sandboxes no network; create it with network off")
	}
	if spec.WorkDir == "" {
		spec.WorkDir = defaultWorkDir
	}
	if err := checkWorkDir(spec.WorkDir); err != nil {
		return spec, err
	}
	for name, value := range spec.Env {
		if name == "" || strings.ContainsAny(name, "=\x00") || strings.Contains(value, "\x00") {
			return spec, providers.Errorf(providers.Invalid, "environment variable %.80q: a name holds no '=' and neither holds NUL", name)
		}
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

func checkResources(r providers.Resources) error {
	switch {
	case r.CPUs < 0 || r.MemoryMB < 0 || r.DiskMB < 0 || r.Pids < 0:
		return providers.Errorf(providers.Invalid, "resources must not be negative")
	case r.MemoryMB < minMemoryMB:
		return providers.Errorf(providers.Invalid, "memory of %d MB: at least %d MB are needed", r.MemoryMB, minMemoryMB)
	case r.DiskMB > r.MemoryMB-nearMemory:
		return providers.Errorf(providers.Invalid, "disk of %d MB: the work directory is held in the sandbox's %d MB of memory; ask for at most %d MB or for more memory", r.DiskMB, r.MemoryMB, r.MemoryMB-nearMemory)
	case r.Pids < 32:
		return providers.Errorf(providers.Invalid, "limit of %d processes: at least 32 are needed", r.Pids)
	case r.CPUs < 0.01:
		return providers.Errorf(providers.Invalid, "share of %g processors: at least 0.01 is needed", r.CPUs)
	default:
		return nil
	}
}

// plan is what the keeper of b is told.
func (p *Provider) plan(b box, spec providers.Spec, img image) keeper.Plan {
	return keeper.Plan{
		Dir: b.dir, Image: img.tree, Programs: p.programs.dir, Hostname: spec.ID, WorkDir: spec.WorkDir,
		Argv: []string{
			keeper.GuestDir + "/" + keeper.GuestProgram, "stdio",
			"-workdir", spec.WorkDir, "-roots", spec.WorkDir + ",/tmp", "-users", userName,
		},
		Env: environ(spec, img.env), UID: userID, GID: userID,
		WorkDirMB: spec.Resources.DiskMB, WorkDirFiles: workDirFiles,
		TempMB: min(tempMB, spec.Resources.MemoryMB/4), TempFiles: tempFiles, SharedMB: sharedMB,
		Group: b.group, Filter: p.filter,
	}
}

// environ is the environment of the guest, which every command inherits: the image's, then the sandbox's own.
func environ(spec providers.Spec, ofImage map[string]string) []string {
	merged := map[string]string{"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
	maps.Copy(merged, ofImage)
	merged["HOME"] = spec.WorkDir
	maps.Copy(merged, spec.Env)
	env := []string{}
	for _, name := range slices.Sorted(maps.Keys(merged)) {
		env = append(env, name+"="+merged[name])
	}
	return env
}
