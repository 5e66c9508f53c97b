package jobs

import (
	"context"
	"io"
	"log/slog"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"sandyard/dev/testenv"
	"sandyard/guard"
	"sandyard/models"
)

// TestGateKnowsAsynqsDequeue pins what the gate and the sweep know about the insides of this version of Asynq.
func TestGateKnowsAsynqsDequeue(t *testing.T) {
	t.Parallel()
	network, addr, db := testenv.Redis(t)
	opts := &redis.Options{Network: network, Addr: addr, DB: db}
	rdb, own := NewRedis(opts), NewRedis(opts)
	defer rdb.Close()
	defer own.Close()
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	q := NewQueue(rdb, log)
	g := newGate(t.Context(), own, rdb, []string{"a", "b"})
	var held atomic.Int32
	holding := make(chan struct{}, 100)
	g.held = func() {
		held.Add(1)
		holding <- struct{}{}
	}
	ran := make(chan string, 1)
	srv := asynq.NewServerFromRedisClient(own, asynq.Config{
		Queues: map[string]int{"a": 1, "b": 1}, Concurrency: 1,
		TaskCheckInterval: time.Millisecond, Logger: asynqLog{log},
	})
	err := srv.Start(asynq.HandlerFunc(func(_ context.Context, t *asynq.Task) error {
		ran <- string(t.Payload())
		return nil
	}))
	if err != nil {
		t.Fatal(err)
	}
	<-holding
	tasks := []models.Dispatch{{JobID: "job_x", Kind: "exec", Queue: "b", Generation: 1}}
	gone, _, err := q.missing(t.Context(), tasks)
	if err != nil || len(gone) != 1 {
		t.Fatalf("a task that was not sent: missing %v, %v", gone, err)
	}
	q.send(t.Context(), tasks)
	if got := <-ran; got != "job_x" {
		t.Fatalf("ran %q", got)
	}
	<-holding // and sleeps again
	if n := held.Load(); n > 10 {
		t.Errorf("held back %d times: the server polls", n)
	}
	g.close()
	srv.Shutdown()
}

func TestMissingSeesWaitingTasks(t *testing.T) {
	t.Parallel()
	network, addr, db := testenv.Redis(t)
	rdb := NewRedis(&redis.Options{Network: network, Addr: addr, DB: db})
	defer rdb.Close()
	q := NewQueue(rdb, slog.New(slog.NewTextHandler(io.Discard, nil)))
	tasks := []models.Dispatch{{JobID: "job_x", Kind: "exec", Queue: "docker", Generation: 3}}
	q.send(t.Context(), tasks)
	q.send(t.Context(), tasks) // again, as after a lost answer
	if gone, _, err := q.missing(t.Context(), tasks); err != nil || len(gone) != 0 {
		t.Fatalf("a waiting task: missing %v, %v", gone, err)
	}
	if err := rdb.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	if gone, _, err := q.missing(t.Context(), tasks); err != nil || len(gone) != 1 {
		t.Fatalf("a lost task: missing %v, %v", gone, err)
	}
}

func TestSpecialAddressesAreRefused(t *testing.T) {
	t.Parallel()
	for _, a := range []string{
		"127.0.0.1", "127.8.8.8", "10.0.0.1", "172.16.3.4", "172.31.255.255", "192.168.1.1", "169.254.169.254", "100.64.0.1",
		"0.0.0.0", "255.255.255.255", "224.0.0.1", "240.0.0.1", "198.18.0.1", "192.0.2.1", "::1", "::", "fe80::1", "fe80::1%eth0",
		"fd00::1", "fc00::1", "ff02::1", "::ffff:127.0.0.1", "::ffff:169.254.169.254", "::127.0.0.1", "64:ff9b::7f00:1",
		"2002:7f00:1::", "2001:db8::1", "100::1",
	} {
		if err := checkAddress(netip.AddrPortFrom(netip.MustParseAddr(a), 80).String(), guard.Rules{}); err == nil {
			t.Errorf("%s would be dialled", a)
		}
	}
	for _, a := range []string{"1.1.1.1", "93.184.216.34", "172.15.0.1", "172.32.0.1", "100.128.0.1", "2606:4700::1"} {
		if err := checkAddress(netip.AddrPortFrom(netip.MustParseAddr(a), 443).String(), guard.Rules{}); err != nil {
			t.Errorf("%s is refused: %v", a, err)
		}
	}
	allow := guard.Rules{Allow: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")}}
	if err := checkAddress("10.1.2.3:80", allow); err != nil {
		t.Errorf("an allowed address is refused: %v", err)
	}
	if err := checkAddress("10.2.2.3:80", allow); err == nil {
		t.Error("an address beside the allowed ones would be dialled")
	}
	if err := checkAddress("nonsense", allow); err == nil {
		t.Error("an unreadable address would be dialled")
	}
}
