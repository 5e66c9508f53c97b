package envd_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"sandyard/dev/testenv"
	"sandyard/providers"
	"sandyard/providers/envd"
)

// linger is short, so that a silence of ten times as long shows what a closed stream's end does to an open one.
const linger = 100 * time.Millisecond

// program starts a server of one connection in the sandbox and returns its port. What it notes is a file each.
func (e *engine) program(s *envd.Sandbox, script string) uint16 {
	e.t.Helper()
	const head = `
import os, select, socket, time
def note(name, text=""):
    open(name + ".part", "w").write(str(text))
    os.rename(name + ".part", name)
def all(c):
    n = 0
    while b := c.recv(65536):
        n += len(b)
    return n
l = socket.create_server(("127.0.0.1", 0))
note("port", l.getsockname()[1])
c = l.accept()[0]
`
	must(e.t, os.WriteFile(filepath.Join(e.workDir, "program.py"), []byte(head+script), 0o644))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = s.Run(ctx, providers.Command{Name: "program", Argv: []string{"python3", "program.py"}})
	}()
	e.t.Cleanup(func() {
		cancel()
		<-ended
	})
	port, err := strconv.ParseUint(e.noted("port"), 10, 16)
	must(e.t, err)
	return uint16(port)
}

// noted waits for a note of the program.
func (e *engine) noted(name string) string {
	e.t.Helper()
	var text []byte
	testenv.Eventually(e.t, "the program notes "+name, func() bool {
		var err error
		text, err = os.ReadFile(filepath.Join(e.workDir, name))
		return err == nil
	})
	return string(text)
}

// half is a connection whose directions end one by one.
type half interface {
	net.Conn
	CloseWrite() error
}

func dialHalf(t *testing.T, s *envd.Sandbox, port uint16) half {
	t.Helper()
	conn, err := s.DialPort(patient(t), port)
	must(t, err)
	must(t, conn.SetReadDeadline(time.Now().Add(time.Minute)))
	t.Cleanup(func() { _ = conn.Close() })
	h, ok := conn.(half)
	if !ok {
		t.Fatalf("%T cannot end one direction", conn)
	}
	return h
}

func lingering(t *testing.T) (*engine, *envd.Sandbox) {
	t.Helper()
	e := startEngine(t, guestAsProcess1(), "-linger", linger.String())
	return e, e.sandbox(envd.Options{Linger: linger})
}

// TestAnAnswerComesLongAfterTheRequestsEnd: nothing was said for longer than a closed stream lingers.
func TestAnAnswerComesLongAfterTheRequestsEnd(t *testing.T) {
	t.Parallel()
	e, s := lingering(t)
	conn := dialHalf(t, s, e.program(s, `
n = all(c)
time.sleep(1)
c.sendall(b"%d bytes, " % n)
time.sleep(1)
c.sendall(b"and that is all")
c.close()
`))
	if _, err := conn.Write(make([]byte, 300_000)); err != nil {
		t.Fatal(err)
	}
	must(t, conn.CloseWrite())
	must(t, conn.CloseWrite())
	if _, err := conn.Write([]byte("more")); !errors.Is(err, net.ErrClosed) {
		t.Errorf("after its end more was written: %v", err)
	}
	if answer, err := io.ReadAll(conn); string(answer) != "300000 bytes, and that is all" || err != nil {
		t.Errorf("answered %q, %v", answer, err)
	}
	must(t, conn.Close())
	must(t, conn.Close())
	must(t, s.Ping(patient(t)))
}

// TestARequestGoesOnLongAfterTheAnswersEnd: the program says all that it has to say, and then takes what still comes.
func TestARequestGoesOnLongAfterTheAnswersEnd(t *testing.T) {
	t.Parallel()
	e, s := lingering(t)
	conn := dialHalf(t, s, e.program(s, `
c.sendall(b"send it")
c.shutdown(socket.SHUT_WR)
time.sleep(1)
note("silence")
note("got", all(c))
`))
	if answer, err := io.ReadAll(conn); string(answer) != "send it" || err != nil {
		t.Fatalf("answered %q, %v", answer, err)
	}
	e.noted("silence")
	const size = 3 << 20 // more than a window
	if n, err := conn.Write(make([]byte, size)); n != size || err != nil {
		t.Fatalf("wrote %d, %v", n, err)
	}
	must(t, conn.CloseWrite())
	if got := e.noted("got"); got != strconv.Itoa(size) {
		t.Errorf("the program got %s bytes of %d", got, size)
	}
}

