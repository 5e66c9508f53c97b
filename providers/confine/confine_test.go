package confine_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
	"go.uber.org/goleak"

	"sandyard/providers"
	"sandyard/providers/confine"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestComplete(t *testing.T) {
	t.Parallel()
	spec, err := confine.Complete(providers.Spec{ID: "a1", Image: "i", Resources: providers.Resources{MemoryMB: 128}}, providers.StandardResources())
	want := providers.Resources{CPUs: 1, MemoryMB: 128, DiskMB: 64, Pids: 256}
	if err != nil || spec.WorkDir != confine.WorkDir || spec.Resources != want {
		t.Errorf("got %+v, %v; want %+v", spec, err, want)
	}
	for name, wrong := range map[string]func(*providers.Spec){
		"long id":       func(s *providers.Spec) { s.ID = strings.Repeat("a", 65) },
		"path as id":    func(s *providers.Spec) { s.ID = "a/b" },
		"no id":         func(s *providers.Spec) { s.ID = "" },
		"no image":      func(s *providers.Spec) { s.Image = "" },
		"system's dir":  func(s *providers.Spec) { s.WorkDir = "/usr/x" },
		"guest's dir":   func(s *providers.Spec) { s.WorkDir = confine.GuestDir },
		"option in dir": func(s *providers.Spec) { s.WorkDir = "/a,exec" },
		"name with =":   func(s *providers.Spec) { s.Env = map[string]string{"A=B": ""} },
		"little memory": func(s *providers.Spec) { s.Resources.MemoryMB = 8 },
		"disk > memory": func(s *providers.Spec) { s.Resources.DiskMB = 1 << 20 },
		"few processes": func(s *providers.Spec) { s.Resources.Pids = 2 },
		"few cpus":      func(s *providers.Spec) { s.Resources.CPUs = 0.001 },
		"negative cpus": func(s *providers.Spec) { s.Resources.CPUs = -1 },
	} {
		spec := providers.Spec{ID: "a1", Image: "i"}
		wrong(&spec)
		if _, err := confine.Complete(spec, providers.StandardResources()); err == nil || providers.AsError(err).Class != providers.Invalid {
			t.Errorf("%s: got %v, want class %s", name, err, providers.Invalid)
		}
	}
}

// TestFilesFitIntoMemory has all that a sandbox may write to full at once, with room left for its programs.
func TestFilesFitIntoMemory(t *testing.T) {
	t.Parallel()
	for memory := int64(32); memory <= 4096; memory++ {
		for _, disk := range []int64{0, 1, memory / 4, memory - 40} {
			spec, err := confine.Complete(providers.Spec{ID: "a1", Image: "i", Resources: providers.Resources{MemoryMB: memory, DiskMB: max(0, disk)}}, providers.StandardResources())
			if err != nil {
				if disk == 0 {
					t.Errorf("%d MB with a disk by default: %v", memory, err)
				}
				continue
			}
			r := spec.Resources
			temp, shared := confine.TempMB(r), confine.SharedMB(r)
			if r.DiskMB < 1 || temp < 4 || shared < 4 || r.DiskMB+temp+shared+16 > memory {
				t.Errorf("%d MB hold %d of disk, %d of temporary files and %d of shared memory", memory, r.DiskMB, temp, shared)
			}
		}
	}
}

// TestCallsAreNarrow looks at the list itself; the hostile suite of providertest shows it in force.
func TestCallsAreNarrow(t *testing.T) {
	t.Parallel()
	list := confine.Calls()
	if list.DefaultAction != specs.ActErrno {
		t.Fatalf("what is not listed ends in %s", list.DefaultAction)
	}
	never := []string{"ptrace", "process_vm_readv", "process_vm_writev", "pidfd_getfd", "socketcall", "io_uring_setup", "io_uring_enter", "io_uring_register", "keyctl", "add_key", "userfaultfd", "kexec_load"}
	for _, rule := range list.Syscalls {
		if rule.Includes != nil && len(rule.Includes.Caps) > 0 {
			continue // no sandbox has a capability
		}
		for _, name := range rule.Names {
			conditional := name == "socket" || name == "prlimit64"
			if rule.Action == specs.ActAllow && (slices.Contains(never, name) || conditional && len(rule.Args) == 0) {
				t.Errorf("%s is allowed: %+v", name, rule)
			}
		}
	}
	for _, arch := range list.ArchMap {
		if len(arch.SubArches) > 0 {
			t.Errorf("%s also takes the calls of %v", arch.Arch, arch.SubArches)
		}
	}
}
