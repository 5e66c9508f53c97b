package faultproxy_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"sandyard/dev/faultproxy"
	"sandyard/dev/testenv"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestPostgresBreaksBeforeOrAfterACall(t *testing.T) {
	t.Parallel()
	direct := testenv.Database(t)
	proxy, dsn := faultproxy.Postgres(t, direct)
	if _, err := query(t, direct, "create table things (name text)"); err != nil {
		t.Fatal(err)
	}
	for name, f := range map[string]faultproxy.Fault{
		"none": faultproxy.None, "cut before": faultproxy.CutBefore, "cut after": faultproxy.CutAfter, "hang": faultproxy.Hang, "hang after": faultproxy.HangAfter,
	} {
		seen, answered := make(chan struct{}), make(chan error, 1)
		proxy.On(func(c faultproxy.Call) faultproxy.Fault {
			if !strings.HasPrefix(c.Text, "insert") {
				return faultproxy.None
			}
			close(seen)
			return f
		})
		go func() {
			_, err := query(t, dsn, "insert into things values ($1)", name)
			answered <- err
		}()
		<-seen
		if f == faultproxy.Hang || f == faultproxy.HangAfter {
			select {
			case err := <-answered:
				t.Errorf("%s: answered %v", name, err)
			default:
			}
		}
		if err := end(proxy, answered); (err == nil) != (f == faultproxy.None) {
			t.Errorf("%s: %v", name, err)
		}
		want := "0"
		if f == faultproxy.None || f == faultproxy.CutAfter || f == faultproxy.HangAfter {
			want = "1"
		}
		for n := ""; n != want; { // the server may still be at it; the test's own deadline ends a wait in vain
			var err error
			if n, err = query(t, direct, "select count(*)::text from things where name = $1", name); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// end returns the answer, and ends what hangs until it has come.
func end(p *faultproxy.Proxy, answered <-chan error) error {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case err := <-answered:
			return err
		case <-tick.C:
			p.Back()
		}
	}
}

func TestRedisBreaksBeforeOrAfterACall(t *testing.T) {
	t.Parallel()
	network, addr, db := testenv.Redis(t)
	proxy, through := faultproxy.Redis(t, network, addr)
	direct, rdb := client(t, network, addr, db), client(t, "unix", through, db)
	for name, f := range map[string]faultproxy.Fault{"none": faultproxy.None, "before": faultproxy.CutBefore, "after": faultproxy.CutAfter} {
		proxy.On(func(c faultproxy.Call) faultproxy.Fault {
			if strings.HasPrefix(c.Text, "set ") {
				return f
			}
			return faultproxy.None
		})
		if err := rdb.Set(t.Context(), name, "x", 0).Err(); (err == nil) != (f == faultproxy.None) {
			t.Errorf("%s: %v", name, err)
		}
		if n := direct.Exists(t.Context(), name).Val(); (n == 1) != (f != faultproxy.CutBefore) {
			t.Errorf("%s: %d keys", name, n)
		}
	}
}

func TestAwayAndBack(t *testing.T) {
	t.Parallel()
	proxy, dsn := faultproxy.Postgres(t, testenv.Database(t))
	if _, err := query(t, dsn, "select '1'"); err != nil {
		t.Fatal(err)
	}
	proxy.Away()
	if _, err := query(t, dsn, "select '1'"); err == nil {
		t.Error("the database answers while it is away")
	}
	proxy.Back()
	if _, err := query(t, dsn, "select '1'"); err != nil {
		t.Error(err)
	}
}

// query returns the first value as text.
func query(t *testing.T, dsn, sql string, args ...any) (string, error) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		return "", err
	}
	defer conn.Close(context.WithoutCancel(t.Context()))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	rows, err := conn.Query(ctx, sql, args...)
	if err != nil {
		return "", err
	}
	defer rows.Close()
	text := ""
	for rows.Next() {
		if err := rows.Scan(&text); err != nil {
			return "", err
		}
	}
	return text, rows.Err()
}

func client(t *testing.T, network, addr string, db int) *redis.Client {
	t.Helper()
	c := redis.NewClient(&redis.Options{Network: network, Addr: addr, DB: db, MaxRetries: -1})
	t.Cleanup(func() { c.Close() })
	return c
}
