package accounts_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"sandyard/providers"
	"sandyard/providers/accounts"
	"sandyard/providers/fake"
)

// vendor has an account for each key that it takes, and keys of one account.
type vendor struct {
	mu     sync.Mutex
	keys   map[string]*fake.State
	away   map[string]bool // accounts that do not answer, by key
	twice  bool            // all is listed twice
	hangs  map[string]bool // accounts whose lists do not end
	lists  map[string]int  // that were asked for, by key
	opened []string
	told   map[string]string
}

// account is what a key opens.
type account struct {
	*fake.Provider

	v           *vendor
	key, secret string
}

func (v *vendor) open(key, secret string) (accounts.Account, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.opened = append(v.opened, key)
	state := v.keys[key]
	if state == nil {
		state = fake.NewState()
	}
	return &account{fake.New(fake.Options{State: state}), v, key, secret}, nil
}

func (a *account) check() error {
	a.v.mu.Lock()
	defer a.v.mu.Unlock()
	switch {
	case a.v.away[a.key]:
		return providers.Unavailable.Errorf("nobody is there")
	case a.v.keys[a.key] != nil:
		return nil
	case a.secret == "":
		return providers.Refused.Errorf("not the operator's")
	}
	return providers.KeyRefused.Errorf("not the key in %s", a.secret)
}

func (a *account) Create(ctx context.Context, spec providers.Spec) (providers.Instance, error) {
	if err := a.check(); err != nil {
		return providers.Instance{}, err
	}
	spec.Image = "fake"
	return a.Provider.Create(ctx, spec)
}

func (a *account) Open(ctx context.Context, id string) (providers.Sandbox, error) {
	if err := a.check(); err != nil {
		return nil, err
	}
	return a.Provider.Open(ctx, id)
}

func (a *account) Delete(ctx context.Context, id string) error {
	return cmpErr(a.check(), func() error { return a.Provider.Delete(ctx, id) })
}

func (a *account) List(ctx context.Context) ([]providers.Instance, error) {
	a.v.mu.Lock()
	a.v.lists[a.key]++
	hangs := a.v.hangs[a.key]
	a.v.mu.Unlock()
	if hangs {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if err := a.check(); err != nil {
		return nil, err
	}
	all, err := a.Provider.List(ctx)
	if a.v.twice {
		all = append(all, all...)
	}
	return all, err
}

func (a *account) SetTimeout(context.Context, string, time.Duration) error { return a.check() }

func (a *account) Ping(context.Context) error { return a.check() }

func (a *account) Remember(id, ref string) {
	a.v.mu.Lock()
	defer a.v.mu.Unlock()
	a.v.told[id] = a.key + " " + ref
}

func cmpErr(err error, do func() error) error {
	if err != nil {
		return err
	}
	return do()
}

// tables are the rows that a test writes.
type tables struct {
	mu      sync.Mutex
	rows    map[string]accounts.Row
	setting map[string]accounts.Owner // by tenant
	owners  []accounts.Owner
	values  map[accounts.Owner]string
	asked   int // keys that were read
}

func (b *tables) Decide(_ context.Context, id string) (accounts.Owner, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	row, ok := b.rows[id]
	if !ok {
		return accounts.Owner{}, providers.ErrNotFound
	}
	if !row.Decided {
		row.Decided, row.Owner = true, b.setting[row.Tenant]
		b.rows[id] = row
		if row.Owner != (accounts.Owner{}) && !slices.Contains(b.owners, row.Owner) {
			b.owners = append(b.owners, row.Owner)
		}
	}
	return row.Owner, nil
}

func (b *tables) Rows(_ context.Context, ids []string) (map[string]accounts.Row, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := maps.Clone(b.rows)
	maps.DeleteFunc(all, func(id string, _ accounts.Row) bool { return !slices.Contains(ids, id) })
	return all, nil
}

func (b *tables) Live(_ context.Context, of []accounts.Owner) (ids []string, _ error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for id, row := range b.rows {
		if row.Live && slices.Contains(of, row.Owner) {
			ids = append(ids, id)
		}
	}
	return ids, nil
}

func (b *tables) Owners(context.Context) ([]accounts.Owner, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.owners), nil
}

func (b *tables) Key(_ context.Context, o accounts.Owner) (string, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.asked++
	return b.values[o], nil
}

// the owners of the tests.
func ownerA() accounts.Owner { return accounts.Owner{Tenant: "a", Secret: "KEY_OF_A"} }

