package app

import (
	"context"
	"errors"

	"sandyard/jobs/secrets"
	"sandyard/models"
	"sandyard/providers"
	"sandyard/providers/accounts"
)

// book tells a provider whose keys its sandboxes are made with.
type book struct {
	provider string
	store    *models.Store
	secrets  *secrets.Keeper
}

// accounts are the tenants' at a provider.
func (f *floor) accounts(provider string) accounts.Book {
	return book{provider, f.parts.Store, f.secrets}
}

func ownerOf(a models.Account) accounts.Owner {
	return accounts.Owner{Tenant: a.TenantID, Secret: a.Secret}
}

// Decide implements accounts.Book.
func (b book) Decide(ctx context.Context, sandboxID string) (accounts.Owner, error) {
	a, err := b.store.DecideAccount(ctx, b.provider, sandboxID)
	switch {
	case errors.Is(err, models.ErrNotFound):
		err = &providers.Error{
			Class:   providers.NotFound,
			Message: "the sandbox has ended, or another provider makes it",
			Err:     err,
		}
	case models.IsNoSecret(err):
		err = &providers.Error{Class: providers.KeyRefused, Message: err.Error(), Err: err}
	}
	return ownerOf(a), err
}

// Rows implements accounts.Book.
func (b book) Rows(ctx context.Context, ids []string) (map[string]accounts.Row, error) {
	found, err := b.store.AccountRows(ctx, b.provider, ids)
	rows := make(map[string]accounts.Row, len(found))
	for id, r := range found {
		rows[id] = accounts.Row{Tenant: r.TenantID, Live: r.Live, Decided: r.Decided, Owner: ownerOf(r.Account)}
	}
	return rows, err
}

// Live implements accounts.Book.
func (b book) Live(ctx context.Context, of []accounts.Owner) (ids []string, err error) {
	all := make([]models.Account, len(of))
	for i, o := range of {
		all[i] = models.Account{TenantID: o.Tenant, Secret: o.Secret}
	}
	found, err := b.store.LiveAccountRows(ctx, b.provider, all)
	for id := range found {
		ids = append(ids, id)
	}
	return ids, err
}

// Owners implements accounts.Book.
func (b book) Owners(ctx context.Context) (all []accounts.Owner, err error) {
	found, err := b.store.Accounts(ctx, b.provider)
	for _, a := range found {
		all = append(all, ownerOf(a))
	}
	return all, err
}

// Key implements accounts.Book.
func (b book) Key(ctx context.Context, o accounts.Owner) (string, error) {
	values, err := b.secrets.Values(ctx, o.Tenant, []string{o.Secret})
	if why, ok := errors.AsType[*secrets.Error](err); ok {
		class := providers.KeyRefused
		if why.Why.Code == "secret_unreadable" { // by this worker: another one may have the SECRETS_KEY
			class = providers.Unavailable
		}
		err = &providers.Error{
			Class: class, Message: "the tenant's key of " + b.provider + " cannot be used: " + why.Why.Message,
		}
	}
	return values[o.Secret], err
}
