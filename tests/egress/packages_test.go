package egress_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha1" //nolint:gosec // npm names its packages by it
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// archive is a directory as a tar archive, compressed: names and contents by turns.
func archive(t *testing.T, files ...string) []byte {
	t.Helper()
	var buf bytes.Buffer
	zip := gzip.NewWriter(&buf)
	out := tar.NewWriter(zip)
	for i := 0; i+1 < len(files); i += 2 {
		check(t, out.WriteHeader(&tar.Header{Name: files[i], Mode: 0o644, Size: int64(len(files[i+1]))}))
		_, err := io.WriteString(out, files[i+1])
		check(t, err)
	}
	check(t, errors.Join(out.Close(), zip.Close()))
	return buf.Bytes()
}

// held serves files by their paths, and has nothing else.
func held(files map[string][]byte) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		content, ok := files[r.URL.Path]
		if !ok {
			http.NotFound(w, r)
			return
		}
		_, _ = w.Write(content)
	})
}

// debian is a repository at /apt/ that holds one package.
func debian(t *testing.T) http.Handler {
	t.Helper()
	const about = "Package: sandyard-tiny\nVersion: 1.0\nArchitecture: all\nMaintainer: none <none@tools.test>\nDescription: tiny\n"
	var deb bytes.Buffer
	deb.WriteString("!<arch>\n")
	for _, part := range []struct {
		name    string
		content []byte
	}{
		{"debian-binary", []byte("2.0\n")},
		{"control.tar.gz", archive(t, "./control", about)},
		{"data.tar.gz", archive(t, "./answer", "42\n")},
	} {
		fmt.Fprintf(&deb, "%-16s%-12d%-6d%-6d%-8o%-10d`\n%s", part.name, 0, 0, 0, 0o100644, len(part.content), part.content)
		if len(part.content)%2 == 1 {
			deb.WriteByte('\n')
		}
	}
	packages := fmt.Sprintf("%sFilename: ./tiny.deb\nSize: %d\nSHA256: %x\n", about, deb.Len(), sha256.Sum256(deb.Bytes()))
	release := fmt.Sprintf("Date: Thu, 01 Jan 2026 00:00:00 UTC\nSHA256:\n %x %d Packages\n", sha256.Sum256([]byte(packages)), len(packages))
	return held(map[string][]byte{"/apt/Release": []byte(release), "/apt/Packages": []byte(packages), "/apt/tiny.deb": deb.Bytes()})
}

// registry is one of npm at /npm/ that holds one package, which is fetched from the host that was asked for it.
func registry(t *testing.T) http.Handler {
	t.Helper()
	packed := archive(t, "package/package.json", `{"name": "sandyard-tiny", "version": "1.0.0"}`, "package/index.js", "module.exports = 42;\n")
	sum, weak := sha512.Sum512(packed), sha1.Sum(packed) //nolint:gosec // as above
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/npm/sandyard-tiny":
			scheme := map[bool]string{true: "https", false: "http"}[r.TLS != nil]
			_ = json.NewEncoder(w).Encode(object{
				"name": "sandyard-tiny", "dist-tags": object{"latest": "1.0.0"}, "versions": object{"1.0.0": object{
					"name": "sandyard-tiny", "version": "1.0.0", "dist": object{
						"tarball": scheme + "://" + r.Host + "/npm/tiny.tgz", "shasum": fmt.Sprintf("%x", weak),
						"integrity": "sha512-" + base64.StdEncoding.EncodeToString(sum[:]),
					},
				}},
			})
		case "/npm/tiny.tgz":
			_, _ = w.Write(packed)
		default:
			http.NotFound(w, r)
		}
	})
}

// shared are the libraries that every image has.
var shared = regexp.MustCompile(`^(linux-vdso|ld-linux|libc|libm|libdl|librt|libpthread)[-.]`)