// setup is a provider over a vendor, at which the operator and tenant a have accounts.
func setup(t *testing.T, key string) (accounts.Account, *vendor, *tables, *bytes.Buffer) {
	t.Helper()
	v := &vendor{
		keys: map[string]*fake.State{"operators-key": fake.NewState(), "key-of-a": fake.NewState()}, away: map[string]bool{},
		told: map[string]string{}, hangs: map[string]bool{}, lists: map[string]int{},
	}
	b := &tables{
		rows: map[string]accounts.Row{}, setting: map[string]accounts.Owner{"a": ownerA()},
		values: map[accounts.Owner]string{ownerA(): "key-of-a"},
	}
	log := &bytes.Buffer{}
	p, err := accounts.New(accounts.Config{
		Name: "e2b", Key: key, Open: v.open, Book: b, Logger: slog.New(slog.NewTextHandler(log, nil)),
	})
	must(t, err)
	t.Cleanup(func() {
		must(t, p.Close())
		for _, state := range v.keys {
			state.Close()
		}
		if strings.Contains(log.String(), "key-of-a") || strings.Contains(log.String(), "operators-key") {
			t.Errorf("a key is in the log: %s", log)
		}
	})
	return p, v, b, log
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantClass(t *testing.T, what string, err error, want providers.Class) {
	t.Helper()
	if !errors.Is(err, &providers.Error{Class: want}) {
		t.Errorf("%s: %v, want %s", what, err, want)
	}
}

// create has a sandbox of a tenant made.
func create(t *testing.T, p accounts.Account, b *tables, tenant, id string) {
	t.Helper()
	b.rows[id] = accounts.Row{Tenant: tenant, Live: true}
	_, err := p.Create(t.Context(), providers.Spec{ID: id})
	must(t, err)
}

func ids(list []providers.Instance) (all []string) {
	for _, i := range list {
		all = append(all, i.ID+" "+string(i.State))
	}
	slices.Sort(all)
	return all
}

func wantIDs(t *testing.T, what string, got []providers.Instance, want ...string) {
	t.Helper()
	if all := ids(got); !slices.Equal(all, want) {
		t.Errorf("%s: %v, want %v", what, all, want)
	}
}

// TestEverySandboxHasItsAccount: calls go to the account that made the sandbox, whatever becomes of the setting.
func TestEverySandboxHasItsAccount(t *testing.T) {
	t.Parallel()
	p, v, b, _ := setup(t, "operators-key")
	create(t, p, b, "a", "boxa")
	create(t, p, b, "b", "boxb")
	wantIDs(t, "in the tenant's account", v.keys["key-of-a"].List(), "boxa running")
	wantIDs(t, "in the operator's", v.keys["operators-key"].List(), "boxb running")
	b.setting = nil
	another, err := accounts.New(accounts.Config{Name: "e2b", Key: "operators-key", Open: v.open, Book: b})
	must(t, err)
	t.Cleanup(func() { must(t, another.Close()) })
	for name, worker := range map[string]accounts.Account{"the worker that made it": p, "another worker": another} {
		if _, err := worker.Create(t.Context(), providers.Spec{ID: "boxa"}); err != nil {
			t.Errorf("%s: once more: %v", name, err)
		}
		worker.Remember("boxa", "ref")
		if _, err := worker.Open(t.Context(), "boxa"); err != nil || v.told["boxa"] != "key-of-a ref" {
			t.Errorf("%s: open: %v, told %v", name, err, v.told)
		}
		must(t, worker.Pause(t.Context(), "boxa"))
		wantIDs(t, name, v.keys["key-of-a"].List(), "boxa paused")
		must(t, worker.Resume(t.Context(), "boxa"))
		must(t, worker.(providers.Timer).SetTimeout(t.Context(), "boxa", time.Hour))
		list, err := worker.List(t.Context())
		must(t, err)
		wantIDs(t, name, list, "boxa running", "boxb running")
	}
	must(t, another.Delete(t.Context(), "boxa"))
	wantIDs(t, "after the delete", v.keys["key-of-a"].List())
	if b.asked > 2 {
		t.Errorf("a key was read %d times", b.asked)
	}
}

// TestAnAccountAnswersForItsOwnAlone: a hostile account lists the ids of others.
func TestAnAccountAnswersForItsOwnAlone(t *testing.T) {
	t.Parallel()
	p, v, b, _ := setup(t, "operators-key")
	create(t, p, b, "a", "boxa")
	create(t, p, b, "b", "boxb")
	b.rows["endedb"] = accounts.Row{Tenant: "b"}
	b.rows["endeda"] = accounts.Row{Tenant: "a"}
	b.rows["moveda"] = accounts.Row{Tenant: "a"} // another provider makes it by now
	hostile := fake.New(fake.Options{State: v.keys["key-of-a"]})
	t.Cleanup(func() { must(t, hostile.Close()) })
	for _, id := range []string{"boxb", "endedb", "endeda", "moveda", "nobodys"} {
		_, err := hostile.Create(t.Context(), providers.Spec{ID: id, Image: "fake"})
		must(t, err)
	}
	must(t, hostile.Pause(t.Context(), "boxb"))
	v.keys["operators-key"].Vanish("boxb")
	list, err := p.List(t.Context())
	must(t, err)
	wantIDs(t, "listed", list, "boxa running", "endeda running", "moveda running")
	for _, id := range []string{"boxb", "endedb", "endeda", "moveda", "nobodys"} {
		must(t, p.Delete(t.Context(), id))
	}
	wantIDs(t, "left in the account", v.keys["key-of-a"].List(), "boxa running", "boxb paused", "endedb running", "nobodys running")
}

// TestOneAccountThatFails hides no other, and its sandboxes do not count as gone.
func TestOneAccountThatFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, oneAccountFails)
}

