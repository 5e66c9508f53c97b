// Package cache remembers, within bounds, what is expensive to find out.
package cache

import (
	"time"

	"github.com/jellydator/ttlcache/v3"
)

// Cache is safe for concurrent use. Get returns nil for what it does not know or no longer knows.
type Cache[K comparable, V any] = ttlcache.Cache[K, V]

// Life is what Set takes: the life that New was given.
const Life = ttlcache.DefaultTTL

// New returns a cache of at most size entries: of more, the one that was used longest ago goes. An entry ends life
// after it was set, however often it is read; 0 = no end. No goroutine belongs to a cache.
func New[K comparable, V any](size uint64, life time.Duration) *Cache[K, V] {
	return ttlcache.New(
		ttlcache.WithCapacity[K, V](size), ttlcache.WithTTL[K, V](life), ttlcache.WithDisableTouchOnHit[K, V](),
	)
}
