package shim

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestWorkersAreLetInAfterFilesRanOut plays in a process of its own, whose limit of open files it lowers.
func TestWorkersAreLetInAfterFilesRanOut(t *testing.T) {
	t.Parallel()
	dir := os.Getenv("KEEPER_TEST_DIR")
	if dir != "" {
		filesRunOut(t, dir)
		return
	}
	program := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestWorkersAreLetInAfterFilesRanOut$", "-test.v")
	program.Env = append(os.Environ(), "KEEPER_TEST_DIR="+t.TempDir())
	if out, err := program.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

func filesRunOut(t *testing.T, dir string) {
	socket, err := listen(dir)
	if err != nil {
		t.Fatal(err)
	}
	r := newRelay(nil)
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.accept(socket)
	}()
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	var before unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: uint64(fd), Max: before.Max}); err != nil {
		t.Fatal(err)
	}
	if err := unix.Connect(fd, &unix.SockaddrUnix{Name: filepath.Join(dir, SocketFile)}); err != nil {
		t.Fatal(err)
	}
	select {
	case <-done:
		t.Fatal("nobody is let in any more")
	case <-time.After(5 * acceptRest): // a relay that gives up has done so
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	tick := time.NewTicker(acceptRest)
	defer tick.Stop()
	for deadline := time.Now().Add(time.Minute); len(r.audience()) == 0; <-tick.C {
		if time.Now().After(deadline) {
			t.Fatal("who had waited is not let in")
		}
	}
	if err := unix.Close(fd); err != nil {
		t.Fatal(err)
	}
	if err := socket.Close(); err != nil {
		t.Fatal(err)
	}
	<-done
}
