package hostile

import (
	"testing"
	"time"

	"sandyard/providers"
	"sandyard/providers/providertest/fixture"
)

// manyHogs take the memory together while each is smaller than the guest and makes itself, as far as it may, the
// kernel's last choice.
const manyHogs = `for i in $(seq 100); do
	sh -c 'echo 0 >/proc/self/oom_score_adj; x=$(head -c 2000000 /dev/zero | tr "\0" x); sleep 100' 2>/dev/null &
done; sleep 100`

// smallHogs must lose against the guest wherever it was given a place that they cannot take.
func smallHogs(t *testing.T, s *fixture.Suite) {
	s.NeedsLimits(t)
	r := s.NewRoomWith(t, providers.Spec{Resources: providers.Resources{MemoryMB: 96, DiskMB: 8}})
	floor := fixture.Shell(t, r, "(echo 0 >/proc/self/oom_score_adj) 2>/dev/null || echo refused")
	equals := s.OwnKernel || string(floor.Stdout) == ""
	res, err := r.Run(
		fixture.Within(t),
		providers.Command{Name: fixture.NewID(t), Shell: manyHogs, Timeout: 10 * time.Second},
	)
	if err == nil && !res.OOMKilled && !s.OwnKernel { // there they take longer than that
		t.Errorf("got %s; want that some were killed for lack of memory", fixture.Show(res))
	}
	for end := time.Now().Add(time.Minute); err == nil && time.Now().Before(end); {
		// Those of the hogs that are left may take the memory of these, too.
		if _, err = r.Run(fixture.Within(t), providers.Command{Name: fixture.NewID(t), Shell: "kill -9 -1"}); err == nil {
			res, err = r.Run(fixture.Within(t), providers.Command{Name: fixture.NewID(t), Shell: "echo on"})
		}
		if err == nil && string(res.Stdout) == "on\n" && !res.OOMKilled {
			goesOn(t, r)
			return
		}
	}
	if err == nil || !equals {
		t.Fatalf("the sandbox did not come to rest: %s, %v", fixture.Show(res), err)
	}
	t.Log("commands may make themselves the guest's equals here, and it was the kernel's choice")
	endsCleanly(t, r, err, "memory")
}

// keepers fill what is nobody's memory: it stays when the process that made it has been killed.
const keepers = `
import ctypes, errno, os, sys
libc = ctypes.CDLL(None, use_errno=True)
libc.shmat.restype = ctypes.c_void_p
libc.shmat.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_int]
libc.shmdt.argtypes = [ctypes.c_void_p]
size = 8 << 20
def segment(detach):
    id = libc.shmget(0, size, 0o1600)
    if id < 0: raise OSError(ctypes.get_errno(), "shmget")
    at = libc.shmat(id, None, 0)
    ctypes.memset(at, 1, size)
    if detach: libc.shmdt(at)
def message(n):
    id = libc.msgget(0, 0o1600)
    if id < 0: raise OSError(ctypes.get_errno(), "msgget")
    while libc.msgsnd(id, (ctypes.c_long * 1025)(1), 8192, 0o4000) == 0: pass
def semaphores(n):
    if libc.semget(0, 250, 0o1600) < 0: raise OSError(ctypes.get_errno(), "semget")
do, n = {"attached": lambda n: segment(False), "detached": lambda n: segment(True), "messages": message, "semaphores": semaphores}[sys.argv[1]], 0
try:
    while n < int(sys.argv[2]): do(n); n += 1
except OSError as e: print("refused", errno.errorcode[e.errno])
print("made", n)`

// keptMemory makes more of each kind of memory that outlives its maker than the sandbox has, one kind after the other.
func keptMemory(t *testing.T, s *fixture.Suite) {
	s.NeedsLimits(t)
	if s.OwnKernel {
		t.Skip("skipped: this kernel keeps all of it in the sandbox's own memory, and memory that runs out ends the sandbox")
	}
	r := s.NewRoomWith(t, providers.Spec{Resources: providers.Resources{MemoryMB: 96, DiskMB: 8}})
	for kind, tries := range map[string]string{
		"attached": "40", "detached": "40", "messages": "16000",
		"semaphores": "4000",
	} {
		cmd := python(keepers, kind, tries)
		cmd.Name = fixture.NewID(t)
		res, err := r.Run(fixture.Within(t), cmd)
		got := said(res)
		switch {
		case err != nil:
			t.Fatalf("%s: %v", kind, err)
		case kind == "attached" && !res.OOMKilled, kind == "detached" && (res.OOMKilled || got["made"] != tries):
			t.Errorf("%s segments: %s", kind, fixture.Show(res))
		case kind != "attached" && kind != "detached" && (res.OOMKilled || got["refused"] != "ENOSPC"):
			t.Errorf("%s: %s, want ENOSPC before the memory is full", kind, fixture.Show(res))
		}
		if res := fixture.Run(t, r, python("x = bytearray(48 << 20); print(len(x))")); res.ExitCode != 0 || res.OOMKilled {
			t.Errorf("after %s the memory is not free again: %s", kind, fixture.Show(res))
		}
	}
	goesOn(t, r)
}

// allFiller fills all that a small sandbox may write to, at the same time.
func allFiller(t *testing.T, s *fixture.Suite) {
	s.NeedsLimits(t)
	small := providers.Resources{MemoryMB: 64}
	if s.OwnKernel { // which takes some 20 MB of it for itself
		small = providers.Resources{MemoryMB: 160, DiskMB: 16}
	}
	r := s.NewRoomWith(t, providers.Spec{Resources: small})
	for _, path := range []string{"/dev/shm/full", "/tmp/full", "/workspace/full"} {
		cmd := python(fill, path)
		cmd.Name = fixture.NewID(t)
		res, err := r.Run(fixture.Within(t), cmd)
		if got := said(res); err != nil || got["refused"] != "ENOSPC" || res.OOMKilled {
			t.Errorf("%s: the program was told %v (%s, %v); want ENOSPC", path, got, fixture.Show(res), err)
		}
	}
	goesOn(t, r)
	_, err := r.WriteFile(fixture.Within(t), "more", fixture.Pattern(1<<20), 0)
	fixture.WantClass(t, err, providers.NoSpace)
	for _, path := range []string{"/workspace/full", "/tmp/full"} {
		if err := r.Remove(fixture.Within(t), path); err != nil {
			t.Errorf("remove: %v", err)
		}
	}
	fixture.MustWrite(t, r, "more", "there is space again")
}