func oneAccountFails(t *testing.T) {
	for name, breaks := range map[string]func(v *vendor){
		"refused": func(v *vendor) { delete(v.keys, "key-of-a") }, "away": func(v *vendor) { v.away["key-of-a"] = true },
	} {
		p, v, b, log := setup(t, "operators-key")
		create(t, p, b, "a", "boxa")
		create(t, p, b, "b", "boxb")
		kept := v.keys["key-of-a"]
		t.Cleanup(kept.Close)
		breaks(v)
		asked := v.lists["key-of-a"]
		for range 3 {
			list, err := p.List(t.Context())
			must(t, err)
			wantIDs(t, name, list, "boxa unknown", "boxb running")
		}
		if n := strings.Count(log.String(), "not listed"); n != 1 || !strings.Contains(log.String(), "tenant=a") {
			t.Errorf("%s is logged %d times: %s", name, n, log)
		}
		if n := v.lists["key-of-a"] - asked; n != 1 {
			t.Errorf("%s: asked %d times in its rest", name, n)
		}
		must(t, p.Ping(t.Context()))
		v.away["operators-key"] = true
		list, err := p.List(t.Context())
		wantClass(t, name+", and the operator's away", err, providers.Unavailable)
		wantIDs(t, name, list)
		wantClass(t, "ping", p.Ping(t.Context()), providers.Unavailable)
		delete(v.away, "operators-key")
		v.keys["key-of-a"] = kept
		delete(v.away, "key-of-a")
		<-time.After(time.Minute)
		list, err = p.List(t.Context())
		must(t, err)
		wantIDs(t, name+" no more", list, "boxa running", "boxb running")
	}
}

// TestASlowAccount delays a round by its deadline at most, and is left alone for longer and longer.
func TestASlowAccount(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, v, b, _ := setup(t, "operators-key")
		create(t, p, b, "a", "boxa")
		create(t, p, b, "b", "boxb")
		v.hangs["key-of-a"] = true
		began := time.Now()
		for time.Since(began) < time.Hour {
			before := time.Now()
			list, err := p.List(t.Context())
			must(t, err)
			wantIDs(t, "while it hangs", list, "boxa unknown", "boxb running")
			if took := time.Since(before); took > 30*time.Second {
				t.Errorf("a round took %v", took)
			}
			<-time.After(15 * time.Second)
		}
		if n := v.lists["key-of-a"]; n < 5 || n > 12 {
			t.Errorf("it was asked %d times in an hour", n)
		}
	})
}

// TestAnIdListedTwice is one resource.
func TestAnIdListedTwice(t *testing.T) {
	t.Parallel()
	p, v, b, _ := setup(t, "operators-key")
	create(t, p, b, "a", "boxa")
	v.twice = true
	list, err := p.List(t.Context())
	must(t, err)
	wantIDs(t, "listed", list, "boxa running")
}

