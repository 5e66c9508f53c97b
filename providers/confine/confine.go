// Package confine is what every provider that runs sandboxes on a machine of ours confines them by: the system calls
// they may make, the limits they live under, and what a spec may ask for. Providers bring it about, each by its own
// means; what holds a sandbox is decided here alone.
package confine

import (
	"cmp"
	"math/bits"
	"path"
	"slices"
	"strings"

	"sandyard/providers"
)

// The user of every sandbox, whatever its image says.
const (
	UserID   = 1000
	UserName = "sandbox" // what commands may call that user
)

// Directories of every sandbox.
const (
	WorkDir  = "/workspace" // where a spec names none
	TempDir  = "/tmp"
	GuestDir = providers.GuestDir
)

// Hosts is what /etc/hosts holds, in a sandbox whose only network is its own loopback.
const Hosts = "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n"

// Limits that a spec does not set.
const (
	// GuestPids are the guest's own threads and those of its idle supervisors, which count towards the limit of processes.
	GuestPids = 40
	// OpenFiles is how many files a process may have open, unless it raises that as far as MaxOpenFiles.
	OpenFiles = 1024
	// MaxOpenFiles is the hard limit of commands, which their supervisor sets.
	MaxOpenFiles = 4096
	// GuestOpenFiles is the hard limit of the guest and its supervisors. The kernel counts descriptors that are under way in
	// sockets by user, over all sandboxes of a machine, and refuses a sender that has more than its own limit there: with
	// the same limit as commands, one sandbox could keep every other guest from starting any.
	GuestOpenFiles = 4 * MaxOpenFiles
	// WorkDirFiles is how many files the work directory holds.
	WorkDirFiles = 100 << 10
	// TempFiles is how many the directory for temporary files holds.
	TempFiles = 10 << 10
)

const (
	minMemoryMB = 32
	minPids     = 32
	minCPUs     = 0.01
	minTempMB   = 4
	maxTempMB   = 1024
	maxSharedMB = 16
	// nearMemory is what the programs of a sandbox are left when all that it may write to is full: nobody dies of files.
	nearMemory = 16
)

// SharedMB is the size of /dev/shm.
func SharedMB(r providers.Resources) int64 { return min(maxSharedMB, r.MemoryMB/8) }

// TempMB is the size of the directory for temporary files.
func TempMB(r providers.Resources) int64 {
	step := int64(1) << max(0, bits.Len64(uint64(max(0, r.MemoryMB/4)))-1) // few sizes, so that one pool serves many limits
	return max(minTempMB, min(maxTempMB, step, r.MemoryMB-r.DiskMB-SharedMB(r)-nearMemory))
}

// mostDiskMB is how large the work directory may be, which is held in memory beside all else.
func mostDiskMB(r providers.Resources) int64 {
	return max(0, r.MemoryMB-SharedMB(r)-minTempMB-nearMemory)
}

// OOMFloor is the score of supervisors when memory runs out, and the least that commands can give themselves, where it may
// be set: then the guest, whose score is 0, is the kernel's last choice, however small the others make themselves.
const OOMFloor = "900"

// Sysctls are settings of the sandbox's own namespaces. Shared memory of System V goes with the last process that has it,
// and little is kept in its message queues and semaphores: what belongs to no process is taken back by killing none.
func Sysctls() map[string]string {
	return map[string]string{"kernel.shm_rmid_forced": "1", "kernel.msgmni": "64", "kernel.sem": "250 16000 100 128"}
}

// Defaults completes what an operator has configured.
func Defaults(configured providers.Resources) providers.Resources {
	r := WithDefaults(configured, providers.StandardResources())
	r.DiskMB = min(r.DiskMB, r.MemoryMB/2, mostDiskMB(r))
	return r
}

// WithDefaults fills what r leaves at zero from d.
func WithDefaults(r, d providers.Resources) providers.Resources {
	r.CPUs = cmp.Or(r.CPUs, d.CPUs)
	r.MemoryMB = cmp.Or(r.MemoryMB, d.MemoryMB)
	r.Pids = cmp.Or(r.Pids, d.Pids)
	r.DiskMB = cmp.Or(r.DiskMB, min(d.DiskMB, r.MemoryMB/2, mostDiskMB(r)))
	return r
}

// ValidID says whether id may name a sandbox, and with it a container or a directory.
func ValidID(id string) bool {
	return id != "" && len(id) <= 64 && strings.Trim(id, "abcdefghijklmnopqrstuvwxyz0123456789") == ""
}

// Complete fills what spec leaves open and refuses what cannot be confined.
func Complete(spec providers.Spec, defaults providers.Resources) (providers.Spec, error) {
	if !ValidID(spec.ID) {
		return spec, providers.Invalid.Errorf("sandbox id %.80q: use only letters a-z and digits, at most 64", spec.ID)
	}
	if spec.Image == "" {
		return spec, providers.Invalid.Errorf("the sandbox needs an image")
	}
	spec.WorkDir = cmp.Or(spec.WorkDir, WorkDir)
	if err := checkWorkDir(spec.WorkDir); err != nil {
		return spec, err
	}
	if err := checkEnv(spec.Env); err != nil {
		return spec, err
	}
	spec.Resources = WithDefaults(spec.Resources, defaults)
	return spec, checkResources(spec.Resources)
}

// systemDirs are where a work directory would hide what the system or the guest needs.
func systemDirs() []string {
	return []string{"/bin", "/boot", "/dev", "/etc", "/lib", "/lib64", "/proc", "/run", "/sbin", "/sys", TempDir, "/usr", "/var", GuestDir}
}

func checkWorkDir(dir string) error {
	inSystem := slices.ContainsFunc(systemDirs(), func(s string) bool { return dir == s || strings.HasPrefix(dir, s+"/") })
	if !path.IsAbs(dir) || path.Clean(dir) != dir || dir == "/" || inSystem || strings.ContainsAny(dir, "\x00:,") {
		return providers.Invalid.Errorf("work directory %.200q: give an absolute, clean path outside the system's directories, such as /workspace", dir)
	}
	return nil
}

func checkEnv(env map[string]string) error {
	for name, value := range env {
		if name == "" || strings.ContainsAny(name, "=\x00") || strings.Contains(value, "\x00") {
			return providers.Invalid.Errorf("environment variable %.80q: the name must not contain '=', and neither name nor value NUL", name)
		}
	}
	return nil
}

func checkResources(r providers.Resources) error {
	switch {
	case r.CPUs < 0 || r.MemoryMB < 0 || r.DiskMB < 0 || r.Pids < 0:
		return providers.Invalid.Errorf("resources must not be negative")
	case r.MemoryMB < minMemoryMB:
		return providers.Invalid.Errorf("memory of %d MB: at least %d MB are needed", r.MemoryMB, minMemoryMB)
	case r.DiskMB > mostDiskMB(r):
		return providers.Invalid.Errorf("disk of %d MB: work directory, temporary files and programs share the sandbox's %d MB of memory; request at most %d MB of disk or more memory", r.DiskMB, r.MemoryMB, mostDiskMB(r))
	case r.Pids < minPids:
		return providers.Invalid.Errorf("limit of %d processes: at least %d are needed", r.Pids, minPids)
	case r.CPUs < minCPUs:
		return providers.Invalid.Errorf("share of %g processors: at least %g is needed", r.CPUs, minCPUs)
	default:
		return nil
	}
}
