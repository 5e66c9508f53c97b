//go:build chaos

package chaos

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"
)

// figures reads the system's figures into the ledger, once.
func (s *system) figures(ctx context.Context, l ledger) error {
	for _, p := range s.processes {
		if err := p.figures(ctx, l, s.key); err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
	}
	if err := s.host.figures(l); err != nil {
		return err
	}
	if err := s.redisFigures(ctx, l); err != nil {
		return err
	}
	return s.postgresFigures(ctx, l)
}

// figures of one process: the kernel's, and what it says itself.
func (p *process) figures(ctx context.Context, l ledger, key string) error {
	pid := strconv.Itoa(p.pid())
	rss, err := residentMiB(pid)
	if err != nil {
		return err
	}
	fds, sockets := links(pid), 0
	for _, to := range fds {
		if strings.HasPrefix(to, "socket:") {
			sockets++
		}
	}
	goroutines, err := p.metric(ctx, "go_goroutines", key)
	if err != nil {
		return err
	}
	l.add(p.name+": resident", "MiB", rss, 8, 0.15)
	l.add(p.name+": goroutines", "", goroutines, 40, 0.15)
	l.add(p.name+": file descriptors", "", float64(len(fds)), 20, 0.15)
	l.add(p.name+": sockets", "", float64(sockets), 20, 0.15)
	return nil
}

func (p *process) pid() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cmd.Process.Pid
}

func residentMiB(pid string) (float64, error) {
	text, err := os.ReadFile(filepath.Join("/proc", pid, "status"))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == "VmRSS:" {
			kib, err := strconv.ParseFloat(f[1], 64)
			return kib / 1024, err
		}
	}
	return 0, fmt.Errorf("process %s has no memory", pid)
}

// links are what a process's file descriptors lead to.
func links(pid string) []string {
	entries, _ := os.ReadDir(filepath.Join("/proc", pid, "fd")) // one that is gone has none
	var all []string
	for _, e := range entries {
		if to, err := os.Readlink(filepath.Join("/proc", pid, "fd", e.Name())); err == nil {
			all = append(all, to)
		}
	}
	return all
}

// metric reads one that has no labels.
func (p *process) metric(ctx context.Context, name, key string) (float64, error) {
	at := p.address()
	if at == "" {
		at = strings.Trim(p.said(`"msg":"health checks and metrics are served","addr":`), `"}`)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+at+"/metrics", nil)
	if err != nil {
		return 0, err
	}
	req.Header.Set("Authorization", "Bearer "+key)
	req.Close = true
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	for lines := bufio.NewScanner(res.Body); lines.Scan(); {
		if value, ok := strings.CutPrefix(lines.Text(), name+" "); ok {
			return strconv.ParseFloat(value, 64)
		}
	}
	return 0, fmt.Errorf("%s: %s has no metric %s", res.Status, at, name)
}

// pid is the engine's process, or empty.
func (e *engine) pid() string {
	dir := filepath.Dir(e.socket())
	found, _ := filepath.Glob("/proc/[0-9]*/cmdline") // the pattern is well-formed: no error is possible
	for _, file := range found {
		if text, err := os.ReadFile(file); err == nil && strings.Contains(string(text), dir) && strings.HasPrefix(filepath.Base(argument(text)), "dockerd") {
			return filepath.Base(filepath.Dir(file))
		}
	}
	return ""
}

func argument(cmdline []byte) string {
	first, _, _ := strings.Cut(string(cmdline), "\x00")
	return first
}

func (s *system) redisFigures(ctx context.Context, l ledger) error {
	return s.withRedis(func(c *redis.Client) error {
		keys, err := c.DBSize(ctx).Result()
		if err != nil {
			return err
		}
		info, err := c.InfoMap(ctx, "memory", "clients").Result()
		if err != nil {
			return err
		}
		l.add("redis: keys", "", float64(keys), 100, 0.3)
		for _, f := range []struct {
			name, section, key, unit string
			per, slack               float64
		}{{"memory", "Memory", "used_memory", "MiB", 1 << 20, 3}, {"clients", "Clients", "connected_clients", "", 1, 20}} {
			n, err := strconv.ParseFloat(info[f.section][f.key], 64)
			if err != nil {
				return err
			}
			l.add("redis: "+f.name, f.unit, n/f.per, f.slack, 0.2)
		}
		return nil
	})
}

// postgresFigures counts the rows of every table, whichever there are: the next one may be forgotten, too. Of usage by the
// hour it is the rows of the fullest hour, for another one may begin meanwhile.
func (s *system) postgresFigures(ctx context.Context, l ledger) error {
	conn, err := pgx.Connect(ctx, s.postgres.DSN())
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	var backends, size float64
	err = conn.QueryRow(ctx, `SELECT (SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid())::float8,
		pg_database_size(current_database())::float8 / 1048576`).Scan(&backends, &size)
	if err != nil {
		return err
	}
	l.add("postgres: connections", "", backends, 20, 0.2)
	l.add("postgres: size", "MiB", size, 0, 0)
	tables, err := pairs(ctx, conn, `SELECT relname AS name, (xpath('/row/n/text()', query_to_xml(CASE relname
			WHEN 'usage_hours' THEN 'SELECT coalesce(max(n), 0) AS n FROM (SELECT count(*) AS n FROM usage_hours GROUP BY hour) AS hours'
			ELSE 'SELECT count(*) AS n FROM ' || quote_ident(relname) END, false, true, '')))[1]::text AS value
		FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace`)
	if err != nil {
		return err
	}
	for table, rows := range tables {
		n, err := strconv.ParseFloat(rows, 64)
		if err != nil {
			return err
		}
		l.add(rowsOf+table, "", n, 60, 0.4)
	}
	return nil
}
