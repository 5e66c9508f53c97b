package confine

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"sandyard/providers"
)

// ThisHost is what this machine has, as its kernel says.
func ThisHost() (providers.Host, error) {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return providers.Host{}, providers.Unavailable.Errorf("ask the kernel for its memory: %w", err)
	}
	h := providers.Host{CPUs: runtime.NumCPU(), MemoryMB: int64(uint64(info.Totalram) * uint64(info.Unit) >> 20)}
	pids, err := kernelNumber("kernel.pid_max")
	if err != nil {
		return h, err
	}
	threads, err := kernelNumber("kernel.threads-max")
	h.Pids = min(pids, threads)
	return h, err
}

// otherFiles are left to programs outside of sandboxes.
const otherFiles = 1 << 20

// RaiseOpenFiles makes the kernel's limit of open files so high that all processes of sandboxes together stay below it: the
// kernel charges what they open to their memory. Where the limit is lower, a few sandboxes can leave no other program a file
// to open; where it cannot be raised from here, the log tells the operator to do it.
func RaiseOpenFiles(ctx context.Context, pids int64, log *slog.Logger) {
	const name = "fs.file-max"
	most, err := kernelNumber(name)
	want := pids*MaxOpenFiles + otherFiles
	if err != nil || most >= want {
		return
	}
	if err := os.WriteFile(sysctlPath(name), fmt.Appendln(nil, want), 0); err != nil {
		log.WarnContext(ctx, "sandboxes can use up the machine's open files: run sysctl -w fs.file-max=VALUE on it", "value", want, "now", most, "error", err)
		return
	}
	log.InfoContext(ctx, "raised the kernel's limit of open files, so that sandboxes cannot reach it", "sysctl", name, "from", most, "to", want)
}

func sysctlPath(name string) string { return "/proc/sys/" + strings.ReplaceAll(name, ".", "/") }

func kernelNumber(name string) (int64, error) {
	text, err := os.ReadFile(sysctlPath(name))
	if err != nil {
		return 0, providers.Unavailable.Errorf("ask the kernel for %s: %w", name, err)
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		return 0, providers.Unavailable.Errorf("ask the kernel for %s: %w", name, err)
	}
	return n, nil
}
