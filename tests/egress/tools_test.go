package egress_test

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"
)

// toolsPolicy lets a sandbox reach tools.test at any port, and what is below only by https.
func toolsPolicy() object {
	return object{"egress": object{"allow": []string{"tools.test", "*.tools.test:443"}, "deny": []string{"bad.tools.test"}}}
}

// workshop is a sandbox for tools, which trust the world's authority.
func (r *rig) workshop(t *testing.T, w *world, wish object) string {
	t.Helper()
	for name, ip := range map[string]string{
		"tools.test": "93.184.20.1", "www.tools.test": "93.184.20.2", "bad.tools.test": "93.184.20.3", "elsewhere.test": "93.184.20.4",
	} {
		w.name(name, ip)
	}
	wish["env"] = map[string]string{
		"CURL_CA_BUNDLE": "/workspace/ca.pem", "SSL_CERT_FILE": "/workspace/ca.pem", "PIP_CERT": "/workspace/ca.pem", "GIT_SSL_CAINFO": "/workspace/ca.pem",
	}
	id := r.create(t, wish)
	status, doc := r.call(t, "POST", "/v1/sandboxes/"+id+"/files/write?wait=60s", object{"path": "ca.pem", "content": w.ca.pem})
	if status != 200 || doc.Job.State != "succeeded" {
		t.Fatalf("write the authority's certificate: %d %s", status, doc.raw)
	}
	return id
}

// needs skips the test where the image, such as one that stands on an official one, lacks a tool.
func (r *rig) needs(t *testing.T, id, tool string) {
	t.Helper()
	if _, code := r.run(t, id, "command -v "+tool); code != 0 {
		t.Skipf("skipped: the image %s has no %s", image, tool)
	}
}

// step is a command in a sandbox and what it must say. The command's exit code stands behind its output.
type step struct{ command, want string }

func (r *rig) steps(t *testing.T, id string, steps []step) {
	t.Helper()
	for _, s := range steps {
		out, code := r.run(t, id, s.command)
		if out = fmt.Sprintf("%sexit %d", out, code); !strings.Contains(out, s.want) {
			t.Errorf("%s\nsays %s\nwithout  %s", s.command, out, s.want)
		}
	}
}

// testCurl asks as most programs and most people do.
func testCurl(t *testing.T, r *rig, w *world) {
	id := r.workshop(t, w, toolsPolicy())
	r.needs(t, id, "curl")
	const size = 20 << 20
	sum := fmt.Sprintf("POST of %d bytes, %x", size, sha256.Sum256(make([]byte, size)))
	r.steps(t, id, []step{
		{`curl -sS http://tools.test/`, "at 93.184.20.1 host tools.test\nexit 0"},
		{`curl -sS https://tools.test/`, "at 93.184.20.1 host tools.test\nexit 0"},
		{`curl -sS https://www.tools.test/`, "at 93.184.20.2 host www.tools.test\nexit 0"},
		{`curl -sS --cacert /etc/ssl/certs/ca-certificates.crt https://tools.test/`, "exit 60"}, // nobody stands between the two
		{`curl -sS -x "$SANDYARD_SOCKS_PROXY" https://tools.test/`, "at 93.184.20.1"},
		{`curl -sSL 'http://tools.test/?to=https://www.tools.test/'`, "at 93.184.20.2 host www.tools.test\nexit 0"},

		{`head -c 20971520 /dev/zero >big; curl -sS --data-binary @big http://tools.test/sink`, sum},
		{`curl -sS --data-binary @big https://tools.test/sink`, sum},
		{`curl -sS -X POST -H 'Transfer-Encoding: chunked' -T big http://tools.test/sink`, sum},
		{`rm big`, "exit 0"},

		{`curl -sS http://elsewhere.test/`, "elsewhere.test:80 is not in the sandbox's egress.allow; add it there to allow the connection\nexit 0"},
		{`curl -sS https://elsewhere.test/`, "exit 56"},
		{`curl -sv https://elsewhere.test/`, "HTTP/1.1 403 elsewhere.test:443 is not in the sandbox's egress.allow; add it"},
		{`curl -sS -x "$SANDYARD_SOCKS_PROXY" https://elsewhere.test/`, "exit 97"},
		{`curl -sSL 'http://tools.test/?to=http://elsewhere.test/'`, "elsewhere.test:80 is not in"},
		{`curl -sSL 'https://tools.test/?to=https://elsewhere.test/'`, "exit 56"},
		{`curl -sS http://www.tools.test/`, "www.tools.test:80 is not in"},
		{`curl -sv https://bad.tools.test/`, "403 bad.tools.test:443 is in the sandbox's egress.deny"},
		{`curl -sS http://93.184.20.1/`, "93.184.20.1:80 is not in"},
		{`curl -sv https://nowhere.tools.test/`, "HTTP/1.1 502 nowhere.tools.test has no address"},
		{`curl -sv -H 'Host: elsewhere.test' http://tools.test/`, "at 93.184.20.1 host tools.test\n"}, // the URL alone counts

		{`python3 -m http.server 9124 >/dev/null 2>&1 & curl -sS --retry 50 --retry-delay 1 --retry-all-errors http://localhost:9124/; kill $!`, "Directory listing"},
		{`curl -sS --max-time 20 --noproxy '*' http://tools.test/`, "exit 6"}, // 28 were a wait in vain
		{`curl -sS --max-time 20 --noproxy '*' http://93.184.20.1/`, "exit 7"},
	})
	if w.at("93.184.20.3")+w.at("93.184.20.4") != 0 || w.lookups("elsewhere.test")+w.lookups("bad.tools.test") != 0 {
		t.Error("what is refused was reached or looked up")
	}
}

