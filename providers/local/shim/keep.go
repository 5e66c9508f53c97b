package shim

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"sandyard/providers/local/script"
)

// Main is the shim's main function. It returns when the guest has ended.
func Main() int {
	if err := keep(); err != nil {
		_, _ = os.Stdout.WriteString(err.Error())
		return 1
	}
	return 0
}

func keep() error {
	o, err := readOrder(os.Stdin)
	if err != nil {
		return err
	}
	if err := declareAlive(o.dir); err != nil {
		return err
	}
	for _, dir := range []string{o.image, o.programs} {
		if err := hold(dir); err != nil {
			return err
		}
	}
	socket, err := listen(o.dir)
	if err != nil {
		return err
	}
	defer socket.Close()
	g, err := startApart(o)
	if err != nil {
		return err
	}
	sayReady()
	r := newRelay(g.stdin)
	go r.accept(socket)
	words := make(chan string, 1)
	go func() { words <- lastWords(g.stderr) }()
	r.spread(g.stdout)
	end, err := g.Wait()
	if err != nil {
		return err
	}
	report := fmt.Sprintf("guest: %v: %s\n", end, <-words)
	if killed(end) && o.group.OOMKills() > 0 {
		report = OutOfMemory + report
	}
	return os.WriteFile(filepath.Join(o.dir, EndFile), []byte(report), 0o600)
}

// killed says whether somebody has killed the guest: we with the sandbox, or the kernel.
func killed(end *os.ProcessState) bool {
	status, ok := end.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == syscall.SIGKILL
}

// declareAlive takes the lock that is the sign of our life and says who we are. The lock ends with the process.
func declareAlive(dir string) error {
	f, err := unix.Open(filepath.Join(dir, AliveFile), unix.O_RDWR|unix.O_CREAT|unix.O_TRUNC|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return fmt.Errorf("open the lock file in %s: %w", dir, err)
	}
	if err := unix.FcntlFlock(uintptr(f), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_WRLCK}); err != nil {
		return fmt.Errorf("another shim has locked %s: %w", dir, err)
	}
	if _, err := unix.Write(f, []byte(strconv.Itoa(os.Getpid()))); err != nil {
		return fmt.Errorf("write the lock file in %s: %w", dir, err)
	}
	return nil
}

// Alive says whether a shim lives in dir, and its process id where it has written it down already.
func Alive(dir string) (pid int, alive bool) {
	f, err := os.OpenFile(filepath.Join(dir, AliveFile), os.O_RDWR, 0)
	if err != nil {
		return 0, false
	}
	defer f.Close()
	lock := unix.Flock_t{Type: unix.F_WRLCK}
	if err := unix.FcntlFlock(f.Fd(), unix.F_OFD_GETLK, &lock); err != nil || lock.Type == unix.F_UNLCK {
		return 0, false
	}
	text := make([]byte, 16)
	n, _ := f.Read(text)
	pid, _ = strconv.Atoi(string(text[:n]))
	return pid, true
}

// hold takes a shared lock on a directory for as long as the process lives: whoever tidies up takes an exclusive one
// first.
func hold(dir string) error {
	f, err := unix.Open(dir, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err == nil {
		err = unix.Flock(f, unix.LOCK_SH)
	}
	if err != nil {
		return fmt.Errorf("lock %s: %w", dir, err)
	}
	return nil
}

// listen makes the socket for workers. Package net would be a third of the shim's start.
func listen(dir string) (*os.File, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("listen for workers: %w", err)
	}
	err = WithShortPath(dir, func(short string) error {
		return unix.Bind(fd, &unix.SockaddrUnix{Name: filepath.Join(short, SocketFile)})
	})
	if err == nil {
		err = unix.Listen(fd, unix.SOMAXCONN)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("listen for workers: %w", err), unix.Close(fd))
	}
	return os.NewFile(uintptr(fd), SocketFile), nil
}

// WithShortPath calls do with another path of dir that is short enough for a socket's address, which holds 108 bytes.
func WithShortPath(dir string, do func(short string) error) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	return do("/proc/self/fd/" + strconv.Itoa(int(f.Fd())))
}

// guest is the first process of the sandbox, with our ends of its standard descriptors.
type guest struct {
	*script.Process
	stdin, stdout, stderr *os.File
}

const namespaces = unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC | unix.CLONE_NEWNET

// startApart starts the guest on a thread that does nothing else and stays: the guest dies with it.
func startApart(o order) (g *guest, err error) {
	started := make(chan struct{})
	go func() {
		runtime.LockOSThread()
		g, err = start(o)
		close(started)
		select {}
	}()
	<-started
	return g, err
}

// start returns when the guest runs, or says why it does not.
func start(o order) (*guest, error) {
	pipes, err := openPipes()
	if err != nil {
		return nil, err
	}
	g := &guest{stdin: pipes.ours[0], stdout: pipes.ours[1], stderr: pipes.ours[2]}
	err = o.group.Start(func(group int) error {
		g.Process, err = o.calls.Start(pipes.theirs, script.Where{Namespaces: namespaces, Group: group})
		return err
	})
	pipes.closeTheirs()
	if g.Process == nil {
		return nil, err
	}
	if err = errors.Join(err, g.Become()); err != nil {
		_ = g.Kill()
		_, waitErr := g.Wait()
		return nil, errors.Join(err, waitErr)
	}
	return g, nil
}

// pipes are the guest's standard descriptors, by number, and our ends of them.
type pipes struct {
	ours   [3]*os.File
	theirs [3]int
}

func openPipes() (p pipes, err error) {
	for fd := range p.theirs {
		var ends [2]int
		if err := unix.Pipe2(ends[:], unix.O_CLOEXEC); err != nil {
			return p, err
		}
		if fd == 0 {
			ends[0], ends[1] = ends[1], ends[0]
		}
		if err := unix.SetNonblock(ends[0], true); err != nil {
			return p, err
		}
		p.ours[fd], p.theirs[fd] = os.NewFile(uintptr(ends[0]), "guest"), ends[1]
	}
	return p, nil
}

func (p pipes) closeTheirs() {
	for _, fd := range p.theirs {
		_ = unix.Close(fd)
	}
}

// sayReady tells the worker that started us, and lets go of everything that we share with it.
func sayReady() {
	_, _ = os.Stdout.WriteString(Ready)
	null, err := unix.Open(os.DevNull, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	for fd := range 3 {
		_ = unix.Dup3(null, fd, 0)
	}
	_ = unix.Close(null)
}

// maxWords is how much of the guest's standard error is kept: the last words of one that crashed.
const maxWords = 4 << 10

func lastWords(r io.Reader) string {
	var words []byte
	buf := make([]byte, maxWords)
	for {
		n, err := r.Read(buf)
		words = append(words, buf[:n]...)
		words = words[max(0, len(words)-maxWords):]
		if err != nil {
			return string(words)
		}
	}
}
