// Package catalog opens a provider by its name. A new provider is a folder beside this one and a line here.
package catalog

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"strings"

	"sandyard/providers"
	"sandyard/providers/accounts"
	"sandyard/providers/daytona"
	"sandyard/providers/docker"
	"sandyard/providers/e2b"
	"sandyard/providers/local"
	"sandyard/providers/modal"
	"sandyard/providers/runloop"
)

// Config holds what each provider needs; only the part of the one that is opened is looked at.
type Config struct {
	Docker  docker.Config
	Local   local.Config
	E2B     e2b.Config
	Daytona daytona.Config
	Runloop runloop.Config
	Modal   modal.Config
	// Accounts knows of the tenants' own keys of providers that take one; nil = there are none.
	Accounts func(provider string) accounts.Book
	// Keyless permits such a provider without a key of the operator's: tenants have theirs.
	Keyless bool
}

type opener func(context.Context, Config) (providers.Provider, error)

func openers() map[string]opener {
	return map[string]opener{
		"daytona": func(_ context.Context, c Config) (providers.Provider, error) {
			return c.keyed("daytona", c.Daytona.APIKey, c.Daytona.Logger, func(key, secret string) (accounts.Account, error) {
				own := c.Daytona
				own.APIKey, own.Secret = key, secret
				return daytona.New(own)
			})
		},
		"docker": func(ctx context.Context, c Config) (providers.Provider, error) { return docker.New(ctx, c.Docker) },
		"e2b": func(_ context.Context, c Config) (providers.Provider, error) {
			return c.keyed("e2b", c.E2B.APIKey, c.E2B.Logger, func(key, secret string) (accounts.Account, error) {
				own := c.E2B
				own.APIKey, own.Secret = key, secret
				return e2b.New(own)
			})
		},
		"local": func(ctx context.Context, c Config) (providers.Provider, error) { return local.New(ctx, c.Local) },
		"modal": func(_ context.Context, c Config) (providers.Provider, error) { return modal.New(c.Modal) },
		"runloop": func(_ context.Context, c Config) (providers.Provider, error) {
			return c.keyed("runloop", c.Runloop.APIKey, c.Runloop.Logger, func(key, secret string) (accounts.Account, error) {
				own := c.Runloop
				own.APIKey, own.Secret = key, secret
				return runloop.New(own)
			})
		},
	}
}

// Names lists what Open knows, sorted.
func Names() []string { return slices.Sorted(maps.Keys(openers())) }

// keyed opens a provider that takes a key: for all keys that there are.
func (c Config) keyed(
	name, key string,
	log *slog.Logger,
	open func(key, secret string) (accounts.Account, error),
) (providers.Provider, error) {
	if c.Accounts == nil || key == "" && !c.Keyless {
		return open(key, "")
	}
	return accounts.New(accounts.Config{Name: name, Key: key, Open: open, Book: c.Accounts(name), Logger: log})
}

// Keyed lists the providers for which a tenant may bring a key of its own, sorted.
func Keyed() []string { return []string{"daytona", "e2b", "runloop"} }

// Open opens the named provider.
func Open(ctx context.Context, name string, cfg Config) (providers.Provider, error) {
	open, ok := openers()[name]
	if !ok {
		return nil, providers.Invalid.Errorf("no provider %q; there are: %s", name, strings.Join(Names(), ", "))
	}
	return open(ctx, cfg)
}

// Capabilities says what each provider can do, without opening any.
func Capabilities() []providers.Capabilities {
	return []providers.Capabilities{
		(*docker.Provider)(nil).Capabilities(), (*local.Provider)(nil).Capabilities(), (*e2b.Provider)(nil).Capabilities(),
		(*daytona.Provider)(nil).Capabilities(), (*runloop.Provider)(nil).Capabilities(),
		(*modal.Provider)(nil).Capabilities(),
	}
}
