// Package egress_test lets real sandboxes connect to the outside, and attacks what keeps them from the rest. The
// whole package runs in a network namespace of its own that has nothing but a loopback interface: what stands for the
// internet are addresses that are routed to it there, with a name server among them, so not one packet leaves.
package egress_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"sandyard/dev/testenv"
)

// What a process of this program is for.
const (
	roleVariable = "EGRESS_TEST_ROLE"
	roleInside   = "inside" // runs the tests, in namespaces of its own
	roleWorker   = "worker" // is a worker, in those of the tests
)

func TestMain(m *testing.M) {
	switch os.Getenv(roleVariable) {
	case roleWorker:
		os.Exit(runWorker())
	case roleInside:
		os.Exit(inside(m))
	default:
		os.Exit(outside())
	}
}

// outside starts this program again in namespaces of its own. Those of a process cannot be changed for all its threads.
func outside() int {
	if os.Getuid() != 0 {
		say("skipped: tests/egress needs root, to make a network namespace that nothing leaves")
		return 0
	}
	runtime.LockOSThread() // the child dies with the thread that started it, which is the main one
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Args[0] = os.Args[0]
	cmd.Env = append(os.Environ(), roleVariable+"="+roleInside)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET | unix.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	err := cmd.Run()
	var ended *exec.ExitError
	switch {
	case errors.As(err, &ended):
		return max(ended.ExitCode(), 1)
	case errors.Is(err, syscall.EPERM):
		say("skipped: tests/egress cannot make a network namespace here: " + err.Error())
		return 0
	case err != nil:
		say("start the tests in a namespace: " + err.Error())
		return 1
	}
	return 0
}

func say(text string) { _, _ = os.Stdout.WriteString(text + "\n") }

func inside(m *testing.M) int {
	if err := arrange(); err != nil {
		say("arrange the namespace: " + err.Error())
		return 1
	}
	defer programs.remove()
	if code := m.Run(); code != 0 {
		return code
	}
	if err := goleak.Find(testenv.Lasting()...); err != nil {
		say(err.Error())
		return 1
	}
	return 0
}

// arrange gives the namespace its internet: all addresses are of this machine, without being those of an interface.
// Names are looked up in it by the server of names_test.go.
func arrange() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("part from the machine's mounts: %w", err)
	}
	resolv := filepath.Join(os.TempDir(), fmt.Sprintf("sandyard-egress-resolv-%d", os.Getpid()))
	defer os.Remove(resolv)
	if err := os.WriteFile(resolv, []byte("nameserver "+nameServer+"\noptions timeout:2 attempts:2\nsearch search.test\n"), 0o644); err != nil {
		return err
	}
	target, err := filepath.EvalSymlinks("/etc/resolv.conf")
	if err != nil {
		return err
	}
	if err := unix.Mount(resolv, target, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("name the name server: %w", err)
	}
	for _, line := range []string{
		"link set lo up", "route add local 0.0.0.0/0 dev lo", "-6 route add local 2000::/3 dev lo", "-6 route add local fd00::/8 dev lo",
	} {
		if out, err := exec.Command("ip", strings.Fields(line)...).CombinedOutput(); err != nil {
			return fmt.Errorf("ip %s: %w: %s", line, err, out)
		}
	}
	return checkSealed()
}

// checkSealed refuses to go on where there is any interface but loopback.
func checkSealed() error {
	out, err := exec.Command("ip", "-o", "link").Output()
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(out)) {
		if name := strings.TrimSuffix(strings.Fields(line)[1], ":"); name != "lo" && !strings.Contains(line, "state DOWN") {
			return fmt.Errorf("the namespace has an interface of its own: %s", line)
		}
	}
	return nil
}