// TestARotatedKeyCountsAtOnce where the old one is refused.
func TestARotatedKeyCountsAtOnce(t *testing.T) {
	t.Parallel()
	p, v, b, _ := setup(t, "operators-key")
	create(t, p, b, "a", "boxa")
	v.keys["new-key-of-a"] = v.keys["key-of-a"]
	delete(v.keys, "key-of-a")
	_, err := p.Open(t.Context(), "boxa")
	wantClass(t, "before it was written", err, providers.KeyRefused)
	b.values[ownerA()] = "new-key-of-a"
	if _, err := p.Open(t.Context(), "boxa"); err != nil {
		t.Errorf("the new key: %v", err)
	}
}

// TestKeysThatAreNone are not sent.
func TestKeysThatAreNone(t *testing.T) {
	t.Parallel()
	for _, key := range []string{"", "a\r\nX-Admin: 1", "a b", "a\n", "ä", strings.Repeat("x", 5000)} {
		p, v, b, _ := setup(t, "operators-key")
		b.values[ownerA()] = key
		b.rows["boxa"] = accounts.Row{Tenant: "a", Live: true}
		_, err := p.Create(t.Context(), providers.Spec{ID: "boxa"})
		wantClass(t, fmt.Sprintf("%.10q", key), err, providers.KeyRefused)
		if len(v.opened) != 1 || !strings.Contains(err.Error(), "KEY_OF_A") || key != "" && strings.Contains(err.Error(), key) {
			t.Errorf("%.10q: opened %d, %v", key, len(v.opened), err)
		}
	}
}

// TestWithoutAKeyOfTheOperators tenants with one of their own have sandboxes made, and others are told why not.
func TestWithoutAKeyOfTheOperators(t *testing.T) {
	t.Parallel()
	p, v, b, _ := setup(t, "")
	create(t, p, b, "a", "boxa")
	b.rows["boxb"] = accounts.Row{Tenant: "b", Live: true}
	_, err := p.Create(t.Context(), providers.Spec{ID: "boxb"})
	wantClass(t, "of another tenant", err, providers.Refused)
	list, err := p.List(t.Context())
	must(t, err)
	wantIDs(t, "listed", list, "boxa running", "boxb unknown")
	must(t, p.Ping(t.Context()))
	v.away["none"] = true
	wantClass(t, "ping", p.Ping(t.Context()), providers.Unavailable)
	b.rows["never"] = accounts.Row{Tenant: "a", Live: true}
	must(t, p.Delete(t.Context(), "never"))
	must(t, p.Delete(t.Context(), "nobodys"))
}

// TestWithoutTheOperatorsKeyAnyMore: a worker without it proves nothing about the sandboxes that were made with it.
func TestWithoutTheOperatorsKeyAnyMore(t *testing.T) {
	t.Parallel()
	p, _, b, log := setup(t, "")
	create(t, p, b, "a", "boxa")
	b.rows["operators"] = accounts.Row{Tenant: "b", Live: true, Decided: true}
	b.rows["older"] = accounts.Row{Tenant: "b", Live: true}
	list, err := p.List(t.Context())
	must(t, err)
	wantIDs(t, "listed", list, "boxa running", "older unknown", "operators unknown")
	for _, id := range []string{"operators", "older"} {
		_, err = p.Open(t.Context(), id)
		wantClass(t, "open "+id, err, providers.Refused)
		wantClass(t, "delete "+id, p.Delete(t.Context(), id), providers.Refused)
	}
	if strings.Contains(log.String(), "not listed") {
		t.Errorf("what is configured is logged as a failure: %s", log)
	}
}

// TestManyAccounts: no more stay open than the bound, and one that was let go of opens again.
func TestManyAccounts(t *testing.T) {
	t.Parallel()
	p, v, b, _ := setup(t, "operators-key")
	shared := v.keys["key-of-a"]
	for n := range 1500 {
		o := accounts.Owner{Tenant: fmt.Sprint("t", n), Secret: "KEY"}
		b.setting[o.Tenant], b.values[o] = o, fmt.Sprint("key-", n)
		v.keys[b.values[o]] = shared
		create(t, p, b, o.Tenant, fmt.Sprint("box", n))
	}
	before := len(v.opened)
	if _, err := p.Open(t.Context(), "box0"); err != nil || len(v.opened) != before+1 {
		t.Errorf("the first again: %v, %d opened", err, len(v.opened)-before)
	}
}
