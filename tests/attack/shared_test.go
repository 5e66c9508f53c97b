//go:build attack

package attack

import "strings"

// watchers take all inotify instances that a user may have.
func watchers(s *stage) {
	s.useUp(`
import ctypes, time
libc = ctypes.CDLL(None)
n = 0
while n < 4000 and libc.inotify_init1(0) >= 0: n += 1
print("has", n, flush=True)
time.sleep(600)
`, `
import ctypes
print("got", ctypes.CDLL(None).inotify_init1(0))
`)
}

// descriptors has as many descriptors under way in sockets as a user may have.
func descriptors(s *stage) {
	s.useUp(`
import array, os, socket, time
f, n, held = os.open("/dev/null", os.O_RDONLY), 0, []
try:
    for _ in range(400):
        a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        held += [a, b]
        for _ in range(4):
            a.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [f] * 250))])
            n += 250
except OSError as e:
    print(e)
print("has", n, flush=True)
time.sleep(600)
`, `
import array, os, socket
a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
try:
    a.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [1]))])
    print("got 0")
except OSError as e:
    print("got -1", e)
`)
}

// useUp runs a program of the intruder's that takes what the kernel counts by user, and then asks for some of it for the
// neighbour, who must get it.
func (s *stage) useUp(take, ask string) {
	box := s.intruder.own(s.t)
	at := "/v1/sandboxes/" + box
	into[accepted](s.t, s.intruder.post(at+"/files/write?wait=20s", object{"path": "take.py", "content": take}))
	taker := into[accepted](s.t, s.intruder.post(at+"/exec?wait=20s", object{"command": "ulimit -n 4096; python3 take.py", "background": true}))
	said := func() string { return s.intruder.get(at + "/execs/" + taker.Job.ID + "/output").head }
	s.rig.eventually(s.t, longest, "the intruder has all there is", func() bool { return strings.Contains(said(), "has ") })
	into[accepted](s.t, s.neighbour.post("/v1/sandboxes/"+s.neighbour.heart+"/files/write?wait=20s", object{"path": "ask.py", "content": ask}))
	j := s.neighbour.exec(s.t, s.neighbour.heart, "python3 ask.py")
	if !strings.Contains(j.Stdout, "got") || strings.Contains(j.Stdout, "got -1") {
		s.breach("the neighbour gets none: %s%s", j.Stdout, j.Stderr)
	}
	s.reached("the intruder took all; the neighbour %s", strings.TrimSpace(j.Stdout))
}
