package keeper

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"sandyard/providers/local/cgroup"
)

// Descriptors of the first process beyond the standard ones.
const (
	planFD   = 3
	statusFD = 4 // closed by becoming the guest; an error is written to it
)

// keep is the keeper's life: it returns when the guest has ended.
func keep() error {
	// The death of the guest is tied to that of this thread.
	runtime.LockOSThread()
	plan, text, err := readPlan(os.Stdin)
	if err != nil {
		return err
	}
	alive, err := declareAlive(plan.Dir)
	if err != nil {
		return err
	}
	defer alive.Close()
	used, err := hold(plan.Image, plan.Programs)
	if err != nil {
		return err
	}
	defer used.Close()
	socket, err := listen(plan.Dir)
	if err != nil {
		return err
	}
	defer socket.Close()
	g, err := start(plan.Group, text)
	if err != nil {
		return err
	}
	sayReady()
	r := newRelay(g.stdin)
	go r.accept(socket)
	words := make(chan string, 1)
	go func() { words <- lastWords(g.stderr) }()
	r.spread(g.stdout)
	end := g.cmd.Wait()
	report := fmt.Sprintf("guest: %v: %s\n", end, <-words)
	return os.WriteFile(filepath.Join(plan.Dir, EndFile), []byte(report), 0o600)
}

// declareAlive takes the lock that is the sign of our life and says who we are.
func declareAlive(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, AliveFile), os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_WRLCK}); err != nil {
		return nil, errors.Join(fmt.Errorf("another keeper holds %s: %w", dir, err), f.Close())
	}
	if _, err := f.WriteString(strconv.Itoa(os.Getpid())); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// Alive says whether a keeper lives in dir, and its process id where it has written it down already.
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

// holding are directories that nobody may remove meanwhile.
type holding []*os.File

// hold takes shared locks: whoever tidies up takes an exclusive one first.
func hold(dirs ...string) (holding, error) {
	var held holding
	for _, dir := range dirs {
		f, err := os.Open(dir)
		if err != nil {
			return nil, errors.Join(err, held.Close())
		}
		held = append(held, f)
		if err := unix.Flock(int(f.Fd()), unix.LOCK_SH); err != nil {
			return nil, errors.Join(fmt.Errorf("lock %s: %w", dir, err), held.Close())
		}
	}
	return held, nil
}

func (h holding) Close() error {
	var all error
	for _, f := range h {
		all = errors.Join(all, f.Close())
	}
	return all
}

func listen(dir string) (*net.UnixListener, error) {
	var l *net.UnixListener
	err := WithShortPath(dir, func(short string) error {
		var err error
		l, err = net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(short, SocketFile), Net: "unix"})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("listen for workers: %w", err)
	}
	l.SetUnlinkOnClose(false) // the name is short-lived; the directory is removed as a whole
	return l, nil
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
	cmd            *exec.Cmd
	stdin          *os.File
	stdout, stderr *os.File
}

// start returns when the guest runs, or says why it does not.
func start(group cgroup.Group, plan []byte) (*guest, error) {
	pipes, err := openPipes()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command("/proc/self/exe", "inside")
	cmd.Env = []string{"GOMAXPROCS=1", "GOGC=off"} // it is gone in a moment
	cmd.Stdin, cmd.Stdout, cmd.Stderr = pipes.theirs[0], pipes.theirs[1], pipes.theirs[2]
	cmd.ExtraFiles = []*os.File{pipes.theirs[planFD], pipes.theirs[statusFD]}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC | unix.CLONE_NEWNET,
		Setsid:     true,
		Pdeathsig:  syscall.SIGKILL,
	}
	err = group.Start(cmd)
	for _, f := range pipes.theirs {
		_ = f.Close()
	}
	if err != nil {
		return nil, fmt.Errorf("make the namespaces: %w", err)
	}
	if err := build(plan, pipes); err != nil {
		_ = cmd.Process.Kill()
		return nil, errors.Join(err, cmd.Wait())
	}
	return &guest{cmd: cmd, stdin: pipes.ours[0], stdout: pipes.ours[1], stderr: pipes.ours[2]}, nil
}

// build tells the first process what to do and waits until it has become the guest.
func build(plan []byte, pipes pipes) error {
	_, err := pipes.ours[planFD].Write(plan)
	if err = errors.Join(err, pipes.ours[planFD].Close()); err != nil {
		return fmt.Errorf("hand over the plan: %w", err)
	}
	trouble, err := io.ReadAll(pipes.ours[statusFD])
	if err != nil {
		return err
	}
	if len(trouble) > 0 {
		return errors.New(string(trouble))
	}
	return nil
}

// pipes are the first process's descriptors, by number, and our ends of them.
type pipes struct{ ours, theirs [5]*os.File }

func openPipes() (pipes, error) {
	var p pipes
	for fd := range p.theirs {
		r, w, err := os.Pipe()
		if err != nil {
			return p, err
		}
		if fd == 0 || fd == planFD {
			p.theirs[fd], p.ours[fd] = r, w
		} else {
			p.theirs[fd], p.ours[fd] = w, r
		}
	}
	return p, nil
}

// sayReady tells the worker that started us, and lets go of everything that we share with it.
func sayReady() {
	_, _ = os.Stdout.WriteString(Ready)
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return
	}
	defer null.Close()
	for fd := range 3 {
		_ = unix.Dup3(int(null.Fd()), fd, 0)
	}
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
