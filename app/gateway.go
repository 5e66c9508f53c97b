package app

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"

	"sandyard/gateway"
	"sandyard/providers"
	"sandyard/tokens"
)

// door is a worker's gateway before it serves.
type door struct {
	listener net.Listener
	url      string // empty = there is none
	signer   *tokens.Signer
}

func (c Worker) openDoor(ctx context.Context, p *Parts, log *slog.Logger) (door, error) {
	if c.Gateway == "" {
		return door{}, nil
	}
	signer, err := p.signer(ctx, log)
	if err != nil {
		return door{}, err
	}
	l, err := net.Listen("tcp", c.Gateway)
	if err != nil {
		return door{}, fmt.Errorf("listen for the gateway: %w", err)
	}
	d := door{listener: l, url: c.GatewayURL, signer: signer}
	if d.url == "" {
		d.url, err = reachable(l.Addr().String())
	}
	return d, err
}

// reachable makes a URL of a listener's address. One that means every address of the host gets the host's name.
func reachable(addr string) (string, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return "", err
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		if host, err = os.Hostname(); err != nil {
			return "", err
		}
	}
	return (&url.URL{Scheme: "http", Host: net.JoinHostPort(host, port)}).String(), nil
}

// openSandbox connects to a sandbox that this process holds.
type openSandbox func(ctx context.Context, sandboxID string) (providers.Sandbox, error)

// serve passes traffic on to the sandboxes that open knows, until stop is called.
func (d door) serve(ctx context.Context, p *Parts, open openSandbox, log *slog.Logger) (stop func()) {
	if d.listener == nil {
		return func() {}
	}
	log.InfoContext(ctx, "gateway listens", "url", d.url)
	return gateway.New(gateway.Config{Open: open, Signer: d.signer, Log: log, Now: p.Store.Now}).Serve(ctx, d.listener)
}
