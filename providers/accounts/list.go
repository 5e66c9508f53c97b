package accounts

import (
	"context"
	"math/rand/v2"
	"time"

	"golang.org/x/sync/errgroup"

	"sandyard/providers"
)

const (
	listsAtOnce = 8
	// listPatience bounds the lists of all tenants' accounts of one round: slow ones must not delay what is compared with
	// them.
	listPatience = 30 * time.Second
	// operatorPatience bounds that of the operator's, which may be as long as all others together.
	operatorPatience = time.Minute
	// An account that fails is left alone for a time that doubles with each failure.
	firstRest = 15 * time.Second
	lastRest  = 10 * time.Minute
)

// errNotAsked says that a round was over before an account's turn.
var errNotAsked = providers.Unavailable.Errorf("other accounts took too long")

// listing is what one account has listed.
type listing struct {
	owner Owner
	found []providers.Instance
	err   error
	asked bool
}

// failure is why an account is not asked until a time.
type failure struct {
	err   error
	times int
	until time.Time
}

// List implements providers.Provider: what all accounts have. An account answers for sandboxes alone that it has made,
// and for what is left of its tenant's in it. Sandboxes of an account that fails, and the operator's without its key,
// are StateUnknown; the error is that of a vendor of which no account answers.
func (p *Provider) List(ctx context.Context) ([]providers.Instance, error) {
	owners, err := p.cfg.Book.Owners(ctx)
	if err != nil {
		return nil, err
	}
	rand.Shuffle(len(owners), func(i, j int) { owners[i], owners[j] = owners[j], owners[i] })
	lists := p.listAll(ctx, append([]Owner{{}}, owners...))
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
	if len(failed) == len(lists) && (p.operator != nil || len(owners) > 0) {
		if p.operator == nil {
			lists = lists[1:]
		}
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

// listAll asks the operator's account first, and of the others those that do not rest.
func (p *Provider) listAll(ctx context.Context, owners []Owner) []listing {
	round, stop := context.WithTimeout(ctx, listPatience)
	defer stop()
	lists := make([]listing, len(owners))
	var all errgroup.Group
	all.SetLimit(listsAtOnce)
	for n, o := range owners {
		if err := p.rests(o); err != nil {
			lists[n] = listing{owner: o, err: err}
			continue
		}
		all.Go(func() error {
			if o == (Owner{}) {
				ctx, stop := context.WithTimeout(ctx, operatorPatience)
				defer stop()
				lists[n] = p.list(ctx, o)
			} else {
				lists[n] = p.list(round, o)
			}
			return nil
		})
	}
	_ = all.Wait()
	return lists
}

func (p *Provider) list(ctx context.Context, o Owner) listing {
	if ctx.Err() != nil {
		return listing{owner: o, err: errNotAsked}
	}
	l := listing{owner: o, asked: true}
	l.err = p.with(ctx, o, func(a Account) (err error) {
		l.found, err = a.List(ctx)
		return err
	})
	if l.err != nil {
		l.found = nil
	}
	return l
}

// rests returns why an account is not to be asked yet. The operator's always is.
func (p *Provider) rests(o Owner) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if f := p.failed[o]; o != (Owner{}) && time.Now().Before(f.until) {
		return f.err
	}
	return nil
}

// judge keeps what an account may answer for. The label of a sandbox proves nothing: whoever has the key gives it.
func (p *Provider) judge(lists []listing, rows map[string]Row) []providers.Instance {
	var all []providers.Instance
	left := map[string][]Owner{}
	for _, l := range lists {
		seen := map[string]bool{}
		for _, i := range l.found {
			if seen[i.ID] { // an account that lists an id twice has one say
				continue
			}
			seen[i.ID] = true
			row, known := rows[i.ID]
			switch {
			case row.Live && row.Owner == l.owner: // one that nobody has decided is the operator's
				all = append(all, i)
			case row.Live: // in another account
			case l.owner == (Owner{}), known && row.Tenant == l.owner.Tenant:
				left[i.ID] = append(left[i.ID], l.owner)
				all = append(all, i)
			}
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.listed = left
	return all
}

// note remembers the accounts that fail, and tells the log of them once each, and of their return.
func (p *Provider) note(ctx context.Context, lists []listing) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := map[Owner]failure{}
	for _, l := range lists {
		was, failed := p.failed[l.owner]
		log := p.log.With("tenant", l.owner.Tenant, "secret", l.owner.Secret)
		switch {
		case l.owner == (Owner{}) && p.operator == nil: // as it was configured
		case l.err == nil && failed:
			log.InfoContext(ctx, "account at the provider answers again")
		case l.err != nil && !l.asked:
			if failed {
				now[l.owner] = was
			}
		case l.err != nil:
			rest := min(firstRest<<min(was.times, 10), lastRest)
			now[l.owner] = failure{l.err, was.times + 1, time.Now().Add(rest)}
			if !failed || providers.AsError(l.err).Class != providers.AsError(was.err).Class {
				log.WarnContext(ctx, "account at the provider not listed, its sandboxes stay as they are", "error", l.err)
			}
		}
	}
	p.failed = now
}