// libraries are those that a program of this machine needs, which an image may not have.
func libraries(t *testing.T, program string) []string {
	t.Helper()
	out, err := exec.Command("ldd", program).Output()
	if err != nil {
		t.Skipf("skipped: what %s needs is not known: %v", program, err)
	}
	var found []string
	for line := range strings.Lines(string(out)) {
		name, rest, ok := strings.Cut(strings.TrimSpace(line), " => ")
		if path, _, _ := strings.Cut(rest, " "); ok && !shared.MatchString(name) {
			found = append(found, path)
		}
	}
	return found
}

// bring copies programs and directories of this machine, by their names there, and libraries into a sandbox. Like again,
// it tries more than once.
func (r *rig) bring(t *testing.T, id string, files map[string]string) {
	t.Helper()
	said := ""
	for range 5 {
		from, to := io.Pipe()
		go func() { to.CloseWithError(pack(to, files)) }()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, r.url+"/v1/sandboxes/"+id+"/files/tree?path=brought", from)
		check(t, err)
		req.Header.Set("Authorization", "Bearer "+r.key)
		req.Header.Set("Content-Type", "application/x-tar")
		answer, err := r.http.Do(req)
		if said = fmt.Sprint(err); err != nil {
			continue
		}
		why, _ := io.ReadAll(answer.Body)
		answer.Body.Close()
		if answer.StatusCode == http.StatusOK {
			return
		}
		said = answer.Status + " " + string(why)
	}
	t.Fatalf("bring %v: %s", files, said)
}

