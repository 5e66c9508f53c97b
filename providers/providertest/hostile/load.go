package hostile

import (
	"strconv"
	"testing"
	"time"

	"sandyard/providers"
	"sandyard/providers/providertest/fixture"
)

// burden runs a command that loads its sandbox. Where the sandbox has a kernel of its own, that may be too busy to
// answer, and the sandbox be ended for it. gVisor's dies of a lack of threads.
func burden(t *testing.T, s *fixture.Suite, r fixture.Room, cmd providers.Command) (res providers.Result, ended bool) {
	t.Helper()
	cmd.Name = fixture.NewID(t)
	res, err := r.Run(fixture.Within(t), cmd)
	if err == nil && s.OwnKernel { // it may have the answer out and fall over what comes next
		_, err = r.Run(fixture.Within(t), providers.Command{Name: fixture.NewID(t), Shell: "true"})
	}
	switch {
	case err == nil:
	case s.OwnKernel:
		endsCleanly(t, r, err, "sandbox")
	default:
		t.Fatal(err)
	}
	return res, err != nil
}

func forkBomb(t *testing.T, s *fixture.Suite) {
	s.NeedsLimits(t)
	r := s.NewRoomWith(t, providers.Spec{Resources: providers.Resources{Pids: 96}})
	res, ended := burden(t, s, r, providers.Command{Shell: `f() { f | f & }; f; sleep 1000`, Timeout: 2 * time.Second})
	if ended {
		return
	}
	if !res.TimedOut && res.ExitCode == 0 {
		t.Errorf("got %s", fixture.Show(res))
	}
	goesOn(t, r)
	if left := fixture.Alive(t, r, "bash -c f()"); left != "" {
		t.Errorf("left behind:\n%s", left)
	}
}

// processesAreCounted starts as many as there can be, which the machine's own table must not be.
func processesAreCounted(t *testing.T, s *fixture.Suite) {
	s.NeedsLimits(t)
	const pids, guests = 64, 40
	r := s.NewRoomWith(t, providers.Spec{Resources: providers.Resources{Pids: pids, MemoryMB: 1024}})
	res, ended := burden(t, s, r, python(`
import os, signal
n = 0
try:
    while n < 1000:
        if os.fork() == 0: signal.pause()
        n += 1
except OSError as e: print(e.strerror)
print("started", n, flush=True)
os.killpg(0, signal.SIGKILL)`))
	if ended {
		return
	}
	n, err := strconv.Atoi(said(res)["started"])
	if err != nil || n < pids/2 || n > pids+guests {
		t.Errorf("%d processes started, %v: %s; the limit is %d", n, err, fixture.Show(res), pids)
	}
	goesOn(t, r)
}

func memoryHog(t *testing.T, s *fixture.Suite) {
	s.NeedsLimits(t)
	r := s.NewRoomWith(t, providers.Spec{Resources: providers.Resources{MemoryMB: 128, DiskMB: 16}})
	hog := python("x = []\nwhile True: x.append(bytearray(8 << 20))")
	hog.Name = fixture.NewID(t)
	res, err := r.Run(fixture.Within(t), hog)
	if s.OwnKernel {
		endsCleanly(t, r, err, "memory")
		return
	}
	if err != nil || !res.OOMKilled || res.TimedOut || res.ExitCode == 0 {
		t.Errorf("got %s, %v; want it killed for lack of memory", fixture.Show(res), err)
	}
	goesOn(t, r)
}

// fill writes into a new file until it is refused, and prints why and how much was written.
const fill = `
import sys, errno
n, block = 0, bytes(1 << 20)
f = open(sys.argv[1], "wb", buffering=0)
try:
    while n < 1 << 30: n += f.write(block)
except OSError as e: print("refused", errno.errorcode[e.errno])
print("wrote", n >> 20)`

func diskFiller(t *testing.T, s *fixture.Suite) {
	s.NeedsLimits(t)
	r := s.NewRoomWith(t, providers.Spec{Resources: providers.Resources{MemoryMB: 256, DiskMB: 24}})
	if got := said(fixture.Run(t, r, python(fill, "/workspace/full"))); got["refused"] != "ENOSPC" ||
		got["wrote"] != "24" {
		t.Errorf("the program was told %v; want ENOSPC after 24 MiB", got)
	}
	_, err := r.WriteFile(fixture.Within(t), "more", fixture.Pattern(1<<20), 0)
	fixture.WantClass(t, err, providers.NoSpace)
	goesOn(t, r)
	if err := r.Remove(fixture.Within(t), "full"); err != nil {
		t.Errorf("remove: %v", err)
	}
	fixture.MustWrite(t, r, "more", "there is space again")
}

func tempFiller(t *testing.T, s *fixture.Suite) {
	s.NeedsLimits(t)
	r := s.NewRoomWith(t, providers.Spec{Resources: providers.Resources{MemoryMB: 256, DiskMB: 24}})
	if got := said(fixture.Run(t, r, python(fill, "/tmp/full"))); got["refused"] != "ENOSPC" || got["wrote"] != "64" {
		t.Errorf("the program was told %v; want ENOSPC after 64 MiB", got)
	}
	_, err := r.WriteFile(fixture.Within(t), "/tmp/more", fixture.Pattern(1<<20), 0)
	fixture.WantClass(t, err, providers.NoSpace)
	goesOn(t, r)
	fixture.MustWrite(t, r, "elsewhere", "the work directory is not full")
}

