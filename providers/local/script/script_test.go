package script_test

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"sandyard/providers/local/script"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// run does s in a process with out as its standard output, and returns how it became another program.
func run(t *testing.T, s *script.Script, out *os.File) error {
	t.Helper()
	calls, err := script.Read(s.Append(nil))
	if err != nil {
		t.Fatal(err)
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	runtime.GC() // what the calls point to is held
	p, err := calls.Start([3]int{int(out.Fd()), int(out.Fd()), int(out.Fd())}, script.Where{Group: -1})
	if err != nil {
		t.Fatal(err)
	}
	became := p.Become()
	if _, err := p.Wait(); err != nil {
		t.Error(err)
	}
	return became
}

func become(s *script.Script, shell string) {
	s.Do("become a shell", unix.SYS_EXECVE, script.String("/bin/sh"), script.Strings([]string{"sh", "-c", shell, "", "arg"}), script.Strings([]string{"A=of the environment"}))
}

func outFile(t *testing.T) *os.File {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

func TestScript(t *testing.T) {
	t.Parallel()
	out, dir := outFile(t), t.TempDir()
	here := script.Number(unix.AT_FDCWD)
	s := &script.Script{}
	s.Do("go", unix.SYS_CHDIR, script.String(dir))
	for range 2 {
		s.Do("make", unix.SYS_MKDIRAT, here, script.String("sub"), script.Number(0o755)).MayExist()
	}
	remove := func(name string) *script.Step {
		return s.Do("remove", unix.SYS_UNLINKAT, here, script.String(name), script.Number(unix.AT_REMOVEDIR)).MayLack()
	}
	mark := func(name string) *script.Step {
		return s.Do("mark", unix.SYS_MKDIRAT, here, script.String(name), script.Number(0o755))
	}
	remove("none")
	mark("wrong").OnlyIfDone()
	mark("also wrong").OnlyIfDone()
	remove("sub")
	mark("right").OnlyIfDone()
	s.Do("ask", unix.SYS_PRCTL, script.Number(unix.PR_CAPBSET_READ), script.Number(1000)).MayBeUnknown()
	s.Do("open", unix.SYS_OPENAT, here, script.String("f"), script.Number(unix.O_CREAT|unix.O_WRONLY), script.Number(0o644)).Keep()
	s.Do("write", unix.SYS_WRITE, script.Kept(), script.Bytes([]byte("text\n")), script.Number(5))
	become(s, `cat f; ls; echo "$A $1"; grep SigBlk /proc/self/status`)
	if err := run(t, s, out); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(out.Name())
	if want := "text\nf\nright\nof the environment arg\nSigBlk:\t0000000000000000\n"; err != nil || string(got) != want {
		t.Errorf("got %q, %v; want %q", got, err, want)
	}
}

func TestStepThatFailsIsNamed(t *testing.T) {
	t.Parallel()
	for name, last := range map[string]func(s *script.Script){
		"lacking directory": func(s *script.Script) { s.Do("lacking directory", unix.SYS_CHDIR, script.String("/none")) },
		"lacking program":   func(s *script.Script) { s.Do("lacking program", unix.SYS_EXECVE, script.String("/none")) },
	} {
		s := &script.Script{}
		s.Do("root", unix.SYS_CHDIR, script.String("/"))
		last(s)
		become(s, "echo wrong")
		out := outFile(t)
		if err := run(t, s, out); !errors.Is(err, fs.ErrNotExist) || !strings.HasPrefix(err.Error(), name+": ") {
			t.Errorf("%s: %v", name, err)
		}
		if got, err := os.ReadFile(out.Name()); err != nil || len(got) > 0 {
			t.Errorf("it went on: %q, %v", got, err)
		}
	}
}

func TestTornScript(t *testing.T) {
	t.Parallel()
	s := &script.Script{}
	s.Do("filter", unix.SYS_SECCOMP, script.Number(1), script.Filter(make([]byte, 16)), script.Kept()).Keep()
	become(s, "true")
	whole := s.Append(nil)
	if _, err := script.Read(whole); err != nil {
		t.Fatal(err)
	}
	for n := range whole {
		if _, err := script.Read(whole[:n]); err == nil {
			t.Errorf("%d of %d bytes are taken for a script", n, len(whole))
		}
	}
	if _, err := script.Read(append(bytes.Clone(whole), 0)); err == nil {
		t.Error("a byte too many is taken")
	}
	if _, err := script.Read((&script.Script{}).Append(nil)); err == nil {
		t.Error("a script without a step is taken")
	}
}
