package middleware

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gofiber/fiber/v2"

	"sandyard/cache"
	"sandyard/models"
	"sandyard/web/problem"
)

// Keys are asked for again after that long, so a revoked one works no longer than that.
const keyLife = 10 * time.Second

// maxCachedKeys bounds the memory that the cache may take.
const maxCachedKeys = 10000

const (
	// wrongKeyLife is how long a text is known to be no key: keys are random, so none becomes one.
	wrongKeyLife = 10 * time.Minute
	// usedSpan is how often the use of a key is written down.
	usedSpan = time.Minute
	// maxLookup bounds the keys of one statement.
	maxLookup = 1000
	// lookupPatience is how long PostgreSQL may take for them.
	lookupPatience = 5 * time.Second
)

// keyCache remembers API keys by their hash, also texts that are no keys. What it does not know it asks the database
// for, by one statement at a time, whatever comes from callers that have no key.
type keyCache struct {
	store   *models.Store
	known   *cache.Cache[[sha256.Size]byte, models.APIKey] // valid ones
	wrong   *cache.Cache[[sha256.Size]byte, struct{}]      // of which it is known that they are none
	written *cache.Cache[string, struct{}]                 // ids of those that were written down as used

	mu    sync.Mutex
	asked map[string][]chan<- foundKey // by plain text
	busy  bool                         // somebody looks up what is asked for
}

type foundKey struct {
	key models.APIKey
	err error
}

func newKeyCache(store *models.Store) *keyCache {
	return &keyCache{
		store: store,
		known: cache.New[[sha256.Size]byte, models.APIKey](maxCachedKeys, keyLife),
		wrong: cache.New[[sha256.Size]byte, struct{}](maxCachedKeys, wrongKeyLife),

		written: cache.New[string, struct{}](maxCachedKeys, usedSpan),
		asked:   map[string][]chan<- foundKey{},
	}
}

// find returns the valid key whose plain text this is, or models.ErrNotFound.
func (k *keyCache) find(ctx context.Context, plain string) (models.APIKey, error) {
	if !models.IsKey(plain) {
		return models.APIKey{}, models.ErrNotFound
	}
	hash := sha256.Sum256([]byte(plain))
	if known := k.known.Get(hash); known != nil {
		return known.Value(), nil
	}
	if k.wrong.Get(hash) != nil {
		return models.APIKey{}, models.ErrNotFound
	}
	found := make(chan foundKey, 1)
	k.mu.Lock()
	k.asked[plain] = append(k.asked[plain], found)
	if !k.busy {
		k.busy = true
		go k.lookUp() //nolint:contextcheck // it serves many callers and outlives each of them
	}
	k.mu.Unlock()
	select {
	case f := <-found:
		return f.key, f.err
	case <-ctx.Done():
		return models.APIKey{}, ctx.Err()
	}
}

// lookUp asks the database for the keys that are asked for, until there are none left.
func (k *keyCache) lookUp() {
	for {
		batch := k.take()
		if len(batch) == 0 {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), lookupPatience)
		valid, err := k.store.ValidKeys(ctx, slices.Collect(maps.Keys(batch)))
		for plain, callers := range batch {
			f := k.remember(plain, valid, err)
			for _, c := range callers {
				c <- f
			}
		}
		k.used(ctx, valid)
		cancel()
	}
}

// used writes down which keys are in use. That it cannot changes nothing for their callers.
func (k *keyCache) used(ctx context.Context, valid map[string]models.APIKey) {
	var ids []string
	for _, key := range valid {
		if k.written.Get(key.ID) == nil {
			ids = append(ids, key.ID)
		}
	}
	if len(ids) == 0 || k.store.KeysUsed(ctx, ids) != nil {
		return
	}
	for _, id := range ids {
		k.written.Set(id, struct{}{}, cache.Life)
	}
}

