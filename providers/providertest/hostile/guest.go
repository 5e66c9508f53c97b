package hostile

import (
	"errors"
	"strings"
	"testing"
	"time"

	"sandyard/dev/testenv"
	"sandyard/providers"
	"sandyard/providers/providertest/fixture"
)

// beset attacks every process that is not its own: by its files in /proc, by tracing, by its limits and by signals that
// do not end the first one.
const beset = `
import os, ctypes, errno, resource, signal
libc = ctypes.CDLL(None, use_errno=True)
for pid in [1, os.getppid()]:
    for name in os.listdir("/proc/%d" % pid) + ["fd/%d" % n for n in range(16)]:
        try:
            fd = os.open("/proc/%d/%s" % (pid, name), os.O_WRONLY | os.O_NONBLOCK)
            if name.startswith("fd/") or name == "mem":
                print("opened", pid, name)
                os.write(fd, b"\xff" * 4096)
        except OSError: pass
    for request in [16, 0x4206]:
        if libc.ptrace(request, pid, 0, 0) == 0: print("traced", pid)
    try: resource.prlimit(pid, resource.RLIMIT_NOFILE, (3, 3))
    except (OSError, PermissionError): pass
for n in [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGPIPE, signal.SIGSEGV, signal.SIGABRT, signal.SIGCHLD, signal.SIGTSTP]:
    try: os.kill(1, n)
    except OSError: pass
print("done")`

// besetGuest lets a program do to the guest what it can short of killing it, all at once and then over again.
func besetGuest(t *testing.T, s *fixture.Suite) {
	s.NeedsSystem(t)
	r := s.NewRoom(t)
	for range 3 {
		cmd := python(beset)
		cmd.Name = fixture.NewID(t)
		res, err := r.Run(fixture.Within(t), cmd)
		if err != nil && s.OwnKernel { // which lets a user limit and signal his own processes, process 1 among them
			testenv.Eventually(t, "the sandbox is lost", func() bool {
				_, err := r.Worker.Open(t.Context(), r.ID)
				return errors.Is(err, providers.ErrLost)
			})
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		if got := string(res.Stdout); got != "done\n" {
			t.Errorf("the program got through: %s", fixture.Show(res))
		}
	}
	goesOn(t, r)
	fixture.MustWrite(t, r, "a/b", "files as well")
	fixture.WantFile(t, r, "a/b", "files as well")
}

// limitedGuest lowers one limit of the first process for good. A sandbox that this has made useless must not look as if
// it were busy.
func limitedGuest(t *testing.T, s *fixture.Suite) {
	s.NeedsSystem(t)
	for _, limit := range []string{"NOFILE", "FSIZE", "NPROC", "AS"} {
		t.Run(limit, func(t *testing.T) {
			t.Parallel()
			r := s.NewRoom(t)
			cmd := python("import resource\nresource.prlimit(1, resource.RLIMIT_" + limit + ", (3, 3))")
			cmd.Name = fixture.NewID(t)
			_, err := r.Run(fixture.Within(t), cmd)
			for range 2 {
				if err == nil {
					_, err = r.WriteFile(fixture.Within(t), "f", fixture.Pattern(1000), 0)
				}
				if err == nil {
					_, err = r.Run(fixture.Within(t), providers.Command{Name: fixture.NewID(t), Shell: "true"})
				}
			}
			if err != nil && s.OwnKernel {
				endsCleanly(t, r, err, "sandbox")
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			goesOn(t, r)
		})
	}
}

// killedGuest kills and stops the first process. Under the machine's kernel it is deaf to both; where it dies the
// sandbox must be told to be lost.
func killedGuest(t *testing.T, s *fixture.Suite) {
	s.NeedsSystem(t)
	for _, signal := range []string{"KILL", "STOP"} {
		t.Run(signal, func(t *testing.T) {
			t.Parallel()
			r := s.NewRoom(t)
			cmd := providers.Command{
				Name:    fixture.NewID(t),
				Shell:   "kill -" + signal + " 1; sleep 1; echo lives",
				Timeout: time.Minute,
			}
			res, err := r.Run(fixture.Within(t), cmd)
			switch {
			case err != nil && s.OwnKernel:
				endsCleanly(t, r, err, "sandbox")
			case err != nil || string(res.Stdout) != "lives\n":
				t.Errorf("got %s, %v", fixture.Show(res), err)
			default:
				goesOn(t, r)
			}
		})
	}
}

// callGuest looks for a way to the guest's calls from within: its port as outsiders know it, whatever else listens, and
// the first process's own input and output.
const callGuest = `
import glob, os, socket
def table(name):
    try: return [line.split() for line in open("/proc/net/" + name).readlines()[1:]]
    except OSError: return []
for row in table("tcp") + table("tcp6"):
    if row[3] == "0A": print("listens", row[1])
for row in table("unix"):
    if int(row[3], 16) & 0x10000: print("listens", row)
for family, host in [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")]:
    try:
        with socket.create_connection((host, 49983), 2) as s:
            s.sendall(b"GET /envs HTTP/1.1\r\nHost: guest\r\n\r\n")
            print("answered", s.recv(100))
    except OSError: pass
for way in glob.glob("/proc/1/fd/*") + ["/proc/1/fd/0", "/proc/1/fd/1"]:
    for mode in [os.O_RDONLY, os.O_WRONLY]:
        try: print("opened", way, os.open(way, mode | os.O_NONBLOCK))
        except OSError: pass
print("done")`

// guestsCalls shows that no program in the sandbox reaches the guest's calls, with a token or without.
func guestsCalls(t *testing.T, s *fixture.Suite) {
	s.NeedsSystem(t)
	r := s.NewRoom(t)
	cmd := python(callGuest)
	cmd.Name = fixture.NewID(t)
	for line := range strings.Lines(string(fixture.Run(t, r, cmd).Stdout)) {
		// gVisor's kernel of 2022 lets a user open what his other processes have open. What a program makes of that is
		// besetGuest's matter; calls it does not get.
		if line != "done\n" && (!s.OwnKernel || !strings.HasPrefix(line, "opened ")) {
			t.Errorf("the program found a way: it %s", line)
		}
	}
	goesOn(t, r)
}

// falseGuest plays a guest of its own to whoever reads a command's output, and starts the real program again.
func falseGuest(t *testing.T, s *fixture.Suite) {
	s.NeedsSystem(t)
	r := s.NewRoom(t)
	res := fixture.Run(t, r, providers.Command{Shell: `for i in 1 2 3; do
	(sleep 1 | timeout -s KILL 5 /.sandyard/guest stdio -workdir /workspace) | head -c 1000
done; head -c 100000 /.sandyard/guest; cat /dev/urandom | head -c 300000 >&2`, Timeout: time.Minute})
	if res.StderrBytes < 300000 || res.StdoutBytes < 100000 {
		t.Errorf("got %s", fixture.Show(res))
	}
	if left := fixture.Alive(t, r, "/.sandyard/guest stdio -workdir /workspace "); strings.Count(left, "\n") > 0 {
		t.Errorf("guests now:\n%s", left)
	}
	goesOn(t, r)
}