// TestBothDirectionsAtOnce: each goes on at its own pace, with silences.
func TestBothDirectionsAtOnce(t *testing.T) {
	t.Parallel()
	e, s := lingering(t)
	conn := dialHalf(t, s, e.program(s, `
for i in range(5):
    time.sleep(0.3)
    c.sendall(b"tick %d\n" % i)
    assert c.recv(2, socket.MSG_WAITALL) == b"ok"
c.shutdown(socket.SHUT_WR)
note("rest", all(c))
`))
	for i := range 5 {
		line := make([]byte, len("tick 0\n"))
		if _, err := io.ReadFull(conn, line); err != nil || string(line) != fmt.Sprintf("tick %d\n", i) {
			t.Fatalf("read %q, %v", line, err)
		}
		if _, err := conn.Write([]byte("ok")); err != nil {
			t.Fatal(err)
		}
	}
	if rest, err := io.ReadAll(conn); len(rest) > 0 || err != nil {
		t.Errorf("after its end the program said %q, %v", rest, err)
	}
	_, err := conn.Write([]byte("rest"))
	must(t, errors.Join(err, conn.CloseWrite()))
	if got := e.noted("rest"); got != "4" {
		t.Errorf("of the rest %s bytes came", got)
	}
}

// TestWhoIsGoneIsNotWaitedFor: a program that has read the end of its request and is silent learns that nobody is there
// for its answer, whether only the stream has ended or the whole link, and the guest keeps nothing of it.
func TestWhoIsGoneIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*engine, half) error{
		"the stream is closed": func(_ *engine, conn half) error { return conn.Close() },
		"another worker came":  func(e *engine, _ half) error { return e.sandbox(envd.Options{}).Ping(deadline(e.t, 20*time.Second)) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e, s := lingering(t)
			port := e.program(s, `
note("ended", all(c))
wait = select.poll()
wait.register(c, select.POLLERR | select.POLLHUP)
wait.poll()
note("told")
time.sleep(1000)
`)
			before := e.sockets()
			conn := dialHalf(t, s, port)
			_, err := conn.Write([]byte("request"))
			must(t, errors.Join(err, conn.CloseWrite()))
			e.noted("ended")
			must(t, end(e, conn))
			e.noted("told")
			testenv.Eventually(t, "the guest has let go of the connection", func() bool { return e.sockets() <= before })
		})
	}
}

// TestHalfARequestIsNotTakenForTheWhole: a program whose client's worker dies sees a break, not an end.
func TestHalfARequestIsNotTakenForTheWhole(t *testing.T) {
	t.Parallel()
	e, s := lingering(t)
	conn := dialHalf(t, s, e.program(s, `
note("begun", c.recv(4, socket.MSG_WAITALL))
try:
    all(c)
    note("end", "whole")
except ConnectionResetError:
    note("end", "broken")
`))
	_, err := conn.Write([]byte("half"))
	must(t, err)
	e.noted("begun")
	must(t, e.sandbox(envd.Options{}).Ping(patient(t))) // another worker came
	if got := e.noted("end"); got != "broken" {
		t.Errorf("the program took it for %s", got)
	}
}

// TestAProgramThatIsGoneEndsItsStream: who goes on sending is told, even where the answer was read to its end.
func TestAProgramThatIsGoneEndsItsStream(t *testing.T) {
	t.Parallel()
	e, s := lingering(t)
	conn := dialHalf(t, s, e.program(s, `
c.sendall(b"good-bye")
c.close()
`))
	if answer, err := io.ReadAll(conn); string(answer) != "good-bye" || err != nil {
		t.Fatalf("answered %q, %v", answer, err)
	}
	testenv.Eventually(t, "writes fail", func() bool {
		_, err := conn.Write(make([]byte, 1000))
		return err != nil
	})
}

// sockets counts those that the guest has open.
func (e *engine) sockets() (n int) {
	e.t.Helper()
	pids, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", e.cmd.Process.Pid, e.cmd.Process.Pid))
	must(e.t, err)
	dir := filepath.Join("/proc", strings.Fields(string(pids))[0], "fd")
	files, err := os.ReadDir(dir)
	must(e.t, err)
	for _, f := range files {
		if to, _ := os.Readlink(filepath.Join(dir, f.Name())); strings.HasPrefix(to, "socket:") {
			n++
		}
	}
	return n
}
