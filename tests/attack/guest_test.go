//go:build attack

package attack

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

func (r *rig) cache() *redis.Client {
	return redis.NewClient(&redis.Options{Network: "unix", Addr: r.redis})
}

// signals has programs send the sandbox's first process what ends it.
func signals(s *stage) {
	for what, command := range map[string]string{
		"kill -q":                 "/usr/bin/kill -s SEGV -q 1 1",
		"every signal, queued":    "for i in $(seq 1 64); do /usr/bin/kill -s $i -q 1 1; done",
		"every signal":            "for i in $(seq 1 64); do kill -$i 1; done",
		"a descriptor that tells": `python3 -c 'import fcntl,os,signal; r,w=os.pipe(); fcntl.fcntl(r,10,signal.SIGSEGV); fcntl.fcntl(r,8,1); fcntl.fcntl(r,4,0o20000); os.write(w,b"x")'`,
	} {
		box := s.intruder.box(s.t, object{"memory_mb": 64, "disk_mb": 8})
		s.intruder.post("/v1/sandboxes/"+box+"/exec?wait=10s", object{"command": command})
		after := s.intruder.post("/v1/sandboxes/"+box+"/exec?wait=10s", object{"command": "echo alive"})
		state := s.intruder.get("/v1/sandboxes/" + box).text("state")
		if !after.ok() || state != "running" {
			s.breach("%s ends its sandbox: %s", what, state)
		}
		s.reached("%s: %s", what, state)
	}
}

// deepTrees makes directories inside each other until their path is beyond all limits.
func deepTrees(s *stage) {
	box := s.intruder.own(s.t)
	s.intruder.exec(s.t, box, `python3 -c '
import os
for _ in range(5000):
    os.mkdir("d"); os.chdir("d")
'`)
	for _, c := range []request{
		{method: "POST", path: "/files/list", body: object{"path": "d", "depth": 16}},
		{method: "POST", path: "/files/remove", body: object{"path": "d"}},
	} {
		r := s.intruder.post("/v1/sandboxes/"+box+c.path+"?wait=30s", c.body)
		j := s.intruder.end(s.t, into[accepted](s.t, r).Job.ID)
		if j.Error != nil && j.Error.Code == "provider_error" {
			s.breach("%s of a tree of 5,000 levels: %v", c.path, j)
		}
		s.reached("%s: %s", c.path, j.State)
	}
}

// hooks has the workers call addresses of the installation.
func hooks(s *stage) {
	listener, calls := s.listen()
	_, port, _ := net.SplitHostPort(listener)
	box := s.intruder.own(s.t)
	answers := &tally{}
	var made []string
	for _, host := range []string{
		"127.0.0.1", "localhost", "2130706433", "0x7f.1", "017700000001", "[::1]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "0.0.0.0", "[::]", "169.254.169.254", "10.0.0.1", "127.1",
		"[64:ff9b::7f00:1]", "localhost.",
	} {
		r := s.intruder.post("/v1/sandboxes/"+box+"/exec?wait=10s", object{"command": "true", "callback_url": "http://" + host + ":" + port + "/"})
		if answers.add(r); r.ok() {
			made = append(made, into[accepted](s.t, r).Job.ID)
			s.reached("%s is taken", host)
		}
	}
	for _, id := range made {
		r := s.intruder.get("/v1/jobs/" + id + "/deliveries")
		for _, address := range []string{"127.0.0.1", "127.0.0.53", "::1", "10.0.0.1 is", "no such host"} {
			if _, said, ok := strings.Cut(r.head, `"last_error"`); ok && strings.Contains(said, address) {
				s.breach("a delivery's error tells %s: %.300s", address, said)
			}
		}
	}
	if n := calls.Load(); n > 0 {
		s.breach("a callback reached the installation's machine %d times", n)
	}
	s.reached("callbacks to the inside: %v", answers)
}

// times asks for usage of times that no calendar has.
func times(s *stage) {
	answers := &tally{}
	for _, q := range []string{
		"to=9999-12-31T23:59:59Z", "from=0001-01-01T00:00:00Z", "from=9999-12-31T00:00:00Z&to=9999-12-31T23:59:59.999999999Z", "from=-001-01-01T00:00:00Z", "to=x",
		"from=2026-01-01T00:00:00%2B99:99", "from=2000-01-01T00:00:00Z&to=2020-01-01T00:00:00Z", "group_by=" + strings.Repeat("day,", 2000), "group_by=tenant", "limit=99999999999",
	} {
		answers.add(s.intruder.get("/v1/usage?" + q))
	}
	s.reached("%v", answers)
}

// smuggled sends two requests in one where a proxy sees one.
func smuggled(s *stage) {
	hidden := "GET /v1/hidden HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + s.intruder.key + "\r\n\r\n"
	head := "POST /v1/jobs HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + s.intruder.key + "\r\nContent-Type: application/json\r\n"
	for what, text := range map[string]string{
		"length and chunks":     head + fmt.Sprintf("Content-Length: %d\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 5+len(hidden)) + hidden,
		"a blank in the header": head + fmt.Sprintf("Content-Length: %d\r\nTransfer-Encoding : chunked\r\n\r\n", 0) + hidden,
		"two encodings":         head + "Transfer-Encoding: identity\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + hidden,
		"two lengths":           head + "Content-Length: 0\r\nContent-Length: 5\r\n\r\n" + hidden,
		"two hosts":             "GET /healthz HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n" + hidden,
		"another version":       "GET /healthz HTTP/2.0\r\nHost: x\r\n\r\n" + hidden,
	} {
		n, first := s.raw(text)
		if n > 1 {
			s.breach("%s: two requests are answered", what)
		}
		s.reached("%s: %d answers, first %s", what, n, first)
	}
}

// raw sends text and counts the answers.
func (s *stage) raw(text string) (n int, first string) {
	conn, err := net.Dial("tcp", s.api)
	must(s.t, err)
	defer conn.Close()
	must(s.t, conn.SetDeadline(time.Now().Add(2*time.Second)))
	_, _ = io.WriteString(conn, text)
	in := bufio.NewReader(conn)
	for {
		res, err := http.ReadResponse(in, nil)
		if err != nil {
			return n, first
		}
		_, _ = io.Copy(io.Discard, res.Body)
		res.Body.Close()
		if n++; n == 1 {
			first = fmt.Sprint(res.StatusCode)
		}
	}
}

// earlyWaits waits for a command in the background that was accepted and has not begun.
func earlyWaits(s *stage) {
	at := "/v1/sandboxes/" + s.intruder.own(s.t)
	s.intruder.post(at+"/exec", object{"command": "sleep 2"})
	back := into[accepted](s.t, s.intruder.post(at+"/exec", object{"command": "true", "background": true}))
	r := s.intruder.post(at+"/execs/"+back.Job.ID+"/wait?wait=20s", object{})
	if !r.ok() {
		s.breach("the wait is answered %v", r)
		return
	}
	j := s.intruder.end(s.t, into[accepted](s.t, r).Job.ID)
	if j.State != "succeeded" {
		s.breach("the wait ends %v", j)
	}
	s.reached("%v", j)
}
