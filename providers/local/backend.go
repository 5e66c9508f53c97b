package local

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"time"

	"sandyard/providers"
	"sandyard/providers/guestconn"
	"sandyard/providers/local/shim"
)

// settleTime is how long the end of a shim may take to show.
const settleTime = 2 * time.Second

// backend is what guestconn.Guests needs of this machine.
type backend struct{ p *Provider }

var _ guestconn.Backend[box] = backend{}

// Open implements providers.Provider.
func (p *Provider) Open(ctx context.Context, id string) (providers.Sandbox, error) {
	return p.guests.Open(ctx, id)
}

// Change implements guestconn.Backend.
func (k backend) Change(ctx context.Context, id string, do func(box) error) error {
	return k.p.change(ctx, id, do)
}

// Inspect implements guestconn.Backend.
func (k backend) Inspect(_ context.Context, id string) (box, error) { return k.p.inspect(id) }

// Attach implements guestconn.Backend.
func (k backend) Attach(_ context.Context, b box) (guestconn.Stream, error) {
	return attach(b)
}

// Settle implements guestconn.Backend: the socket of a shim goes a little before the shim does.
func (k backend) Settle(ctx context.Context, b box) {
	ctx, stop := context.WithTimeout(ctx, settleTime)
	defer stop()
	for {
		if _, alive := shim.Alive(b.dir); !alive {
			return
		}
		select {
		case <-time.After(endPoll):
		case <-ctx.Done():
			return
		}
	}
}

// End implements guestconn.Backend.
func (k backend) End(ctx context.Context, b box) error { return k.p.end(ctx, b) }

// attach connects to the shim.
func attach(b box) (guestconn.Stream, error) {
	var conn *net.UnixConn
	err := shim.WithShortPath(b.dir, func(short string) error {
		var err error
		conn, err = net.DialUnix("unix", nil, &net.UnixAddr{Name: filepath.Join(short, shim.SocketFile), Net: "unix"})
		return err
	})
	if where, ok := errors.AsType[*net.OpError](err); ok {
		err = where.Err // users need not know the socket
	}
	if err != nil {
		return nil, providers.Unavailable.Errorf("attach to the sandbox: %w", err)
	}
	return &stream{conn: conn, of: b}, nil
}
