package docker_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"sandyard/providers"
	"sandyard/providers/envd"
)

// What the guest is measured by. Only envd's figure is one of a program: release 0.6.13 in a container of the same kind on
// a quiet machine of two cores like this one, asked for true in a login shell over TCP, with its binary codec. It was
// measured once and elsewhere, so a ratio with it says little on a machine that is busy.
const (
	envdExecMS    = 5.0
	wantedStartMS = 10
	wantedMiB     = 10
	wantedIdleMS  = 60 // of CPU a minute: a thousandth of a core
)

// BenchmarkGuest measures what the guest takes by itself.
func BenchmarkGuest(b *testing.B) {
	path := writeGuest(b)
	for range 3 {
		_, _, err := startGuest(b.Context(), path) // into the caches
		fatal(b, err)
	}
	b.Run("start/vs wanted at most", func(b *testing.B) {
		report(b, "ms", wantedStartMS, 50, func() (float64, error) {
			took, _, err := startGuest(b.Context(), path)
			return ms(took), err
		})
	})
	b.Run("start and end, processor time/vs wanted at most", func(b *testing.B) { // which others on the machine do not lengthen
		report(b, "ms", wantedStartMS, 20, func() (float64, error) {
			_, spent, err := startGuest(b.Context(), path)
			return ms(spent), err
		})
	})
	b.Run("true in a login shell/vs envd measured elsewhere", func(b *testing.B) {
		_, box := create(b, newYard(b).open(b))
		report(b, "ms", envdExecMS, 200, func() (float64, error) {
			began := time.Now()
			name := newID()
			_, err := box.Run(b.Context(), providers.Command{Name: name, Argv: []string{"/bin/bash", "-l", "-c", "true"}})
			return ms(time.Since(began)), errors.Join(err, box.Forget(b.Context(), name))
		})
	})
	y := newYard(b)
	p := y.open(b)
	id, box := create(b, p)
	pid := y.firstProcess(b, id)
	busy(b, box, 1100)
	rested(b)
	for name, field := range map[string]string{"own": "RssAnon", "with the program's pages, which all guests share": "VmRSS"} {
		b.Run("memory after 1,100 execs, "+name+"/vs wanted at most", func(b *testing.B) {
			report(b, "MiB", wantedMiB, 1, func() (float64, error) { return memory(pid, field) })
		})
	}
	b.Run("idle/vs wanted at most", func(b *testing.B) {
		report(b, "ms_of_CPU_a_minute", wantedIdleMS, 1, func() (float64, error) { return idle(b.Context(), pid) })
	})
}

// report tells p50 and p99 of n measurements beside a figure that is not measured here.
func report(b *testing.B, unit string, base float64, n int, measure func() (float64, error)) {
	b.Helper()
	var all []float64
	for range n {
		v, err := measure()
		fatal(b, err)
		all = append(all, v)
	}
	slices.Sort(all)
	b.ReportMetric(all[n/2], "ours-p50-"+unit)
	if n > 1 {
		b.ReportMetric(all[(n*99+99)/100-1], "ours-p99-"+unit)
	}
	b.ReportMetric(base, "base-p50-"+unit)
	b.ReportMetric(0, "ns/op")
}

// writeGuest returns where the programs are.
func writeGuest(b *testing.B) string {
	b.Helper()
	dir := b.TempDir()
	for name, file := range guestFiles(b) {
		fatal(b, os.WriteFile(filepath.Join(dir, name), file.Data, 0o755))
	}
	return filepath.Join(dir, "guest")
}

// startGuest starts a guest as the first process of a namespace, and waits until it has answered a call. The program that
// makes the namespace is counted, too.
func startGuest(ctx context.Context, path string) (took, spent time.Duration, err error) {
	cmd := exec.Command("unshare", "--pid", "--fork", "--kill-child", "--mount-proc",
		path, "stdio", "-workdir", filepath.Dir(path), "-roots", filepath.Dir(path))
	in, err := cmd.StdinPipe()
	if err != nil {
		return 0, 0, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return 0, 0, err
	}
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return 0, 0, err
	}
	took, err = firstAnswer(ctx, began, struct {
		io.Reader
		io.WriteCloser
	}{out, in})
	if err = errors.Join(err, cmd.Wait()); err != nil {
		return 0, 0, err
	}
	return took, cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(), nil
}

func firstAnswer(ctx context.Context, began time.Time, stdio io.ReadWriteCloser) (time.Duration, error) {
	ctx, stop := context.WithTimeout(ctx, time.Minute)
	defer stop()
	box, err := envd.Attach(ctx, stdio, envd.Options{})
	if err != nil {
		return 0, err
	}
	err = box.Ping(ctx)
	return time.Since(began), errors.Join(err, box.Close())
}

// busy runs n programs that say something, eight at a time.
func busy(b *testing.B, box providers.Sandbox, n int) {
	b.Helper()
	errs := make(chan error, n)
	turns := make(chan struct{}, 8)
	for range n {
		turns <- struct{}{}
		go func() {
			defer func() { <-turns }()
			name := newID()
			_, err := box.Run(b.Context(), providers.Command{Name: name, Shell: "head -c 20000 /dev/zero"})
			errs <- errors.Join(err, box.Forget(b.Context(), name))
		}()
	}
	for range n {
		fatal(b, <-errs)
	}
}

func (y *yard) firstProcess(b *testing.B, id string) int {
	b.Helper()
	found, err := y.api.ContainerInspect(b.Context(), "sandyard-"+id)
	fatal(b, err)
	return found.State.Pid
}

// memory is a field of a process's status, in MiB.
func memory(pid int, field string) (float64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(status), field+":")
	var kib float64
	_, err = fmt.Sscan(rest, &kib)
	return kib / 1024, err
}

// idle is what a process takes of the processors while nobody uses its sandbox, in milliseconds a minute. Its worker asks
// it every five seconds whether it lives.
func idle(ctx context.Context, pid int) (float64, error) {
	const length = 20 * time.Second
	before, err := processorTime(pid)
	if err != nil {
		return 0, err
	}
	select {
	case <-time.After(length):
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	after, err := processorTime(pid)
	return ms(after-before) * float64(time.Minute/length), err
}

// processorTime is that of all threads of a process.
func processorTime(pid int) (sum time.Duration, err error) {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if err != nil || len(threads) == 0 {
		return 0, fmt.Errorf("the threads of process %d: %w", pid, err)
	}
	for _, file := range threads {
		text, err := os.ReadFile(file)
		if err != nil {
			return 0, err
		}
		onCPU, _, _ := strings.Cut(string(text), " ")
		n, err := strconv.ParseInt(onCPU, 10, 64)
		if err != nil {
			return 0, err
		}
		sum += time.Duration(n)
	}
	return sum, nil
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

func fatal(b *testing.B, err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}