// pack writes an archive of files, name there → path here. Links to files become those files.
func pack(to io.Writer, files map[string]string) error {
	out := tar.NewWriter(to)
	for name, path := range files {
		err := filepath.WalkDir(path, func(at string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() && at == path {
				return err
			}
			info, err := os.Stat(at)
			if err != nil || info.IsDir() {
				return err
			}
			content, err := os.ReadFile(at)
			if err != nil {
				return err
			}
			err = out.WriteHeader(&tar.Header{Name: name + strings.TrimPrefix(at, path), Mode: int64(info.Mode().Perm()), Size: int64(len(content))})
			if err == nil {
				_, err = out.Write(content)
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return out.Close()
}

// program copies one of this machine and what it needs.
func (r *rig) program(t *testing.T, id, name string, more map[string]string) {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Skipf("skipped: neither the image %s nor this machine has %s", image, name)
	}
	files := map[string]string{"bin/" + name: path}
	for there, here := range more {
		files[there] = here
	}
	for _, here := range files {
		if info, err := os.Stat(here); err == nil && info.Mode().IsRegular() {
			for _, library := range libraries(t, here) {
				files["lib/"+filepath.Base(library)] = library
			}
		}
	}
	r.bring(t, id, files)
	if out, code := r.run(t, id, "LD_LIBRARY_PATH=/workspace/brought/lib brought/bin/"+name+" --version"); code != 0 {
		t.Skipf("skipped: %s of this machine does not run in the image %s: %s", name, image, out)
	}
}

// aptSettings let apt work for an ordinary user who cannot write where it keeps things.
const aptSettings = `Dir::State "/workspace/apt/state";
Dir::State::status "/workspace/apt/status";
Dir::Cache "/workspace/apt/cache";
Dir::Log "/workspace/apt/log";
Dir::Etc::SourceList "/workspace/apt/sources.list";
Dir::Etc::SourceParts "/dev/null";
APT::Sandbox::User "";
APT::Update::Error-Mode "any";
Acquire::https::CaInfo "/workspace/ca.pem";
`

// testApt fetches a repository's lists and a package of it.
func testApt(t *testing.T, r *rig, w *world) {
	id := r.workshop(t, w, toolsPolicy())
	settings, apt := aptSettings, "apt-get"
	if _, code := r.run(t, id, "command -v apt-get"); code != 0 {
		const methods = "/usr/lib/apt/methods/"
		r.program(t, id, "apt-get", map[string]string{
			"methods/http": methods + "http", "methods/https": methods + "http", "methods/store": methods + "store", "methods/gpgv": methods + "gpgv",
		})
		settings += `Dir::Bin::methods "/workspace/brought/methods";` + "\n"
		apt = "LD_LIBRARY_PATH=/workspace/brought/lib /workspace/brought/bin/apt-get"
	}
	status, doc := r.call(t, "POST", "/v1/sandboxes/"+id+"/files/write?wait=60s", object{"path": "apt.conf", "content": settings})
	if status != 200 || doc.Job.State != "succeeded" {
		t.Fatalf("write the settings: %d %s", status, doc.raw)
	}
	with := func(source string, retries int, then string) string {
		return `export APT_CONFIG=/workspace/apt.conf; rm -rf apt; mkdir -p apt/state/lists/partial apt/cache/archives/partial apt/log; touch apt/status
echo 'deb [trusted=yes] ` + source + ` ./' >apt/sources.list
` + apt + fmt.Sprint(" update -o Acquire::Retries=", retries) + then
	}
	fetch := " && " + apt + " -q download sandyard-tiny && dpkg-deb --fsys-tarfile sandyard-tiny_1.0_all.deb | tar -xO ./answer; code=$?; rm -f *.deb; (exit $code)"
	r.steps(t, id, []step{
		{with("http://tools.test/apt", 5, fetch), "42\nexit 0"},
		{with("https://www.tools.test/apt", 5, fetch), "42\nexit 0"},
		{with("http://elsewhere.test/apt", 0, ""), "403  Forbidden"}, // it shows the status alone
		{with("https://elsewhere.test/apt", 0, ""), "403 elsewhere.test:443 is not in the sandbox's egress.allow"},
		{with("http://www.tools.test/apt", 0, ""), "exit 100"},
	})
	if w.at("93.184.20.4") != 0 || w.lookups("elsewhere.test") != 0 {
		t.Error("what is refused was reached or looked up")
	}
}

// testNpm installs a package, with this machine's npm: the images that are made from Debian's packages have none.
func testNpm(t *testing.T, r *rig, w *world) {
	if r.settings["SANDBOX_PROVIDER"] == "local" {
		t.Skip("skipped: npm is large, and shown on Docker")
	}
	found, err := exec.LookPath("npm")
	if err != nil {
		t.Skip("skipped: this machine has no npm, and neither has the image " + image)
	}
	found, err = filepath.EvalSymlinks(found)
	check(t, err)
	home := filepath.Dir(filepath.Dir(found))
	if _, err := os.Stat(filepath.Join(home, "node_modules")); err != nil {
		t.Skipf("skipped: npm at %s does not bring what it needs along: %v", home, err)
	}
	wish := toolsPolicy()
	wish["memory_mb"], wish["disk_mb"] = 1024, 400
	id := r.workshop(t, w, wish)
	r.program(t, id, "node", map[string]string{"npm": home})
	const npm = `export LD_LIBRARY_PATH=/workspace/brought/lib NODE_EXTRA_CA_CERTS=/workspace/ca.pem HOME=/tmp
brought/bin/node brought/npm/bin/npm-cli.js install --no-audit --no-fund --no-update-notifier --cache /tmp/npm-`
	r.steps(t, id, []step{
		{npm + `1 --prefix one --registry https://www.tools.test/npm/ sandyard-tiny && brought/bin/node -p 'require("./one/node_modules/sandyard-tiny")'`, "42\nexit 0"},
		{npm + `2 --prefix two --registry http://tools.test/npm/ sandyard-tiny && brought/bin/node -p 'require("./two/node_modules/sandyard-tiny")'`, "42\nexit 0"},
		{npm + `3 --prefix no --fetch-retries 0 --registry https://elsewhere.test/npm/ sandyard-tiny`, "403"},
		{npm + `4 --prefix no --fetch-retries 0 --registry http://elsewhere.test/npm/ sandyard-tiny`, "403"},
		{"ls no/node_modules", "exit 2"},
	})
	if w.at("93.184.20.4") != 0 || w.lookups("elsewhere.test") != 0 {
		t.Error("what is refused was reached or looked up")
	}
}
