package egress_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"sandyard/dev/testenv"
)

// get is a Python program that asks for a URL, as most programs do: through the proxy that the environment names.
func get(url string) string {
	return `
import urllib.request, urllib.error
try:
    print(urllib.request.urlopen("` + url + `", timeout=60).read().decode().strip())
except urllib.error.HTTPError as e:
    print("HTTP", e.code, e.headers.get("Sandyard-Egress"), e.read().decode().strip())
except Exception as e:
    print("failed:", e)
`
}

// TestEgress shows the same on every provider whose guest is ours.
func TestEgress(t *testing.T) {
	t.Parallel()
	for _, provider := range []string{"docker", "local"} {
		t.Run(provider, func(t *testing.T) {
			if provider == "local" {
				testenv.Long(t, "the same on the other provider")
			}
			show(t, onProvider(t, provider)...)
		})
	}
}

// show runs all tests on an installation with these settings.
func show(t *testing.T, settings ...string) {
	t.Helper()
	settings = append(settings, "EGRESS_ALLOW_CIDRS", "10.77.0.0/16,203.0.113.0/24", "EGRESS_DENY_CIDRS", "93.184.99.0/24")
	w, r := newWorld(t), newRig(t, settings...)
	doomed := r.startWorker(t)
	requireSealed(t, r)
	t.Run("with", func(t *testing.T) {
		for name, test := range map[string]func(*testing.T, *rig, *world){
			"off": testOff, "public": testPublic, "rules": testRules, "operator": testOperator, "attacks": testAttacks, "from outside": testFromOutside,
			"rebinding": testRebinding, "change": testChange, "E2B": testE2B, "peers": testPeers, "once": testRunOnce,
			"installation": testInstallation, "curl": testCurl, "hidden": testHidden, "python": testPython, "git": testGit, "apt": testApt, "npm": testNpm, "environment": testEnvironment,
		} {
			t.Run(name, func(t *testing.T) {
				if !slices.Contains([]string{"off", "public", "rules", "attacks", "rebinding", "change", "python"}, name) {
					testenv.Long(t, "not in the short list of egress")
				}
				t.Parallel()
				test(t, r, w)
			})
		}
	})
	t.Run("takeover", func(t *testing.T) {
		testenv.Long(t, "a worker's lease has to end")
		testTakeover(t, r, w, doomed)
	})
}

// requireSealed ends the test before anything is sent if a sandbox has any interface but loopback: the engine need not be
// in the tests' namespace.
func requireSealed(t *testing.T, r *rig) {
	t.Helper()
	id := r.create(t, object{"network": true})
	if out, _ := r.run(t, id, "tail -n +3 /proc/net/dev | tr -d ' ' | cut -d: -f1"); out != "lo\n" {
		t.Fatalf("a sandbox has the interfaces %q; the tests would send packets there", out)
	}
}

// testOff has a sandbox that was given nothing: it is offered nothing, and makes nothing of the port either.
func testOff(t *testing.T, r *rig, w *world) {
	w.name("off.test", "93.184.1.1")
	id := r.create(t, object{})
	if out, _ := r.run(t, id, "env | grep -i proxy; tail -n +3 /proc/net/dev | tr -d ' ' | cut -d: -f1"); out != "lo\n" {
		t.Errorf("a sandbox without a network has %q", out)
	}
	out := r.python(t, id, get("http://off.test:"+webPort+"/")+get("http://93.184.1.1:"+webPort+"/"))
	if strings.Count(out, "failed:") != 2 || w.at("93.184.1.1") != 0 || w.lookups("off.test") != 0 {
		t.Errorf("got %s", out)
	}
}

func testPublic(t *testing.T, r *rig, w *world) {
	w.name("site.test", "93.184.216.34")
	id := r.create(t, object{"network": true})
	if out := r.python(t, id, get("http://site.test:"+webPort+"/")); !strings.Contains(out, "at 93.184.216.34 host site.test:8000") {
		t.Errorf("by name: %s", out)
	}
	if out := r.python(t, id, get("http://93.184.216.35:"+webPort+"/")); !strings.Contains(out, "at 93.184.216.35") {
		t.Errorf("by address: %s", out)
	}
	if out := r.python(t, id, get("http://[2606:4700::9]:"+webPort+"/")); !strings.Contains(out, "at 2606:4700::9") {
		t.Errorf("by IPv6 address: %s", out)
	}
	testenv.Eventually(t, "the use is written down", func() bool {
		_, doc := r.call(t, "GET", "/v1/sandboxes/"+id+"/egress", nil)
		return doc.Connections == 3 && doc.SentBytes > 0 && doc.ReceivedBytes > 0 && doc.Denied == 0
	})
}

