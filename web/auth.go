package web

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gofiber/fiber/v2"

	"sandyard/models"
)

// Keys are asked for again after that long, so a revoked one works no longer than that.
const keyLife = 10 * time.Second

// maxCachedKeys bounds the memory that the cache may take.
const maxCachedKeys = 10000

// keyCache remembers valid API keys by their hash.
type keyCache struct {
	store *models.Store
	mu    sync.RWMutex
	known map[[sha256.Size]byte]cachedKey
}

type cachedKey struct {
	key models.APIKey
	at  time.Time
}

func newKeyCache(store *models.Store) *keyCache {
	return &keyCache{store: store, known: map[[sha256.Size]byte]cachedKey{}}
}

// find answers like models.Store.Authenticate.
func (k *keyCache) find(ctx context.Context, plain string) (models.APIKey, error) {
	if !models.IsKey(plain) {
		return models.APIKey{}, models.ErrNotFound
	}
	hash := sha256.Sum256([]byte(plain))
	k.mu.RLock()
	known := k.known[hash]
	k.mu.RUnlock()
	if time.Since(known.at) < keyLife {
		return known.key, nil
	}
	key, err := k.store.Authenticate(ctx, plain)
	if err != nil {
		return key, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.known) >= maxCachedKeys {
		clear(k.known)
	}
	k.known[hash] = cachedKey{key, time.Now()}
	return key, nil
}

// needKey lets requests pass whose API key has the scope.
func (s *Server) needKey(scope string) fiber.Handler {
	return func(c *fiber.Ctx) error {
		c.Set(fiber.HeaderWWWAuthenticate, `Bearer realm="sandyard"`)
		return s.authorize(c, bearer(c), scope)
	}
}

// needLogin is needKey for pages that a browser opens: the key may come as the password of HTTP Basic.
func (s *Server) needLogin(scope string) fiber.Handler {
	return func(c *fiber.Ctx) error {
		plain := bearer(c)
		if plain == "" {
			plain = basicPassword(c.Get(fiber.HeaderAuthorization))
		}
		c.Set(fiber.HeaderWWWAuthenticate, `Basic realm="sandyard: any user, an API key as the password", charset="UTF-8"`)
		return s.authorize(c, plain, scope)
	}
}

// authorize keeps the challenge that the caller has set only where there is no valid key.
func (s *Server) authorize(c *fiber.Ctx, plain, scope string) error {
	key, err := s.keys.find(c.UserContext(), plain)
	switch {
	case errors.Is(err, models.ErrNotFound), errors.Is(err, models.ErrRevoked):
		return unauthorized(plain == "")
	case err != nil:
		return err
	}
	c.Response().Header.Del(fiber.HeaderWWWAuthenticate)
	r := requestOf(c.UserContext())
	r.tenant, r.key, r.scopes = key.TenantID, key.ID, key.Scopes
	if !slices.Contains(key.Scopes, scope) {
		return forbidden(scope)
	}
	return c.Next()
}

func bearer(c *fiber.Ctx) string {
	scheme, token, _ := strings.Cut(c.Get(fiber.HeaderAuthorization), " ")
	if strings.EqualFold(scheme, "Bearer") {
		return strings.TrimSpace(token)
	}
	return c.Get("X-API-Key")
}

func basicPassword(header string) string {
	scheme, token, _ := strings.Cut(header, " ")
	if !strings.EqualFold(scheme, "Basic") {
		return ""
	}
	pair, err := base64.StdEncoding.DecodeString(token)
	if err != nil {
		return ""
	}
	_, password, _ := strings.Cut(string(pair), ":")
	return password
}
