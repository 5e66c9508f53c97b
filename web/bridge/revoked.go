package bridge

import (
	"context"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"sandyard/jobs/loop"
	"sandyard/models"
	"sandyard/web/middleware"
)

const (
	// openKeysEvery is how often the keys of open streams are asked for.
	openKeysEvery   = 2 * time.Second
	openKeysTimeout = 10 * time.Second
)

// openKeys ends the streams that an API key has opened, such as terminals, when the key is revoked, whichever process
// was told so: every process asks the database about the keys of its own streams.
type openKeys struct {
	store *models.Store
	log   *slog.Logger
	life  *loop.Life
	work  sync.WaitGroup

	mu   sync.Mutex
	open map[*keyStream]struct{}
}

// keyStream is one request under way.
type keyStream struct {
	key string
	end func()
}

func newOpenKeys(store *models.Store, log *slog.Logger) *openKeys {
	k := &openKeys{store: store, log: log, life: loop.NewLife(), open: map[*keyStream]struct{}{}}
	k.work.Go(k.run)
	return k
}

func (k *openKeys) close() {
	k.life.End()
	k.work.Wait()
}

// while is a handler whose requests end with the key that they came with.
func (k *openKeys) while(handle http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		end := func() {
			cancel()
			if c, ok := ctx.Value(crossedKey{}).(*crossed); ok {
				_ = c.Conn.Close() // whoever waits for the client to send does not see the context
			}
		}
		defer k.enter(&keyStream{key: middleware.RequestOf(ctx).Key, end: end})()
		handle(w, r.WithContext(ctx))
	}
}

func (k *openKeys) enter(s *keyStream) (leave func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.open[s] = struct{}{}
	return func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		delete(k.open, s)
	}
}

func (k *openKeys) run() {
	ctx, cancel := k.life.Context(context.Background())
	defer cancel()
	k.life.Every(openKeysEvery, nil, func() {
		if err := k.look(ctx); err != nil && ctx.Err() == nil {
			k.log.WarnContext(ctx, "API keys of open streams not checked", "error", err)
		}
	})
}

// look ends what was opened with keys that are revoked by now.
func (k *openKeys) look(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, openKeysTimeout)
	defer cancel()
	ids := k.keys()
	if len(ids) == 0 {
		return nil
	}
	revoked, err := k.store.RevokedKeys(ctx, ids)
	for _, id := range revoked {
		k.end(id)
	}
	return err
}

func (k *openKeys) keys() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	seen := map[string]bool{}
	var ids []string
	for s := range k.open {
		if !seen[s.key] {
			seen[s.key] = true
			ids = append(ids, s.key)
		}
	}
	return ids
}

func (k *openKeys) end(key string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for s := range k.open {
		if s.key == key {
			s.end()
		}
	}
}