func testRules(t *testing.T, r *rig, w *world) {
	w.name("yes.test", "93.184.2.1")
	w.name("a.yes.test", "93.184.2.2")
	w.name("evil.yes.test", "93.184.2.3")
	w.name("no.test", "93.184.2.4")
	id := r.create(t, object{"egress": object{"allow": []string{"yes.test", "*.yes.test:" + webPort, "93.184.3.0/24"}, "deny": []string{"evil.yes.test", "93.184.3.9"}}})
	at := func(host string) string { return get("http://" + host + ":" + webPort + "/") }
	out := r.python(t, id, at("yes.test")+at("a.yes.test")+at("93.184.3.1"))
	if !strings.Contains(out, "at 93.184.2.1") || !strings.Contains(out, "at 93.184.2.2") || !strings.Contains(out, "at 93.184.3.1") {
		t.Errorf("allowed: %s", out)
	}
	out = r.python(t, id, at("evil.yes.test")+at("no.test")+at("93.184.3.9")+at("93.184.2.1")+at("93.184.2.4"))
	if strings.Count(out, "HTTP 403 denied") != 5 {
		t.Errorf("not allowed: %s", out)
	}
	for _, ip := range []string{"93.184.2.3", "93.184.2.4", "93.184.3.9"} {
		if w.at(ip) != 0 {
			t.Errorf("%s was reached", ip)
		}
	}
	if w.lookups("no.test") != 0 || w.lookups("evil.yes.test") != 0 {
		t.Error("names that are not allowed were looked up")
	}
	testenv.Eventually(t, "the denials are written down", func() bool {
		_, doc := r.call(t, "GET", "/v1/sandboxes/"+id+"/egress", nil)
		return doc.Denied == 5 && len(doc.Denials) == 5 && strings.Contains(doc.raw, `"target":"no.test:8000","reason":"policy"`)
	})
	// A redirect is another request, which the policy is asked about again.
	if out := r.python(t, id, get("http://yes.test:"+webPort+"/?to=http://93.184.2.4:"+webPort+"/")); !strings.Contains(out, "HTTP 403") || w.at("93.184.2.4") != 0 {
		t.Errorf("redirected: %s", out)
	}
	if status, doc := r.call(t, "POST", "/v1/sandboxes", object{"egress": object{"allow": []string{"http://a.test/"}}}); status != 422 || !strings.Contains(doc.Detail, "egress.allow") {
		t.Errorf("a policy that means nothing: %d %s", status, doc.raw)
	}
}

// testOperator has private addresses that the operator has opened, for those whose policy names them.
func testOperator(t *testing.T, r *rig, w *world) {
	w.name("intern.test", "10.77.0.1")
	w.name("other.test", "10.78.0.1")
	at := func(host string) string { return get("http://" + host + ":" + webPort + "/") }
	id := r.create(t, object{"egress": object{"allow": []string{"intern.test", "other.test", "10.0.0.0/8"}}})
	if out := r.python(t, id, at("intern.test")+at("10.77.0.2")); !strings.Contains(out, "at 10.77.0.1") || !strings.Contains(out, "at 10.77.0.2") {
		t.Errorf("opened: %s", out)
	}
	if out := r.python(t, id, at("other.test")+at("10.78.0.2")); strings.Count(out, "HTTP 403 denied") != 2 {
		t.Errorf("closed: %s", out)
	}
	wide := r.create(t, object{"network": true})
	if out := r.python(t, wide, at("10.77.0.3")+at("intern.test")+at("93.184.99.1")); strings.Count(out, "HTTP 403 denied") != 3 {
		t.Errorf("not named, and public but closed: %s", out)
	}
	for _, ip := range []string{"10.78.0.1", "10.78.0.2", "10.77.0.3", "93.184.99.1"} {
		if w.at(ip) != 0 {
			t.Errorf("%s was reached", ip)
		}
	}
}

