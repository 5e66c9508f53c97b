package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"sandyard/jobs/queue"
	"sandyard/jobs/security"
	"sandyard/models"
	"sandyard/models/pg"
	"sandyard/tokens"
)

// Version of this build, as the API reports it.
const Version = "0.1.0"

// Parts are what all processes stand on.
type Parts struct {
	Store *models.Store
	Queue *queue.Queue
	redis *redis.Options
	rdb   *redis.Client
	// security is of all that the process does.
	security *security.Counter
}

// Connect opens PostgreSQL and waits for it; Redis may come later, nothing is lost without it.
func Connect(ctx context.Context, c Common, log *slog.Logger) (*Parts, error) {
	opts, err := queue.ParseRedis(c.redisURL())
	if err != nil {
		return nil, err
	}
	store, err := OpenStore(ctx, c, log)
	if err != nil {
		return nil, err
	}
	p := &Parts{Store: store, redis: opts, rdb: queue.NewRedis(opts)}
	p.Queue = queue.NewQueue(p.rdb, log)
	p.security = security.New(store, log) //nolint:contextcheck // it lives until Close
	return p, nil
}

// OpenStore opens PostgreSQL, and waits for it as long as a start may take.
func OpenStore(ctx context.Context, c Common, log *slog.Logger) (*models.Store, error) {
	store, err := await(ctx, log, "PostgreSQL", pg.IsLockedOut, func(ctx context.Context) (*models.Store, error) {
		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		return models.Open(ctx, c.DatabaseURL, c.DatabaseConn, models.Limits{Window: c.Window})
	})
	if err != nil && pg.IsLockedOut(err) {
		err = fmt.Errorf("PostgreSQL refuses the login or the database in DATABASE_URL: %w", err)
	}
	return store, err
}

// signer makes and checks the tokens of this installation; the first process that asks makes its secret.
func (p *Parts) signer(ctx context.Context, log *slog.Logger) (*tokens.Signer, error) {
	fresh := tokens.NewSecret()
	secret, err := ask(
		ctx,
		log,
		func(ctx context.Context) (string, error) { return p.Store.SettingOrSet(ctx, "pass_secret", fresh) },
	)
	if err != nil {
		return nil, fmt.Errorf("read the secret of passes: %w", err)
	}
	return tokens.New(secret), nil
}

// countSecurity shows the security events of the process, once where an API and a worker are one.
func (p *Parts) countSecurity(reg prometheus.Registerer) error {
	err := reg.Register(p.security.Metrics())
	if errors.As(err, &prometheus.AlreadyRegisteredError{}) {
		return nil
	}
	return err
}

// Close closes the connections.
func (p *Parts) Close(log *slog.Logger) {
	p.Queue.Close()
	p.security.Close()
	if err := p.rdb.Close(); err != nil {
		log.Warn("close Redis", "error", err)
	}
	if err := p.Store.Close(); err != nil {
		log.Warn("close PostgreSQL", "error", err)
	}
}