// testHidden writes addresses where readers of URLs disagree on what the host is. The sandbox may go everywhere.
func testHidden(t *testing.T, r *rig, w *world) {
	id := r.workshop(t, w, object{"network": true})
	r.needs(t, id, "curl")
	w.name("169-254-169-254.nip.test", "169.254.169.254")
	out, _ := r.run(t, id, `
export no_proxy= NO_PROXY=
for host in 169.254.169.254 tools.test@169.254.169.254 2852039166 0xa9fea9fe 0xa9.0xfe.43518 0251.0376.0251.0376 '[::ffff:169.254.169.254]' '[::ffff:a9fe:a9fe]' \
  '[::ffff:0:169.254.169.254]' '[64:ff9b::a9fe:a9fe]' '[2002:a9fe:a9fe::1]' 169.254.169.254. 169-254-169-254.nip.test '169.254.169.254\@tools.test' '①⑥⑨.254.169.254' \
  127.0.0.1 127.1 localhost '[::1]' '[::]' 0.0.0.0 10.77.0.9 192.168.0.1 172.17.0.1 '[fe80::1]' '[fd00:ec2::254]'; do
  for url in "http://$host/" "https://$host/"; do
    for proxy in "$HTTP_PROXY" "$SANDYARD_SOCKS_PROXY"; do
      curl -sk --max-time 60 -x "$proxy" "$url" | grep '^at ' | grep -v '^at 93.184.20.1 ' && echo "THROUGH $proxy $url"
    done
  done
done
curl -sS 'http://tools.test/?to=http://169.254.169.254/' -L
curl -sS 'http://tools.test/?to=http://127.0.0.1:2375/' -L
curl -sS 'http://169.254.169.254@tools.test/'`)
	for _, want := range []string{
		"169.254.169.254:80: no sandbox may reach it: ",
		"127.0.0.1:2375: no sandbox may reach it", "at 93.184.20.1 host tools.test\n",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("lacks %q", want)
		}
	}
	if strings.Contains(out, "THROUGH") || w.at("169.254.169.254") != 0 {
		t.Errorf("got %s", out)
	}
}

// testPython uses the clients of Python, pip among them.
func testPython(t *testing.T, r *rig, w *world) {
	id := r.workshop(t, w, toolsPolicy())
	out := r.python(t, id, get("https://tools.test/")+get("https://elsewhere.test/")+get("https://www.tools.test/?to=http://www.tools.test/"))
	for _, want := range []string{"at 93.184.20.1", "Tunnel connection failed: 403 elsewhere.test:443 is not in the sandbox's egress.allow", "HTTP 403 denied www.tools.test:80"} {
		if !strings.Contains(out, want) {
			t.Errorf("urllib says %s without %s", out, want)
		}
	}
	// Who does not ask for the proxy is told at once that there is nobody.
	out = r.python(t, id, `
import socket, time
start = time.monotonic()
for host in ("tools.test", "93.184.20.1"):
    try: socket.create_connection((host, 443), timeout=80); print("THROUGH")
    except TimeoutError: print("TIMEOUT")
    except OSError as e: print(e)
if time.monotonic() - start > 30: print("TIMEOUT")`)
	told := strings.Contains(out, "Network is unreachable") || strings.Contains(out, "No route to host") // as gVisor says
	if strings.Contains(out, "THROUGH") || strings.Contains(out, "TIMEOUT") || !told {
		t.Errorf("without the proxy: %s", out)
	}
	r.needs(t, id, "pip")
	const pip = "pip --no-cache-dir --disable-pip-version-check install --target "
	r.steps(t, id, []step{
		{pip + "one --index-url https://www.tools.test/simple sandyard-tiny && PYTHONPATH=one python3 -c 'import sandyard_tiny as s; print(s.answer)'", "42\nexit 0"},
		{pip + "two --index-url http://tools.test/simple --trusted-host tools.test sandyard-tiny && PYTHONPATH=two python3 -c 'import sandyard_tiny as s; print(s.answer)'", "42\nexit 0"},
		{pip + "no --retries 1 --index-url https://elsewhere.test/simple sandyard-tiny", "403 elsewhere.test:443 is not in the sandbox's egress.allow"},
		{"ls no", "exit 2"},
	})
}

// testGit pushes to a repository and clones it again.
func testGit(t *testing.T, r *rig, w *world) {
	if w.git == nil {
		t.Skip("skipped: this machine has no git to serve a repository")
	}
	id := r.workshop(t, w, toolsPolicy())
	r.needs(t, id, "git")
	r.steps(t, id, []step{
		{`set -e
git init -q -b main src && cd src && git config user.name a && git config user.email a@tools.test
head -c 4000000 /dev/urandom >blob && git add blob && git commit -qm first
git push -q https://www.tools.test/git/tiny.git main`, "exit 0"},
		{`git clone -q https://www.tools.test/git/tiny.git over-https && cmp src/blob over-https/blob`, "exit 0"},
		{`git clone -q --depth 1 http://tools.test/git/tiny.git over-http && cmp src/blob over-http/blob`, "exit 0"},
		{`cd over-https && git fetch -q && git ls-remote origin`, "refs/heads/main\nexit 0"},
		{`git clone -q https://elsewhere.test/git/tiny.git no`, "403\nexit 128"},
		{`git clone -q http://elsewhere.test/git/tiny.git no`, "403\nexit 128"},
		{`timeout 40 git clone -q git://tools.test/tiny.git no`, "exit 128"}, // knows no proxy; 124 were a wait in vain
	})
}
