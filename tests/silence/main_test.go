package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestWhoIsSilent: a package that has not begun, has ended or says something is not silent.
func TestWhoIsSilent(t *testing.T) {
	running, start := packages{}, time.Now()
	for i, line := range []string{
		`{"Action":"start","Package":"m/hangs"}`,
		`{"Action":"start","Package":"m/ended"}`,
		`{"Action":"start","Package":"m/works"}`,
		`{"Action":"fail","Package":"m/hangs","Test":"TestOne"}`,
		`no event`,
		`{"Action":"pass","Package":"m/ended"}`,
		`{"Action":"output","Package":"m/works","Output":"x"}`,
	} {
		if e, ok := parse([]byte(line)); ok {
			running.note(e, start.Add(time.Duration(i)*time.Second))
		}
	}
	if got := running.silent(start.Add(5 * time.Second)); !slices.Equal(got, []string{"m/hangs"}) {
		t.Errorf("silent: %v", got)
	}
}

// TestAHangingBinaryShowsItsStacks runs a package in which one test hangs and others pass, beside one that does not hang.
func TestAHangingBinaryShowsItsStacks(t *testing.T) {
	module := t.TempDir()
	write := func(name, text string) {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(module, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(module, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("go.mod", "module m\n\ngo 1.26\n")
	write("a/hangs/x_test.go", `package hangs
import ("os"; "testing")
func TestHangs(t *testing.T) { t.Parallel(); r, _, _ := os.Pipe(); _, _ = r.Read(make([]byte, 1)) }
func TestPasses(t *testing.T) { t.Parallel() }
`)
	write("b/hangs/x_test.go", "package hangs\nimport \"testing\"\nfunc TestPasses(t *testing.T) {}\n")
	program := filepath.Join(t.TempDir(), "silence")
	if out, err := exec.Command("go", "build", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	run := exec.Command("bash", "-c", `"$0" -after 2s events & go test -vet=off -timeout 10m -json ./... >events; kill $!; wait $!; cat events`, program)
	run.Dir, run.Env = module, append(os.Environ(), "TMPDIR="+t.TempDir(), "GOFLAGS="+os.Getenv("GOFLAGS")+" -mod=mod")
	write("events", "")
	var said bytes.Buffer
	run.Stderr = &said
	out, err := run.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, &said)
	}
	if !strings.Contains(said.String(), "SIGQUIT: quit") || !strings.Contains(said.String(), "hangs.TestHangs") {
		t.Errorf("no stacks of the test that hangs in:\n%s\nof the events\n%s", &said, out)
	}
	if strings.Count(said.String(), "gets SIGQUIT") != 1 || !strings.Contains(string(out), `"Action":"pass","Package":"m/b/hangs"`) {
		t.Errorf("the other package is ended, too:\n%s\n%s", &said, out)
	}
}
