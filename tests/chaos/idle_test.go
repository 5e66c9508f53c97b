//go:build chaos

package chaos

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"

	"sandyard/providers/meter"
)

const (
	idleBoxes  = 50
	idleRest   = 30 * time.Second // until what was done before has come to rest
	idleWindow = time.Minute
)

// usual are the defaults of what the soaks set shorter.
func usual() []string {
	return []string{"LEASE=10s", "RECONCILE_EVERY=15s", "RECONCILE_GRACE=1m", "POOL_SIZE=4", "POOL_MAX=16", "WORKER_SLOTS=64"}
}

// TestIdle prints what a system costs that nobody uses: one API, worker and scheduler with their servers and engine,
// without sandboxes and with fifty.
func TestIdle(t *testing.T) {
	r := &run{t: t, bin: build(t, ""), began: time.Now()}
	var err error
	if r.sys, err = startSystem(t.Context(), setup{bin: r.bin, provider: onDocker, liveRestore: true, extra: usual()}); err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(r.sys.dir)
	defer r.sys.close()
	if err := r.sys.keepOne(); err != nil {
		t.Fatal(err)
	}
	empty, err := r.rest(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := r.fill(t.Context()); err != nil {
		t.Fatal(err)
	}
	full, err := r.rest(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 1, ' ', 0)
	fmt.Fprintf(w, "| idle\t| CPU, ms per s\t| with %d sandboxes\t| memory, MiB\t| with %[1]d sandboxes\t|\n| ---\t| ---:\t| ---:\t| ---:\t| ---:\t|\n", idleBoxes)
	for _, name := range []string{"API", "worker", "scheduler", "PostgreSQL", "Redis", "engine", "sandboxes"} {
		fmt.Fprintf(w, "| %s\t| %.1f\t| %.1f\t| %.0f\t| %.0f\t|\n", name, empty.cpu[name], full.cpu[name], empty.memory[name], full.memory[name])
	}
	_ = w.Flush() // to the screen
	fmt.Fprintf(os.Stdout, "PostgreSQL: %.1f transactions/s, with %d sandboxes %.1f; Redis: %.1f commands/s, %.1f\n",
		empty.transactions, idleBoxes, full.transactions, empty.commands, full.commands)
	if full.cpu["worker"] <= 0 || full.memory["sandboxes"] <= 0 || full.transactions <= 0 {
		t.Errorf("nothing was measured: %+v", full)
	}
	for _, name := range []string{"API", "worker", "scheduler"} { // a loop that does not wait takes a whole core
		if full.cpu[name] > 300 {
			t.Errorf("the %s takes %.0f ms per s for nothing", name, full.cpu[name])
		}
	}
}

// keepOne ends all processes but one of each program.
func (s *system) keepOne() error {
	for _, p := range s.processes {
		if strings.HasSuffix(p.name, "-0") {
			continue
		}
		p.signal(syscall.SIGTERM)
		if err := p.await(time.Minute); err != nil {
			return fmt.Errorf("%s, asked to end: %w", p.name, err)
		}
	}
	return nil
}

// fill makes the sandboxes, which last for the rest of the test.
func (r *run) fill(ctx context.Context) error {
	c := newCaller(r.sys)
	for i := range idleBoxes {
		status, text, _, err := c.insist(ctx, http.MethodPost, "/v1/sandboxes?wait=60s", fmt.Sprintf("box-%d", i), object{"memory_mb": 64, "disk_mb": 16})
		if err != nil || status != http.StatusOK {
			return fmt.Errorf("create: %d %s %w", status, text, err)
		}
	}
	return nil
}

// idle is what a system at rest costs: processor time in ms per s, memory in MiB, and questions per second.
type idle struct {
	cpu, memory            map[string]float64
	transactions, commands float64
}

// rest measures over a window, after a while.
func (r *run) rest(ctx context.Context) (idle, error) {
	if err := pass(ctx, idleRest); err != nil {
		return idle{}, err
	}
	before, err := r.sys.idle(ctx)
	if err != nil {
		return before, err
	}
	if err := pass(ctx, idleWindow); err != nil {
		return before, err
	}
	after, err := r.sys.idle(ctx)
	for name := range after.cpu {
		after.cpu[name] = (after.cpu[name] - before.cpu[name]) / idleWindow.Seconds()
	}
	after.transactions = (after.transactions - before.transactions) / idleWindow.Seconds()
	after.commands = (after.commands - before.commands) / idleWindow.Seconds()
	return after, err
}

func pass(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// idle reads all counters as they are.
func (s *system) idle(ctx context.Context) (idle, error) {
	i := idle{cpu: map[string]float64{}, memory: map[string]float64{}}
	for name, group := range map[string][]int{
		"API": {s.of("api", 0).pid()}, "worker": {s.of("worker", 0).pid()}, "scheduler": {s.of("scheduler", 0).pid()},
		"PostgreSQL": withChildren(filepath.Join(s.dir, "postgres")), "Redis": withChildren(filepath.Join(s.dir, "redis")),
		"engine": withChildren(filepath.Dir(s.host.socket())),
	} {
		for _, pid := range group {
			i.cpu[name] += processorMS(pid, name == "PostgreSQL")
			i.memory[name] += proportionalMiB(pid)
		}
	}
	conn, err := pgx.Connect(ctx, s.postgres.DSN())
	if err != nil {
		return i, err
	}
	defer conn.Close(ctx)
	err = conn.QueryRow(ctx, "SELECT (xact_commit + xact_rollback)::float8 FROM pg_stat_database WHERE datname = current_database()").Scan(&i.transactions)
	if err != nil {
		return i, err
	}
	refs, err := rows[struct{ Ref string }](ctx, conn, "SELECT provider_ref AS ref FROM sandboxes WHERE state = 'running'")
	if err != nil {
		return i, err
	}
	for _, r := range refs {
		if used, ok := meter.System.Read("docker/" + r.Ref); ok {
			i.cpu["sandboxes"] += float64(used.CPU) / float64(time.Millisecond)
			i.memory["sandboxes"] += float64(used.Memory) / (1 << 20)
		}
	}
	return i, s.withRedis(func(c *redis.Client) error {
		info, err := c.InfoMap(ctx, "stats").Result()
		if err != nil {
			return err
		}
		i.commands, err = strconv.ParseFloat(info["Stats"]["total_commands_processed"], 64)
		return err
	})
}

// withChildren are the processes whose command line names a directory, and their children.
func withChildren(dir string) []int {
	var all []int
	parents := map[int]int{}
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		text, err := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		if err == nil && strings.Contains(string(text), dir) && !strings.HasPrefix(argument(text), "sh") {
			all = append(all, pid)
		}
		if f := statOf(pid); len(f) > 1 {
			parents[pid], _ = strconv.Atoi(f[1])
		}
	}
	named := slices.Clone(all)
	for pid, parent := range parents {
		text, _ := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline"))
		if slices.Contains(named, parent) && !slices.Contains(named, pid) && strings.HasPrefix(string(text), "postgres") {
			all = append(all, pid)
		}
	}
	return all
}

// statOf are the fields of a process's stat behind its name: state, parent and so on.
func statOf(pid int) []string {
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return nil
	}
	return strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
}

// processorMS is the processor time of a process, with that of the children which it has buried if they count.
func processorMS(pid int, children bool) float64 {
	const first, tickMS = 11, 10 // utime, stime, cutime, cstime
	f := statOf(pid)
	if len(f) < first+4 {
		return 0
	}
	var sum float64
	for i, word := range f[first : first+4] {
		if n, err := strconv.ParseFloat(word, 64); err == nil && (i < 2 || children) {
			sum += n * tickMS
		}
	}
	return sum
}

// proportionalMiB is a process's memory with its part of what it shares.
func proportionalMiB(pid int) float64 {
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "smaps_rollup"))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == "Pss:" {
			kib, _ := strconv.ParseFloat(f[1], 64)
			return kib / 1024
		}
	}
	return 0
}
