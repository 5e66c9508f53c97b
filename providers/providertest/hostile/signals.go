package hostile

import (
	"strconv"
	"strings"
	"testing"

	"sandyard/providers/providertest/fixture"
)

// forged sends process 1 and its threads the signals of faults so that they look like the kernel's own: queued, through
// a pidfd, and as the news of a file. Then it does with the same calls what ordinary programs do.
const forged = `
import ctypes, fcntl, os, platform, signal, struct, sys
if platform.machine() != "x86_64": sys.exit(3)
libc = ctypes.CDLL(None, use_errno=True)
def call(*args): return libc.syscall(*[ctypes.c_long(a) if isinstance(a, int) else a for a in args])
def info(n): return ctypes.create_string_buffer(struct.pack("iii", n, 0, -1) + bytes(116), 128) # SI_QUEUE
faults = [4, 5, 7, 8, 11, 16, 31]
for n in faults:
    for high in [0, 1 << 32]:
        for tid in range(1, 40):
            call(129, tid, n + high, info(n))
            call(297, 1, tid, n + high, info(n))
    pidfd = call(434, 1, 0)
    if pidfd >= 0: call(424, pidfd, n, info(n), 0)
    for high in [0, 1 << 32]:
        r, w = os.pipe()
        call(72, r, 10 + high, n)
        call(72, r, 8, 1)
        call(72, r, 15, struct.pack("ii", 1, 1))
        fcntl.fcntl(r, fcntl.F_SETFL, os.O_ASYNC)
        os.write(w, b"x")
heard = []
for n in [signal.SIGUSR1, signal.SIGRTMIN + 3, signal.SIGRTMAX]:
    signal.signal(n, lambda n, frame: heard.append(n))
    if call(129, os.getpid(), int(n), info(n)) or call(297, os.getpid(), os.getpid(), int(n), info(n)): print("not queued", n)
    signal.pidfd_send_signal(os.pidfd_open(os.getpid()), n)
    if heard.count(n) < 1: print("not heard", n)
signal.signal(signal.SIGSEGV, lambda n, frame: heard.append(n))
os.kill(os.getpid(), signal.SIGSEGV)
r, w = os.pipe()
fcntl.fcntl(w, 1031, 4096); fcntl.fcntl(w, fcntl.F_GETFL); fcntl.fcntl(w, fcntl.F_DUPFD_CLOEXEC, 3); fcntl.fcntl(w, fcntl.F_SETOWN, os.getpid()); fcntl.fcntl(w, fcntl.F_GETOWN)
fd = os.open("/tmp/lock", os.O_RDWR | os.O_CREAT)
fcntl.lockf(fd, fcntl.LOCK_EX); fcntl.fcntl(os.open("/tmp/other", os.O_RDWR | os.O_CREAT), 37, struct.pack("hhqqi4x", 1, 0, 0, 0, 0)); fcntl.fcntl(os.memfd_create("m", 2), 1033, 1)
print("done")`

// forgedFaults ends neither the sandbox nor programs that use the same calls as they are meant.
func forgedFaults(t *testing.T, s *fixture.Suite) {
	s.NeedsSystem(t)
	if s.OwnKernel {
		t.Skip("skipped: a kernel of its own knows no list of calls; there a guest that ends is a sandbox that is lost")
	}
	r := s.NewRoom(t)
	for _, command := range []string{"SEGV", "BUS", "TRAP"} {
		fixture.Shell(t, r, "/usr/bin/kill -s "+command+" -q 1 1; true")
	}
	cmd := python(forged)
	cmd.Name = fixture.NewID(t)
	res, err := r.Run(fixture.Within(t), cmd)
	if err != nil {
		t.Fatalf("the guest has ended: %v", err)
	}
	if res.ExitCode == 3 {
		t.Skip("skipped: the numbers of the calls are those of x86-64")
	}
	if got := strings.TrimSpace(string(res.Stdout)); got != "done" {
		t.Errorf("ordinary programs cannot: %s", fixture.Show(res))
	}
	goesOn(t, r)
}

// floodSignals sends process 1 every signal from four processes, more often than would fit into the kernel's queue:
// argv says how often, and which ones not.
const floodSignals = `
import os, sys
os.fork(), os.fork()
for _ in range(int(sys.argv[1])):
    for n in range(1, 65):
        if str(n) not in sys.argv[2:]: os.kill(1, n)
print("done")`

// signalsWithoutEnd starts commands all the while. They go on, and none has inherited what protects the first process.
func signalsWithoutEnd(t *testing.T, s *fixture.Suite) {
	s.NeedsSystem(t)
	r := s.NewRoom(t)
	flood := python(floodSignals, "4000")
	if s.OwnKernel { // which does not keep SIGKILL and SIGSTOP from process 1
		flood = python(floodSignals, "100", "9", "19")
	}
	flood.Name = fixture.NewID(t)
	ended := make(chan error, 1)
	ctx := fixture.Within(t)
	go func() {
		_, err := r.Run(ctx, flood)
		ended <- err
	}()
	for range 30 {
		wantDefaults(t, string(fixture.Shell(t, r, "exec cat /proc/self/status").Stdout))
	}
	if err := <-ended; err != nil {
		t.Errorf("the program did not end: %v", err)
	}
	wantDefaults(t, string(fixture.Shell(t, r, "exec cat /proc/self/status").Stdout))
	goesOn(t, r)
}

// wantDefaults looks in the text of /proc/self/status for signals that are not as a program expects them.
func wantDefaults(t *testing.T, status string) {
	t.Helper()
	for _, name := range []string{"SigBlk", "SigIgn", "SigCgt"} {
		_, rest, _ := strings.Cut(status, name+":")
		line, _, _ := strings.Cut(rest, "\n")
		if mask, err := strconv.ParseUint(strings.TrimSpace(line), 16, 64); rest != "" && (mask != 0 || err != nil) {
			t.Errorf("a command has %s %s", name, line)
		}
	}
}
