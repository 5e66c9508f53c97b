package dev

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

const (
	redisSocket = "redis.sock"
	redisStop   = "TERM"
)

// Redis is a running private redis-server.
type Redis struct {
	keeper *keeper
	place  place
}

// StartRedis starts a redis-server in dir and returns when it answers. It listens on a unix socket only, never evicts,
// and appends to a log synced every second, so that the next start finds its data. One process at a time may run the
// server of a directory; others get ErrInUse.
func StartRedis(ctx context.Context, dir string, o Options) (*Redis, error) {
	program, err := exec.LookPath("redis-server")
	if err != nil {
		return nil, fmt.Errorf("redis-server: %w: run apt-get install redis-server", ErrNotInstalled)
	}
	p, err := newPlace(dir, redisSocket, account{})
	if err != nil {
		return nil, err
	}
	r, err := bootRedis(ctx, p, program, o)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start redis: %w", err), p.release())
	}
	return r, nil
}

func bootRedis(ctx context.Context, p place, program string, o Options) (*Redis, error) {
	lock, err := p.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer lock.Close()
	r := &Redis{place: p}
	if err := os.Remove(r.Addr()); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("clear stale socket: %w", err)
	}
	r.keeper, err = startKeeper(p, lock, redisStop, filepath.Join(p.dir, "redis.log"), o.Throwaway,
		append([]string{program}, r.arguments(o)...)...)
	if err != nil {
		return nil, err
	}
	if err := r.awaitPong(ctx); err != nil {
		return nil, errors.Join(err, r.keeper.stop())
	}
	return r, nil
}

// Network is "unix".
func (r *Redis) Network() string { return "unix" }

// Addr is the path of the server's socket.
func (r *Redis) Addr() string { return filepath.Join(r.place.sockets, redisSocket) }

// URL is the server's address in the form redis.ParseURL takes.
func (r *Redis) URL() string { return (&url.URL{Scheme: "unix", Path: r.Addr()}).String() }

// Stop ends the server in order and returns when it is gone. Call it once.
func (r *Redis) Stop() error {
	if err := errors.Join(r.keeper.stop(), r.place.release()); err != nil {
		return fmt.Errorf("stop redis: %w", err)
	}
	return nil
}

func (r *Redis) arguments(o Options) []string {
	appendOnly := "yes"
	if o.careless() {
		appendOnly = "no"
	}
	return []string{
		"--port", "0", "--unixsocket", r.Addr(), "--unixsocketperm", "700", "--dir", r.place.dir, "--daemonize", "no",
		"--maxmemory-policy", "noeviction", "--appendonly", appendOnly, "--appendfsync", "everysec", "--save", "",
	}
}

func (r *Redis) awaitPong(ctx context.Context) error {
	return r.keeper.await(ctx, r.ping)
}

// ping speaks the protocol itself: a client library's own retries would only blur when the server is up.
func (r *Redis) ping(ctx context.Context) error {
	conn, err := new(net.Dialer).DialContext(ctx, r.Network(), r.Addr())
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(time.Second)); err != nil {
		return err
	}
	if _, err := io.WriteString(conn, "PING\r\n"); err != nil {
		return err
	}
	answer, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil {
		return err
	}
	if answer != "+PONG\r\n" {
		return fmt.Errorf("server answers %q", strings.TrimSpace(answer)) // it is still loading its data
	}
	return nil
}
