package accounts

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"sandyard/providers"
)

const (
	listsAtOnce = 8
	// listPatience bounds the list of one tenant's account, which must not delay the others'.
	listPatience = 30 * time.Second
)

// listing is what one account has listed.
type listing struct {
	owner Owner
	found []providers.Instance
	err   error
}

// List implements providers.Provider: what all accounts have. An account answers for sandboxes alone that it has made, and for
// what is left of its tenant's in it. Sandboxes of an account that fails are StateUnknown; the error is that of a vendor of
// which no account answers.
func (p *Provider) List(ctx context.Context) ([]providers.Instance, error) {
	owners, err := p.cfg.Book.Owners(ctx)
	if err != nil {
		return nil, err
	}
	rand.Shuffle(len(owners), func(i, j int) { owners[i], owners[j] = owners[j], owners[i] })
	if p.operator != nil {
		owners = append([]Owner{{}}, owners...)
	}
	lists := p.listAll(ctx, owners)
	var failed []Owner
	var ids []string
	for _, l := range lists {
		if l.err != nil {
			failed = append(failed, l.owner)
		}
		for _, i := range l.found {
			ids = append(ids, i.ID)
		}
	}
	p.note(ctx, lists)
	if len(lists) > 0 && len(failed) == len(lists) {
		return nil, lists[0].err
	}
	rows, err := p.cfg.Book.Rows(ctx, ids)
	if err != nil {
		return nil, err
	}
	all := p.judge(lists, rows)
	if len(failed) == 0 {
		return all, nil
	}
	unknown, err := p.cfg.Book.Live(ctx, failed)
	for _, id := range unknown {
		all = append(all, providers.Instance{ID: id, State: providers.StateUnknown})
	}
	return all, err
}

func (p *Provider) listAll(ctx context.Context, owners []Owner) []listing {
	lists := make([]listing, len(owners))
	var all errgroup.Group
	all.SetLimit(listsAtOnce)
	for n, o := range owners {
		all.Go(func() error {
			ctx := ctx
			if o != (Owner{}) {
				var stop context.CancelFunc
				ctx, stop = context.WithTimeout(ctx, listPatience)
				defer stop()
			}
			l := listing{owner: o}
			l.err = p.with(ctx, o, func(a Account) (err error) {
				l.found, err = a.List(ctx)
				return err
			})
			lists[n] = l
			return nil
		})
	}
	_ = all.Wait()
	return lists
}

// judge keeps what an account may answer for. The label of a sandbox proves nothing: whoever has the key gives it.
func (p *Provider) judge(lists []listing, rows map[string]Row) []providers.Instance {
	var all []providers.Instance
	left := map[string][]Owner{}
	for _, l := range lists {
		for _, i := range l.found {
			row, known := rows[i.ID]
			switch {
			case row.Live && row.Owner == l.owner: // one that nobody has decided is the operator's
				all = append(all, i)
			case row.Live: // in another account
			case l.owner == (Owner{}), known && row.Tenant == l.owner.Tenant:
				if !slices.Contains(left[i.ID], l.owner) {
					left[i.ID] = append(left[i.ID], l.owner)
				}
				all = append(all, i)
			}
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.listed = left
	return all
}

// note tells the log of accounts that fail, once each, and of their return.
func (p *Provider) note(ctx context.Context, lists []listing) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := map[Owner]providers.Class{}
	for _, l := range lists {
		was, failed := p.failed[l.owner]
		log := p.log.With("tenant", l.owner.Tenant, "secret", l.owner.Secret)
		switch {
		case l.err == nil && failed:
			log.InfoContext(ctx, "account at the provider answers again")
		case l.err != nil:
			class := providers.AsError(l.err).Class
			now[l.owner] = class
			if class != was {
				log.WarnContext(ctx, "account at the provider not listed, its sandboxes stay as they are", "error", l.err)
			}
		}
	}
	p.failed = now
}
