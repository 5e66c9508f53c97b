package pg

import (
	"context"
	"database/sql"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"
)

// silence is how long the server may leave a call without a byte of an answer. It is more than any of ours takes, but
// for migrations, and ends those that nobody else ends: where the network swallows everything, or the server stands
// still, the connection would be lost to the pool for as long as that lasts.
const silence = 30 * time.Second

// connect opens a pool of connections that do not wait for ever, and GORM on it. The interceptor makes each call.
func connect(plain *pgx.ConnConfig, call Interceptor) (*gorm.DB, *sql.DB, error) {
	c := plain.Copy()
	dial := c.DialFunc
	c.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return &patient{Conn: conn, limit: silence}, nil
	}
	pool := stdlib.OpenDB(*c, stdlib.OptionAfterConnect(endIdleTransactions))
	db, err := gorm.Open(postgres.New(postgres.Config{Conn: pool}), &gorm.Config{
		SkipDefaultTransaction: true,
		Logger:                 logger.Discard,
	})
	if err != nil {
		return nil, nil, errors.Join(err, pool.Close())
	}
	db.ConnPool = interceptedPool{intercepted{pool, call}}
	db.Statement.ConnPool = db.ConnPool
	return db, pool, nil
}

// patient is a connection that is read from with a limit, unless its user has set a deadline.
type patient struct {
	net.Conn

	limit time.Duration
	mu    sync.Mutex
	asked bool // there is a deadline of the user's
}

// Read implements net.Conn.
func (p *patient) Read(b []byte) (int, error) {
	if err := p.wait(); err != nil {
		return 0, err
	}
	return p.Conn.Read(b)
}

func (p *patient) wait() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.asked {
		return nil
	}
	return p.Conn.SetReadDeadline(time.Now().Add(p.limit))
}

// SetDeadline implements net.Conn.
func (p *patient) SetDeadline(t time.Time) error { return p.ask(t, p.Conn.SetDeadline) }

// SetReadDeadline implements net.Conn.
func (p *patient) SetReadDeadline(t time.Time) error { return p.ask(t, p.Conn.SetReadDeadline) }

func (p *patient) ask(t time.Time, set func(time.Time) error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked = !t.IsZero()
	return set(t)
}

// endIdleTransactions makes the server end a transaction whose process was stopped or cut off in the middle, for others
// wait for its locks. Ours never rest between two statements.
func endIdleTransactions(ctx context.Context, conn *pgx.Conn) error {
	_, err := conn.Exec(ctx, "SET idle_in_transaction_session_timeout = '15s'")
	return err
}
