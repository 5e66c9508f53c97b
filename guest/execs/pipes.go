package execs

import (
	"errors"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// pipes are the standard descriptors of one command. Ours are polled by the runtime, so that a close or a deadline ends
// a read; the command's are plain.
type pipes struct {
	child [4]*os.File
	stdin *os.File // nil without
	out   [streams]*os.File
	tty   bool // stdin and out[0] are one terminal
}

func openPipes(c Command) (*pipes, error) {
	p := &pipes{}
	var err error
	if c.TTY != nil {
		err = p.openTerminal(*c.TTY)
	} else {
		err = p.openPlain(c)
	}
	if err != nil {
		p.closeChild()
		p.closeOurs()
		return nil, err
	}
	return p, nil
}

func (p *pipes) openPlain(c Command) (err error) {
	if c.Stdin {
		p.child[0], p.stdin, err = pipe(false)
	} else {
		p.child[0], err = os.OpenFile(os.DevNull, os.O_RDONLY, 0)
	}
	for i := range p.out {
		switch {
		case err != nil, i == int(Report) && !c.Report:
		case i == int(Stderr) && c.Merge:
			p.child[1+i] = p.child[1+int(Stdout)]
		default:
			p.out[i], p.child[1+i], err = pipe(true)
		}
	}
	return err
}

// forChild are the descriptors that the command gets, from 0 on.
func (p *pipes) forChild() []*os.File {
	if p.child[len(p.child)-1] == nil {
		return p.child[:len(p.child)-1]
	}
	return p.child[:]
}

// pipe returns both ends; the one that is ours does not block.
func pipe(readIsOurs bool) (r, w *os.File, err error) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		return nil, nil, os.NewSyscallError("pipe2", err)
	}
	ours := fds[1]
	if readIsOurs {
		ours = fds[0]
	}
	if err := unix.SetNonblock(ours, true); err != nil {
		return nil, nil, errors.Join(err, unix.Close(fds[0]), unix.Close(fds[1]))
	}
	return os.NewFile(uintptr(fds[0]), "pipe"), os.NewFile(uintptr(fds[1]), "pipe"), nil
}

func (p *pipes) openTerminal(size Size) error {
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NOCTTY|unix.O_NONBLOCK, 0)
	if err != nil {
		return os.NewSyscallError("open /dev/ptmx", err)
	}
	p.tty, p.out[0] = true, os.NewFile(uintptr(fd), "terminal")
	p.stdin = p.out[0]
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		return os.NewSyscallError("name the terminal", err)
	}
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		return os.NewSyscallError("unlock the terminal", err)
	}
	for i := range p.child[:3] {
		p.child[i], err = os.OpenFile("/dev/pts/"+strconv.Itoa(number), os.O_RDWR|unix.O_NOCTTY, 0)
		if err != nil {
			return err
		}
	}
	return resize(p.out[0], size)
}

func resize(terminal *os.File, size Size) error {
	raw, err := terminal.SyscallConn()
	if err != nil {
		return err
	}
	var sizeErr error
	err = raw.Control(func(fd uintptr) {
		sizeErr = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Col: size.Cols, Row: size.Rows})
	})
	return errors.Join(err, sizeErr)
}

func (p *pipes) closeChild() {
	for _, f := range p.child {
		_ = f.Close() // a nil file only answers with an error
	}
}

func (p *pipes) closeOurs() {
	_ = p.stdin.Close()
	for _, f := range p.out {
		_ = f.Close()
	}
}
