package docker_test

import (
	"archive/zip"
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"sandyard/dev/testenv"
	"sandyard/providers"
	"sandyard/providers/docker"
)

// roomy is a sandbox of the default image with room for packages.
func roomy(t *testing.T, p *docker.Provider) providers.Sandbox {
	t.Helper()
	id := newID()
	resources := providers.Resources{CPUs: 1, MemoryMB: 1024, DiskMB: 512, Pids: 256}
	if _, err := p.Create(t.Context(), providers.Spec{ID: id, Image: image, Resources: resources}); err != nil {
		t.Fatal(err)
	}
	return open(t, p, id)
}

// tinyWheel is a package with a program, as pip takes it.
func tinyWheel(t *testing.T) []byte {
	t.Helper()
	var out bytes.Buffer
	w := zip.NewWriter(&out)
	for name, text := range map[string]string{
		"tiny.py":                             "def main(): print('tiny runs')\n",
		"tiny-1.0.dist-info/METADATA":         "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n",
		"tiny-1.0.dist-info/WHEEL":            "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
		"tiny-1.0.dist-info/entry_points.txt": "[console_scripts]\ntiny-program = tiny:main\n",
		"tiny-1.0.dist-info/RECORD":           "",
	} {
		f, err := w.Create(name)
		if err == nil {
			_, err = f.Write([]byte(text))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// TestTheDefaultImageInstallsPackages: pip needs no option, and what it installs is on the path, also without a shell.
func TestTheDefaultImageInstallsPackages(t *testing.T) {
	t.Parallel()
	p := newYard(t).open(t)
	box := roomy(t, p)
	if _, err := box.WriteFile(t.Context(), "tiny-1.0-py3-none-any.whl", tinyWheel(t), 0); err != nil {
		t.Fatal(err)
	}
	if got := shell(t, box, "pip install --no-index ./tiny-1.0-py3-none-any.whl"); !strings.Contains(got, "Successfully installed tiny-1.0") {
		t.Fatalf("pip: %s", got)
	}
	if got := shell(t, box, "tiny-program; which tiny-program"); got != "tiny runs\n/workspace/.local/bin/tiny-program" {
		t.Errorf("in a shell: %s", got)
	}
	if got := shell(t, box, "bash -lc tiny-program"); got != "tiny runs" {
		t.Errorf("in a login shell: %s", got)
	}
	res, err := box.Run(t.Context(), providers.Command{Name: newID(), Argv: []string{"tiny-program"}})
	if err != nil || string(res.Stdout) != "tiny runs\n" {
		t.Errorf("without a shell: %v, %s%s", err, res.Stdout, res.Stderr)
	}
	// Temporary files have a quarter of the memory: what pip fetches fits where what it unpacks does.
	if got := shell(t, box, "df -m --output=size /tmp | tail -1"); got != "256" {
		t.Errorf("/tmp has %s MB", got)
	}
}

func TestTheDefaultImageHasSmallTools(t *testing.T) {
	t.Parallel()
	p := newYard(t).open(t)
	_, box := create(t, p)
	script := `mkdir d; echo '{"a": 1}' >d/f; for c in "tar -cJf x.tar.xz d" "tar -cjf x.tar.bz2 d" "zip -qr x.zip d" "unzip -tq x.zip" "jq .a d/f" "file d/f" "less d/f" \
		"wget --version" "make --version" "nano --version" "which python3" "git --version" "curl --version" hostname; do $c >/dev/null || echo "$c fails"; done`
	if got := shell(t, box, script); got != "" {
		t.Error(got)
	}
}

// TestTheDefaultImageImportsNumPy as PyPI has it, whose wheels bring no C++ library. The host's pip fetches it.
func TestTheDefaultImageImportsNumPy(t *testing.T) {
	testenv.Long(t, "it takes many seconds")
	t.Parallel()
	if runtime.GOARCH != "amd64" {
		t.Skip("skipped: the wheel that is asked for is x86-64's")
	}
	p := newYard(t).open(t)
	box := roomy(t, p)
	version := shell(t, box, `python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])'`)
	dir := t.TempDir()
	fetch := exec.CommandContext(t.Context(), "python3", "-m", "pip", "download", "numpy", "--quiet", "--no-deps", "--only-binary=:all:", "--retries=1",
		"--timeout=10", "--python-version="+version, "--platform=manylinux_2_28_x86_64", "--platform=manylinux2014_x86_64", "--dest="+dir)
	if out, err := fetch.CombinedOutput(); err != nil {
		t.Skipf("skipped: NumPy's wheel cannot be fetched from here: %v: %.300s", err, out)
	}
	wheels, err := filepath.Glob(filepath.Join(dir, "*.whl"))
	if err != nil || len(wheels) != 1 {
		t.Fatalf("pip fetched %v, %v", wheels, err)
	}
	content, err := os.ReadFile(wheels[0])
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Base(wheels[0])
	if _, err := box.WriteFile(t.Context(), name, content, 0); err != nil {
		t.Fatal(err)
	}
	if got := shell(t, box, "pip install --quiet --no-index ./"+name+" && python3 -c 'import numpy; print(numpy.arange(7).sum())'"); got != "21" {
		t.Errorf("pip and NumPy: %s", got)
	}
}