func inodeFiller(t *testing.T, s *fixture.Suite) {
	s.NeedsLimits(t)
	r := s.NewRoom(t)
	got := said(fixture.Run(t, r, python(`
import os, errno
n = 0
try:
    while n < 12000:
        os.close(os.open("/tmp/%d" % n, os.O_CREAT | os.O_WRONLY))
        n += 1
except OSError as e: print("refused", errno.errorcode[e.errno])
print("made", n)`)))
	n, err := strconv.Atoi(got["made"])
	// A kernel of its own keeps inodes in the memory that it is given.
	if err != nil || !s.OwnKernel && (got["refused"] != "ENOSPC" || n > 10<<10) {
		t.Errorf("the program was told %v", got)
	}
	goesOn(t, r)
}

func fileHoarder(t *testing.T, s *fixture.Suite) {
	s.NeedsLimits(t)
	r := s.NewRoom(t)
	got := said(fixture.Run(t, r, python(`
import os, resource, errno
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
try: resource.setrlimit(resource.RLIMIT_NOFILE, (hard + 1, hard + 1))
except (OSError, ValueError): print("raise refused")
n = 0
try:
    while n < 100000: os.open("/dev/null", os.O_RDONLY); n += 1
except OSError as e: print("open", errno.errorcode[e.errno])
print("opened", n)`)))
	if n, err := strconv.Atoi(got["opened"]); err != nil || n > 4096 || got["raise"] != "refused" ||
		got["open"] != "EMFILE" {
		t.Errorf("the program was told %v", got)
	}
	goesOn(t, r)
}

func gibibyteOfOutput(t *testing.T, s *fixture.Suite) {
	s.NeedsSystem(t)
	size := int64(1 << 30)
	if s.OwnKernel {
		size = 64 << 20 // its pipes are slow
	}
	r := s.NewRoom(t)
	res := fixture.Run(
		t,
		r,
		providers.Command{
			Argv:      []string{"head", "-c", strconv.FormatInt(size, 10), "/dev/zero"},
			MaxOutput: 1000,
			Timeout:   5 * time.Minute,
		},
	)
	if res.StdoutBytes != size || len(res.Stdout) != 1000 || !res.Truncated() || res.ExitCode != 0 {
		t.Errorf("got %s", fixture.Show(res))
	}
	goesOn(t, r)
}

// count counts for two seconds in as many processes as it is told, and prints how far they came together per second.
const count = `
import os, sys, time
pipe, begun = os.pipe(), time.monotonic()
for _ in range(int(sys.argv[1])):
    if os.fork() == 0:
        n = 0
        while time.monotonic() < begun + 2: n += 1
        os.write(pipe[1], n.to_bytes(8, "little"))
        os._exit(0)
total = sum(int.from_bytes(os.read(pipe[0], 8), "little") for _ in range(int(sys.argv[1])))
print("rate", int(total / (time.monotonic() - begun)))
for _ in range(int(sys.argv[1])): os.wait()
used = os.times()
print("cores", (used.children_user + used.children_system) / (time.monotonic() - begun))`

// processorHog lets one sandbox count in many processes and another in one: as sandboxes they are equals, and none has
// more than its share of a core, also while others leave it free.
func processorHog(t *testing.T, s *fixture.Suite) {
	s.NeedsLimits(t)
	spec := providers.Spec{Resources: providers.Resources{CPUs: 0.2}}
	hog, other := s.NewRoomWith(t, spec), s.NewRoomWith(t, spec)
	rates := make(chan int)
	for r, processes := range map[fixture.Room]string{hog: "12", other: "1"} {
		go func() {
			cmd := python(count, processes)
			cmd.Name = fixture.NewID(t)
			res, err := r.Run(t.Context(), cmd)
			rate, parseErr := strconv.Atoi(said(res)["rate"])
			if err != nil || parseErr != nil {
				t.Errorf("count in %s processes: %s, %v", processes, fixture.Show(res), err)
			}
			// gVisor's kernel counts the time of all processes that would run as used.
			if used, err := strconv.ParseFloat(said(res)["cores"], 64); !s.OwnKernel &&
				(err != nil || used > 1.5*spec.Resources.CPUs) {
				t.Errorf("%s processes used %.2f cores, %v; their share is %.1f", processes, used, err, spec.Resources.CPUs)
			}
			if r == other {
				rate = -rate
			}
			rates <- rate
		}()
	}
	// On a busy machine nobody could have used more. The control group says what holds on any.
	const quota = `cd /sys/fs/cgroup; cat cpu.max 2>/dev/null || (cat cpu*/cpu.cfs_quota_us cpu*/cpu.cfs_period_us | xargs)`
	if res := fixture.Shell(t, hog, quota); !s.OwnKernel && string(res.Stdout) != "20000 100000\n" {
		t.Errorf("its control group lets it use %s, want 20000 100000", fixture.Show(res))
	}
	greedy, modest := <-rates, <-rates
	if greedy < 0 {
		greedy, modest = modest, greedy
	}
	if -modest*4 < greedy {
		t.Errorf("12 processes counted %d per second in one sandbox while one process counted %d in another", greedy, -modest)
	}
	goesOn(t, other)
}
