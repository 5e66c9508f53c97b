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

// descriptors has as many descriptors under way in sockets as a user may have: no guest can start a command then whose
// limit is no higher than commands' own.
func descriptors(s *stage) {
	box, _ := s.takeAll(takeDescriptors)
	s.reached("in flight: %s", box)
	for range 5 {
		if j := s.neighbour.exec(s.t, s.neighbour.heart, "true"); j.State != "succeeded" {
			s.breach("the neighbour cannot start a command: %v", j)
		}
	}
}

// sockets is the same for what the neighbour's own programs send.
func sockets(s *stage) {
	s.useUp(takeDescriptors, `
import array, os, socket
a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
try:
    a.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [1]))])
    print("got 0")
except OSError as e:
    print("got -1", e)
`)
}

const takeDescriptors = `
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
`

// takeAll runs a program of the intruder's that takes what the kernel counts by user, and returns what it said.
func (s *stage) takeAll(take string) (said string, ok bool) {
	at := "/v1/sandboxes/" + s.intruder.own(s.t)
	into[accepted](s.t, s.intruder.post(at+"/files/write?wait=20s", object{"path": "take.py", "content": take}))
	taker := into[accepted](s.t, s.intruder.post(at+"/exec?wait=20s", object{"command": "ulimit -n 4096; python3 take.py", "background": true}))
	ok = s.eventually(s.t, longest, "the intruder has all there is", func() bool {
		said = s.intruder.get(at + "/execs/" + taker.Job.ID + "/output").head
		return strings.Contains(said, "has ")
	})
	return strings.TrimSpace(said), ok
}

// useUp has the intruder take all, and then asks for some of it for the neighbour.
func (s *stage) useUp(take, ask string) {
	into[accepted](s.t, s.neighbour.post("/v1/sandboxes/"+s.neighbour.heart+"/files/write?wait=20s", object{"path": "ask.py", "content": ask}))
	taken, _ := s.takeAll(take)
	j := s.neighbour.exec(s.t, s.neighbour.heart, "python3 ask.py")
	if !strings.Contains(j.Stdout, "got") || strings.Contains(j.Stdout, "got -1") {
		s.breach("the neighbour's programs get none: %s%s", j.Stdout, j.Stderr)
	}
	s.reached("the intruder: %s; the neighbour: %s", taken, strings.TrimSpace(j.Stdout))
}
