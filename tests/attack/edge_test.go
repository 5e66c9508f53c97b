//go:build attack

package attack

import (
	"net/url"
	"strings"
	"time"
)

// lyingServer answers as no server should, from inside of a sandbox.
const lyingServer = `cat >lie.py <<'END'
import socket
s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1); s.bind(("127.0.0.1", 8000)); s.listen(64)
while True:
    c, _ = s.accept()
    path = c.recv(65536).split(b" ")[1]
    if b"chunks" in path: c.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nx")
    elif b"nothing" in path: pass
    elif b"accel" in path: c.sendall(b"HTTP/1.1 200 OK\r\nX-Accel-Redirect: /internal\r\nX-Sendfile: /etc/shadow\r\nSandyard-Reason: x\r\nContent-Length: 2\r\n\r\nok")
    elif b"trailer" in path: c.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: Sandyard-Reason, Set-Cookie\r\n\r\n2\r\nok\r\n0\r\nSandyard-Reason: x\r\nSet-Cookie: a=b\r\n\r\n")
    else: c.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
    c.close()
END
`

// lies has a sandbox's own server deceive the edge and whoever stands before it.
func lies(s *stage) {
	box := s.intruder.own(s.t)
	s.intruder.exec(s.t, box, lyingServer)
	s.intruder.post("/v1/sandboxes/"+box+"/exec?wait=10s", object{"command": "python3 lie.py", "background": true})
	host := "8000-" + box + ".localhost"
	visit := func(path, as string) reply {
		return s.intruder.caller.do(request{method: "GET", path: path, host: s.edge, as: as, patience: 15 * time.Second})
	}
	visit("/", host) // the edge now knows the sandbox, and that nobody may in
	opened := s.intruder.post("/v1/sandboxes/"+box+"/ports", object{"port": 8000, "public": true})
	if !opened.ok() {
		s.breach("the port does not open: %v", opened)
		return
	}
	if job := into[accepted](s.t, opened).Job; job.ID != "" {
		s.intruder.end(s.t, job.ID)
	}
	if r := visit("/", host); r.status == 403 {
		s.breach("a port that was just opened is refused: %v", r)
	}
	s.eventuallyBreach(time.Minute, "the sandbox's server is not reached", func() bool { return visit("/", host).status == 200 })
	for _, path := range []string{"/chunks", "/nothing"} {
		if r := visit(path, host); strings.Contains(r.head, "gateway_unreachable") {
			s.breach("%s of the sandbox's own server is told as the worker's: %v", path, r)
		}
	}
	r := visit("/accel", host)
	for _, name := range []string{"X-Accel-Redirect", "X-Sendfile", "Sandyard-Reason"} {
		if r.header.Get(name) != "" {
			s.breach("the edge passes the header %s of a sandbox on", name)
		}
	}
	if domain := visit("/", "8000-"+box+".evil.test"); domain.status == 200 {
		s.breach("the edge serves a sandbox under a domain that is not its own")
	}
	s.reached("a lying server behind a public port: %d, other domain %d", r.status, visit("/", "8000-"+box+".evil.test").status)
}

// inwards has a sandbox with a network ask its proxy for the inside.
func inwards(s *stage) {
	box := s.intruder.box(s.t, object{"memory_mb": 128, "disk_mb": 8, "network": true})
	target, err := url.Parse("http://" + s.api)
	must(s.t, err)
	j := s.intruder.exec(s.t, box, `cat >ask.py <<'END'
import os, socket, urllib.parse
proxy = urllib.parse.urlparse(os.environ["HTTP_PROXY"])
for host in ["127.0.0.1:`+target.Port()+`", "localhost:`+target.Port()+`", "[::ffff:127.0.0.1]:`+target.Port()+`", "2130706433:`+target.Port()+`", "169.254.169.254:80", "localhost.:80"]:
    c = socket.create_connection((proxy.hostname, proxy.port), 5)
    c.sendall(("CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n" % (host, host)).encode())
    print("->", c.recv(4096).decode())
    c.close()
END
python3 ask.py`)
	if strings.Contains(j.Stdout, " 200 ") {
		s.breach("a sandbox reaches the inside: %s", j.Stdout)
	}
	for _, line := range strings.Split(j.Stdout, "\n") {
		if strings.Contains(line, "localhost") && (strings.Contains(line, "127.0.0.1") || strings.Contains(line, "::1")) {
			s.breach("the proxy tells what a name leads to: %s", line)
		}
	}
	s.reached("%d answers, none of which let it in: %.200q", strings.Count(j.Stdout, "->"), j.Stdout)
}
