package local

import (
	"os"
	"os/exec"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"

	"sandyard/providers"
	"sandyard/providers/local/cgroup"
	"sandyard/providers/local/filter"
)

// Probe says exactly what this machine lacks for local sandboxes, or nil. It starts one short process in namespaces of
// its own, because nothing but doing so shows whether a container around us or a security module forbids it.
func Probe() error {
	if os.Geteuid() != 0 {
		return providers.Unavailable.Errorf("local sandboxes need root for namespaces and cgroups; run the worker as root, not as user %d", os.Geteuid())
	}
	if _, err := filter.Compile(); err != nil {
		return providers.Unavailable.Errorf("local sandboxes need a seccomp filter, which does not exist for %s: %w", runtime.GOARCH, err)
	}
	if _, err := cgroup.Find(); err != nil {
		return providers.Unavailable.Errorf("local sandboxes need cgroups; in a container, run it with --privileged: %w", err)
	}
	if ok, err := hasOverlay(); err != nil || !ok {
		return providers.Unavailable.Errorf("local sandboxes need the overlay file system, which this kernel lacks; run modprobe overlay: %w", err)
	}
	return tryNamespaces()
}

// hasOverlay asks for a file system context: it loads the module where the kernel has it as one.
func hasOverlay() (bool, error) {
	fd, err := unix.Fsopen("overlay", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return false, err
	}
	return true, unix.Close(fd)
}

func tryNamespaces() error {
	// The program does not matter: the kernel makes the namespaces before it, or does not.
	cmd := exec.Command("/proc/self/exe")
	cmd.Path = "/nonexistent/sandyard-probe"
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC | unix.CLONE_NEWNET | unix.CLONE_NEWCGROUP,
	}
	err := cmd.Start()
	if err == nil {
		return cmd.Wait()
	}
	if os.IsNotExist(err) {
		return nil
	}
	return providers.Unavailable.Errorf("local sandboxes need namespaces, which this machine does not allow; in a container, run it with --privileged: %w", err)
}