// take takes some of what is asked for. Nothing means that the caller is done.
func (k *keyCache) take() map[string][]chan<- foundKey {
	k.mu.Lock()
	defer k.mu.Unlock()
	batch := map[string][]chan<- foundKey{}
	for plain, callers := range k.asked {
		if len(batch) == maxLookup {
			break
		}
		batch[plain] = callers
		delete(k.asked, plain)
	}
	k.busy = len(batch) > 0
	return batch
}

func (k *keyCache) remember(plain string, valid map[string]models.APIKey, err error) foundKey {
	if err != nil {
		return foundKey{err: err}
	}
	hash := sha256.Sum256([]byte(plain))
	key, ok := valid[plain]
	if !ok {
		k.known.Delete(hash)
		k.wrong.Set(hash, struct{}{}, cache.Life)
		return foundKey{err: models.ErrNotFound}
	}
	k.known.Set(hash, key, cache.Life)
	return foundKey{key: key}
}

const challenge = `Bearer realm="sandyard"`

// NeedKey lets requests pass whose API key, or token of a login, opens the scope.
func (s *Stack) NeedKey(scope string) fiber.Handler {
	return func(c *fiber.Ctx) error {
		c.Set(fiber.HeaderWWWAuthenticate, challenge)
		return s.Authorize(c, Bearer(c), scope)
	}
}

// NeedAny lets requests pass that have a valid API key or token, whatever its scopes.
func (s *Stack) NeedAny(c *fiber.Ctx) error {
	c.Set(fiber.HeaderWWWAuthenticate, challenge)
	if err := s.admit(c, Bearer(c)); err != nil {
		return err
	}
	return c.Next()
}

// NeedLogin is NeedKey for pages that a browser opens: the key may come as the password of HTTP Basic.
func (s *Stack) NeedLogin(scope string) fiber.Handler {
	return func(c *fiber.Ctx) error {
		plain := Bearer(c)
		if plain == "" {
			plain = BasicPassword(c.Get(fiber.HeaderAuthorization))
		}
		c.Set(fiber.HeaderWWWAuthenticate, `Basic realm="sandyard: any user, an API key as the password", charset="UTF-8"`)
		return s.Authorize(c, plain, scope)
	}
}

// Authorize lets a request pass whose API key, in plain text, has the scope.
func (s *Stack) Authorize(c *fiber.Ctx, plain, scope string) error {
	if err := s.Admit(c, plain, scope); err != nil {
		return err
	}
	return c.Next()
}

// Admit says why a request may not pass. plain is an API key or the token of a login. The challenge that the caller has
// set stays only where it is neither.
func (s *Stack) Admit(c *fiber.Ctx, plain, scope string) error {
	if err := s.admit(c, plain); err != nil {
		return err
	}
	if !models.Opens(RequestOf(c.UserContext()).Scopes, scope) {
		return problem.Forbidden(scope)
	}
	return nil
}

func (s *Stack) admit(c *fiber.Ctx, plain string) error {
	if strings.Count(plain, ".") == 2 { // as a JWT has
		return s.AdmitUser(c, plain)
	}
	key, err := s.keys.find(c.UserContext(), plain)
	switch {
	case errors.Is(err, models.ErrNotFound) && plain == "":
		return problem.Unauthorized(true)
	case errors.Is(err, models.ErrNotFound):
		return s.wrongKey(RequestOf(c.UserContext()))
	case err != nil:
		return err
	}
	c.Response().Header.Del(fiber.HeaderWWWAuthenticate)
	r := RequestOf(c.UserContext())
	r.Tenant, r.Key, r.Scopes = key.TenantID, key.ID, key.Scopes
	if key.UserID != nil {
		r.User = *key.UserID
	}
	return nil
}

// Bearer returns the API key of a request, from Authorization or X-API-Key.
func Bearer(c *fiber.Ctx) string {
	scheme, token, _ := strings.Cut(c.Get(fiber.HeaderAuthorization), " ")
	if strings.EqualFold(scheme, "Bearer") {
		return strings.TrimSpace(token)
	}
	return c.Get("X-API-Key")
}

// BasicPassword returns the password of an Authorization header of the scheme Basic; empty = there is none.
func BasicPassword(header string) string {
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
