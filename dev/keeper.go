package dev

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	pollInterval = 2 * time.Millisecond
	stopGrace    = 20 * time.Second
	logTail      = 2048
)

// keeperScript holds one server. The end of its standard input, which the kernel closes with the last process of ours,
// is the order to stop the server; so no thread has to live as long as the server does, as Pdeathsig would need. File 3
// is the directory's lock: the server inherits it, so the lock is free only when the server is gone.
const keeperScript = `signal=$1 trash=$2
shift 2
exec 4<&0
"$@" </dev/null 4<&- &
server=$!
{ cat >/dev/null; kill -s "$signal" "$server"; } <&4 3<&- 2>/dev/null &
watcher=$!
exec 4<&-
wait "$server"
status=$?
kill "$watcher" 2>/dev/null
[ -z "$trash" ] || rm -rf "$trash"
exit "$status"`

// keeper is a running server and the shell that ends it when this process is gone.
type keeper struct {
	cmd     *exec.Cmd
	leash   *os.File
	place   place
	logPath string
	trash   bool
}

// startKeeper starts argv in the place as its owner. The lock passes to the server.
func startKeeper(p place, lock *os.File, signal, logPath string, throwaway bool, argv ...string) (*keeper, error) {
	logFile, err := os.OpenFile(logPath, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open server log: %w", err)
	}
	defer logFile.Close()
	stdin, leash, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("make leash: %w", err)
	}
	defer stdin.Close()

	trash := ""
	if throwaway {
		trash = p.dir
	}
	cmd := exec.Command("/bin/sh", append([]string{"-c", keeperScript, "keeper", signal, trash}, argv...)...)
	cmd.Dir, cmd.Env = p.dir, serverEnv()
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, logFile, logFile
	cmd.ExtraFiles = []*os.File{lock}
	// A session of its own keeps the terminal's Ctrl-C away from the server: it has to outlive the last query.
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: p.owner.credential(), Setsid: true}
	if err := cmd.Start(); err != nil {
		leash.Close()
		return nil, fmt.Errorf("start %s: %w", argv[0], err)
	}
	return &keeper{cmd: cmd, leash: leash, place: p, logPath: logPath, trash: throwaway}, nil
}

// serverEnv keeps the caller's PG* settings and locale out of the servers.
func serverEnv() []string {
	return []string{"PATH=/usr/local/bin:/usr/bin:/bin", "LC_ALL=C.UTF-8", "TZ=UTC"}
}

// await calls ready until it succeeds, the server has ended or ctx is done.
func (k *keeper) await(ctx context.Context, ready func(context.Context) error) error {
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		err := ready(ctx)
		if err == nil {
			return nil
		}
		if k.exited() {
			return fmt.Errorf("server ended at start: %s", k.tail())
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("server does not answer: %w", errors.Join(ctx.Err(), err))
		case <-tick.C:
		}
	}
}

// exited tells whether the keeper has ended, and leaves it for Wait to collect.
func (k *keeper) exited() bool {
	var info unix.Siginfo
	err := unix.Waitid(unix.P_PID, k.cmd.Process.Pid, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
	return err != nil || info.Signo != 0
}

// stop ends the server in order, and by force after stopGrace.
func (k *keeper) stop() error {
	k.leash.Close()
	force := time.AfterFunc(stopGrace, func() { _ = unix.Kill(-k.cmd.Process.Pid, unix.SIGKILL) })
	err := k.cmd.Wait()
	force.Stop()
	if k.trash {
		return errors.Join(err, k.place.remove())
	}
	if err != nil {
		return fmt.Errorf("%w: %s", err, k.tail())
	}
	return nil
}

func (k *keeper) tail() string {
	text, err := os.ReadFile(k.logPath)
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(string(text[max(0, len(text)-logTail):]))
}