// testAttacks tries to get where no sandbox may, in all the ways that addresses can be written, with and without the
// proxy. Behind every address a server would answer.
func testAttacks(t *testing.T, r *rig, w *world) {
	for i, ip := range []string{"127.0.0.5", "::1", "169.254.169.254", "10.1.2.3", "172.17.0.1", "192.168.5.5", "fd00:ec2::254", "168.63.129.16"} {
		w.name(fmt.Sprintf("trap%d.test", i), ip)
	}
	w.name("localhost", "127.0.0.1")
	id := r.create(t, object{"network": true})
	out := r.python(t, id, `
import os, socket, urllib.parse
proxy = urllib.parse.urlparse(os.environ["HTTP_PROXY"])
hosts = ["127.0.0.1", "[::1]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[::127.0.0.1]", "[64:ff9b::7f00:1]", "[2002:7f00:1::]", "2130706433",
  "0x7f000001", "0x7f.1", "0177.0.0.1", "127.1", "0", "0.0.0.0", "127.0.0.1.", "localhost", "169.254.169.254", "[fd00:ec2::254]", "100.100.100.200",
  "168.63.129.16", "192.0.0.192", "10.0.0.1", "172.17.0.1", "192.168.0.1", "224.0.0.1", "255.255.255.255", "[fe80::1%25lo]", "[ff02::1]"] + ["trap%d.test" % i for i in range(8)]
def ask(text, enough=1 << 20):
    with socket.create_connection((proxy.hostname, proxy.port), timeout=60) as s:
        s.sendall(text.encode("latin-1"))
        got = b""
        try:
            while len(got) < enough and (chunk := s.recv(4096)): got += chunk
        except ConnectionError: pass
        return got.decode("latin-1")
def socks(host, port):
    host = host.strip("[]").encode()
    return "\5\1\0\5\1\0\3" + chr(len(host)) + host.decode() + chr(port >> 8) + chr(port & 255)
for h in hosts:
    for port in (8000, 80, 5432, 6379, 2375):
        for text in ("CONNECT %s:%d HTTP/1.1\r\nHost: good.test\r\n\r\nGET / HTTP/1.0\r\n\r\n" % (h, port),
                     "GET http://%s:%d/ HTTP/1.1\r\nHost: good.test\r\nConnection: close\r\n\r\n" % (h, port)):
            got = ask(text)
            if " 200 " in got or "at " in got.split("\r\n\r\n")[-1][:3]: print("THROUGH", h, port, got)
            elif "Sandyard-Egress: denied" not in got: print("NOT REFUSED", h, port, got)
        got = ask(socks(h, port), 4)
        if len(got) > 3 and got[3] == "\0": print("THROUGH SOCKS", h, port)
        elif len(got) < 4 or got[3] != "\2": print("NOT REFUSED BY SOCKS", h, port, repr(got))
# Somebody listens at all these ports of every address, so what refuses is not that nobody does.
for port in (8000, 80, 5432, 6379, 2375):
    if " 200 " not in ask("CONNECT 93.184.4.9:%d HTTP/1.1\r\nHost: good.test\r\n\r\nGET / HTTP/1.0\r\n\r\n" % port): print("NOBODY AT", port)
# Without the proxy there is nothing at all.
for host in ("93.184.4.1", "127.0.0.5", "169.254.169.254", "10.1.2.3", "2606:4700::1"):
    try:
        socket.create_connection((host, 8000), timeout=20); print("THROUGH direct", host)
    except OSError: pass
try:
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.sendto(b"x", ("9.9.9.9", 53)); print("THROUGH udp")
except OSError: pass
for path in ("/var/run/docker.sock", "/run/docker.sock", "/run/containerd/containerd.sock"):
    if os.path.exists(path): print("THROUGH", path)
print("done")
`)
	if out != "done" {
		t.Errorf("got %s", out)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for ip := range w.reached {
		if ip.IsLoopback() || ip.IsLinkLocalUnicast() || ip.IsMulticast() || ip.IsPrivate() && !strings.HasPrefix(ip.String(), "10.77.") {
			t.Errorf("%v was reached", ip)
		}
	}
}

// testInstallation looks for what the installation itself stands on, at public addresses that the operator has not listed:
// a host of DATABASE_URL, by name and address, and the worker's gateway.
func testInstallation(t *testing.T, r *rig, w *world) {
	id := r.create(t, object{"egress": object{"allow": []string{"*", ownHost, ownAddress, ownGateway}}})
	at := func(host string) string { return get("http://" + host + ":" + webPort + "/") }
	out := r.python(t, id, at(ownHost)+at(ownAddress)+at("[::ffff:"+ownAddress+"]")+at(ownGateway)+at("93.184.50.2"))
	if strings.Count(out, "HTTP 403 denied") != 4 || strings.Count(out, "installation's own") != 4 || !strings.Contains(out, "at 93.184.50.2") {
		t.Errorf("got %s", out)
	}
	if w.at(ownAddress) != 0 || w.at(ownGateway) != 0 {
		t.Errorf("the database's host was reached %d times, the gateway %d times", w.at(ownAddress), w.at(ownGateway))
	}
}

// testRebinding has a name that leads to a public address when it is looked up first, and to the host from then on.
func testRebinding(t *testing.T, r *rig, w *world) {
	w.name("rebind.test", "93.184.5.1", "127.0.0.77")
	id := r.create(t, object{"egress": object{"allow": []string{"rebind.test"}}})
	first := r.python(t, id, get("http://rebind.test:"+webPort+"/"))
	then := r.python(t, id, get("http://rebind.test:"+webPort+"/"))
	if !strings.Contains(first, "at 93.184.5.1") || !strings.Contains(then, "HTTP 403 denied") || w.at("127.0.0.77") != 0 {
		t.Errorf("first %s, then %s", first, then)
	}
}

// testChange changes the policy under a connection that stands, and of a sandbox that had none.
func testChange(t *testing.T, r *rig, w *world) {
	w.name("change.test", "93.184.6.1")
	id := r.create(t, object{})
	r.setEgress(t, id, object{"allow": []string{"change.test"}})
	if out := r.python(t, id, get("http://change.test:"+webPort+"/")); !strings.Contains(out, "at 93.184.6.1") {
		t.Errorf("opened: %s", out)
	}
	_, stays := r.call(t, "POST", "/v1/sandboxes/"+id+"/exec", object{"parallel": true, "timeout_seconds": 90, "argv": []string{"python3", "-c", `
import os, socket, urllib.parse
proxy = urllib.parse.urlparse(os.environ["HTTP_PROXY"])
s = socket.create_connection((proxy.hostname, proxy.port), timeout=80)
s.sendall(b"CONNECT change.test:8000 HTTP/1.1\r\n\r\n")
print(s.recv(12).decode(), flush=True)
while s.recv(1) != b"\n": pass
while s.recv(1) != b"\n": pass
open("connected", "w").close()
try: print("ended", s.recv(1))
except ConnectionError: print("cut")
`}})
	testenv.Eventually(t, "the connection stands", func() bool {
		_, code := r.run(t, id, "test -e connected")
		return code == 0
	})
	r.setEgress(t, id, object{"allow": []string{"other.test"}})
	_, doc := r.call(t, "GET", "/v1/jobs/"+stays.Job.ID+"?wait=60s", nil)
	if !strings.Contains(doc.raw, `HTTP/1.1 200\ncut`) {
		t.Errorf("the connection: %s", doc.raw)
	}
	if out := r.python(t, id, get("http://change.test:"+webPort+"/")); !strings.Contains(out, "HTTP 403 denied") {
		t.Errorf("closed: %s", out)
	}
	r.setEgress(t, id, object{})
	if out, _ := r.run(t, id, "env | grep -i proxy"); out != "" {
		t.Errorf("off again: %s", out)
	}
	_, box := r.call(t, "GET", "/v1/sandboxes/"+id, nil)
	if !strings.Contains(box.raw, `"network":false`) {
		t.Errorf("its document: %s", box.raw)
	}
}

// testE2B makes sandboxes as E2B's clients do.
func testE2B(t *testing.T, r *rig, w *world) {
	w.name("e2b.test", "93.184.7.1")
	at := func(host string) string { return get("http://" + host + ":" + webPort + "/") }
	id := r.createE2B(t, object{"allow_internet_access": true, "network": object{"denyOut": []string{"93.184.7.0/24"}, "allowOut": []string{"93.184.7.2"}}})
	if out := r.python(t, id, at("93.184.8.1")+at("93.184.7.2")); strings.Count(out, "at 93.184") != 2 {
		t.Errorf("allowed: %s", out)
	}
	if out := r.python(t, id, at("e2b.test")); !strings.Contains(out, "HTTP 403 denied") || w.at("93.184.7.1") != 0 {
		t.Errorf("denied: %s", out)
	}
	status, doc := r.call(t, "PUT", "/sandboxes/"+id+"/network", object{"allowOut": []string{"e2b.test"}, "denyOut": []string{"0.0.0.0/0"}})
	if status != 204 {
		t.Fatalf("change: %d %s", status, doc.raw)
	}
	if out := r.python(t, id, at("e2b.test")+at("93.184.8.1")); !strings.Contains(out, "at 93.184.7.1") || strings.Count(out, "HTTP 403") != 1 {
		t.Errorf("changed: %s", out)
	}
	closed := r.createE2B(t, object{"allow_internet_access": false})
	if out := r.python(t, closed, at("93.184.8.2")); !strings.Contains(out, "failed:") || w.at("93.184.8.2") != 0 {
		t.Errorf("without internet: %s", out)
	}
	if status, doc := r.call(t, "POST", "/sandboxes", object{"templateID": "base", "network": object{"rules": object{"a.test": []object{}}}}); status != 400 {
		t.Errorf("rules: %d %s", status, doc.raw)
	}
}

// testPeers has a server in one sandbox, which another one with a network looks for at every address they share.
func testPeers(t *testing.T, r *rig, _ *world) {
	server := r.create(t, object{"network": true})
	r.call(t, "POST", "/v1/sandboxes/"+server+"/exec", object{"parallel": true, "command": "python3 -m http.server 9123", "timeout_seconds": 90})
	testenv.Eventually(t, "the server listens", func() bool {
		out := r.python(t, server, get("http://localhost:9123/"))
		return strings.Contains(out, "Directory listing")
	})
	other := r.create(t, object{"network": true})
	if out := r.python(t, other, get("http://127.0.0.1:9123/")+get("http://localhost:9123/")+get("http://"+server+":9123/")); strings.Contains(out, "Directory") {
		t.Errorf("got %s", out)
	}
}

// testRunOnce gives a network to a sandbox that is made for one command.
func testRunOnce(t *testing.T, r *rig, w *world) {
	w.name("once.test", "93.184.9.1")
	status, doc := r.call(t, "POST", "/v1/run", object{
		"egress": object{"allow": []string{"once.test"}}, "argv": []string{"python3", "-c", get("http://once.test:" + webPort + "/")},
	})
	if status != 200 || !strings.Contains(doc.Job.Stdout, "at 93.184.9.1") {
		t.Errorf("got %d %s", status, doc.raw)
	}
}

// testTakeover kills the worker. A program that runs in the background goes on under the next one, with its policy, and
// without any job in between that would lead that worker to its sandbox.
func testTakeover(t *testing.T, r *rig, w *world, doomed *worker) {
	w.name("later.test", "93.184.10.1")
	id := r.create(t, object{"egress": object{"allow": []string{"later.test"}}})
	r.run(t, id, `setsid python3 -c '
import time, urllib.request, urllib.error
def ask(url):
    try: return urllib.request.urlopen(url, timeout=80).read().decode().strip()
    except urllib.error.HTTPError as e: return "HTTP %d" % e.code
    except Exception as e: return "failed"
n = 0
while True:
    n += 1
    a, b = ask("http://later.test:8000/?%d" % n), ask("http://93.184.10.2:8000/")
    open("log", "a").write("%d %s %s\n" % (n, a, b))
    time.sleep(0.2)
' >/dev/null 2>&1 &`)
	testenv.Eventually(t, "the program connects", func() bool { return w.at("93.184.10.1") > 2 })
	doomed.end(os.Kill)
	before := w.at("93.184.10.1")
	next := r.startWorker(t)
	testenv.Eventually(t, "it connects through the next worker", func() bool { return w.at("93.184.10.1") > before+3 })
	if !strings.Contains(next.log.String(), "adopted") {
		t.Error("the sandbox was not adopted")
	}
	out, _ := r.run(t, id, "tail -n 1 log")
	if !strings.Contains(out, "at 93.184.10.1") || !strings.Contains(out, "HTTP 403") || w.at("93.184.10.2") != 0 {
		t.Errorf("its last words: %s", out)
	}
	r.remove(t, id) // while there is a worker that can
	next.end(syscall.SIGTERM)
}
