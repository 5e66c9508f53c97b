package models_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"sandyard/dev/testdb"
	"sandyard/dev/testenv"
	"sandyard/models"
)

// made is a sandbox of the default tenant that the fake provider is to make, with its claimed create job.
func made(t *testing.T, s *models.Store) (box string, job models.Job) {
	t.Helper()
	out := create(t, s, newSandbox())
	job, err := s.Claim(t.Context(), out.Jobs[0].ID, "n1", lease)
	must(t, err)
	return out.Sandbox.ID, job
}

// TestTheAccountOfASandboxIsDecidedOnce: a later setting counts for new sandboxes alone.
func TestTheAccountOfASandboxIsDecidedOnce(t *testing.T) {
	t.Parallel()
	s, ctx := open(t, 100), t.Context()
	for _, name := range []string{"one", "two"} {
		_, err := s.PutSecret(ctx, "default", name, []byte("sealed"))
		must(t, err)
	}
	decided := func(box string, want models.Account) {
		t.Helper()
		if a, err := s.DecideAccount(ctx, "fake", box); err != nil || a != want {
			t.Errorf("the account is %+v, %v; want %+v", a, err, want)
		}
	}
	set := func(name string) {
		t.Helper()
		must(t, s.SetProviderKeys(ctx, "default", models.ProviderKeys{"fake": name, "other": "two"}))
	}
	operators, _ := made(t, s)
	decided(operators, models.Account{})
	set("one")
	first, job := made(t, s)
	one, two := models.Account{TenantID: "default", Secret: "one"}, models.Account{TenantID: "default", Secret: "two"}
	decided(first, one)
	set("two")
	second, _ := made(t, s)
	decided(second, two)
	decided(first, one)
	decided(operators, models.Account{})
	if _, err := s.DecideAccount(ctx, "elsewhere", first); !errors.Is(err, models.ErrNotFound) {
		t.Errorf("another provider decides: %v", err)
	}
	if all, err := s.Accounts(ctx, "fake"); err != nil || !slices.Equal(all, []models.Account{one, two}) {
		t.Errorf("the accounts are %v, %v", all, err)
	}
	rows, err := s.AccountRows(ctx, "fake", []string{operators, first, second, "nobodys"})
	if err != nil || len(rows) != 3 || !rows[first].Live || rows[first].Account != one || rows[operators].Account != (models.Account{}) ||
		!rows[operators].Decided {
		t.Errorf("rows %+v, %v", rows, err)
	}
	if rows, err = s.LiveAccountRows(ctx, "fake", []models.Account{two}); err != nil || len(rows) != 1 || !rows[second].Live {
		t.Errorf("rows of an account %+v, %v", rows, err)
	}

	// The next provider of its order decides anew. What the first one may have made is still looked for.
	_, err = s.MoveProvider(ctx, job, models.Place{Provider: "other", Image: "i", Spec: []byte("{}")}, models.Requeue{
		AttemptRef: models.AttemptRef{ID: job.ID, Attempt: job.Attempt},
	})
	must(t, err)
	if _, err := s.DecideAccount(ctx, "fake", first); !errors.Is(err, models.ErrNotFound) {
		t.Errorf("the provider that it has left decides: %v", err)
	}
	rows, err = s.AccountRows(ctx, "fake", []string{first})
	if row := rows[first]; err != nil || row.Live || row.Decided || row.TenantID != "default" {
		t.Errorf("for the first one %+v, %v", row, err)
	}
	if a, err := s.DecideAccount(ctx, "other", first); err != nil || a != two {
		t.Errorf("the next one's is %+v, %v", a, err)
	}
	if all, err := s.Accounts(ctx, "fake"); err != nil || !slices.Equal(all, []models.Account{one, two}) {
		t.Errorf("the accounts are %v, %v", all, err)
	}
}

// TestASecretThatIsAKeyStays while the tenant's setting names it or sandboxes live that were made with it.
func TestASecretThatIsAKeyStays(t *testing.T) {
	t.Parallel()
	dsn := testdb.New(t)
	s, ctx := openAt(t, dsn, 100), t.Context()
	db := database(t, dsn)
	earlier := func(table, column string) {
		t.Helper()
		_, err := db.ExecContext(ctx, "UPDATE "+table+" SET "+column+" = "+column+" - interval '25 hours'")
		must(t, err)
	}
	_, err := s.PutSecret(ctx, "default", "key", []byte("sealed"))
	must(t, err)
	var none *models.NoSecretError
	err = s.SetProviderKeys(ctx, "default", models.ProviderKeys{"e2b": "key", "fake": "e2b_by-mistake"})
	if !errors.As(err, &none) || none.Provider != "fake" {
		t.Errorf("a secret that is not there: %v", err)
	}
	if got, err := s.ListedTenant(ctx, "default"); err != nil || len(got.ProviderKeys) != 0 {
		t.Errorf("half of it was set: %v, %v", got.ProviderKeys, err)
	}
	if err := s.SetProviderKeys(ctx, "nobody", models.ProviderKeys{"e2b": ""}); !errors.Is(err, models.ErrNotFound) {
		t.Errorf("of no tenant: %v", err)
	}
	must(t, s.SetProviderKeys(ctx, "default", models.ProviderKeys{"fake": "key"}))
	box, job := made(t, s)
	_, err = s.DecideAccount(ctx, "fake", box)
	must(t, err)
	refused := func(provider string, boxes int) {
		t.Helper()
		var used *models.SecretUsedError
		if err := s.DeleteSecret(ctx, "default", "key"); !errors.As(err, &used) || used.Provider != provider || used.Sandboxes != boxes {
			t.Errorf("deleted: %+v, %v", used, err)
		}
	}
	refused("fake", 1)
	must(t, s.SetProviderKeys(ctx, "default", models.ProviderKeys{"fake": ""}))
	refused("", 1)
	_, err = s.Finish(ctx, models.Outcome{
		AttemptRef: models.AttemptRef{ID: job.ID, Attempt: job.Attempt}, SandboxID: box, Kind: models.KindCreate,
		State: models.Failed, Error: &models.JobError{Code: "test"},
	})
	must(t, err)
	accounts := func(want int) {
		t.Helper()
		if all, err := s.Accounts(ctx, "fake"); err != nil || len(all) != want {
			t.Errorf("accounts %v, %v; want %d", all, err, want)
		}
	}
	refused("", 0)
	earlier("provider_accounts", "used_at") // it has ended a moment ago, and was begun long before
	accounts(1)
	refused("", 0)
	earlier("sandboxes", "ended_at")
	accounts(0)
	must(t, s.DeleteSecret(ctx, "default", "key"))
	if all, err := s.Accounts(ctx, "fake"); err != nil || len(all) != 0 {
		t.Errorf("accounts without a secret: %v, %v", all, err)
	}
}

// TestASettingThatChangesMeanwhile: a decision that finds the secret of the setting gone asks for the setting again.
func TestASettingThatChangesMeanwhile(t *testing.T) {
	t.Parallel()
	dsn := testdb.New(t)
	s, ctx := openAt(t, dsn, 100), t.Context()
	db := database(t, dsn)
	_, err := s.PutSecret(ctx, "default", "key", []byte("sealed"))
	must(t, err)
	must(t, s.SetProviderKeys(ctx, "default", models.ProviderKeys{"fake": "key"}))
	box, _ := made(t, s)
	tx, err := db.BeginTx(ctx, nil) // both by an operator and an admin, between the decision's reads
	must(t, err)
	defer func() { _ = tx.Rollback() }()
	for _, statement := range []string{"DELETE FROM secrets", "UPDATE tenants SET provider_keys = '{}'"} {
		_, err := tx.ExecContext(ctx, statement)
		must(t, err)
	}
	type verdict struct {
		a   models.Account
		err error
	}
	ended := make(chan verdict, 1)
	go func() {
		a, err := s.DecideAccount(ctx, "fake", box)
		ended <- verdict{a, err}
	}()
	testenv.Eventually(t, "the decision waits for the secret", func() bool {
		var waiting int
		err := db.QueryRowContext(ctx, `SELECT count(*) FROM pg_stat_activity
			WHERE datname = current_database() AND wait_event_type = 'Lock'`).Scan(&waiting)
		return err == nil && waiting > 0
	})
	must(t, tx.Commit())
	if v := <-ended; v.err != nil || v.a != (models.Account{}) {
		t.Errorf("decided %+v, %v", v.a, v.err)
	}
}

// TestNoAccountWithoutItsSecret: a delete of the secret and a decision for it that meet leave no sandbox whose key is gone,
// whichever comes first.
func TestNoAccountWithoutItsSecret(t *testing.T) {
	t.Parallel()
	dsn := testdb.New(t)
	s, ctx := openAt(t, dsn, 100), t.Context()
	db := database(t, dsn)
	meet := func(first []string, second func(box string) error) (box string, err error) {
		t.Helper()
		_, err = s.PutSecret(ctx, "default", "key", []byte("sealed"))
		must(t, err)
		must(t, s.SetProviderKeys(ctx, "default", models.ProviderKeys{"fake": "key"}))
		box, _ = made(t, s) //nolint:contextcheck // the test's own
		tx, err := db.BeginTx(ctx, nil)
		must(t, err)
		defer func() { _ = tx.Rollback() }()
		for _, statement := range first {
			_, err := tx.ExecContext(ctx, strings.ReplaceAll(statement, "BOX", box))
			must(t, err)
		}
		ended := make(chan error, 1)
		go func() { ended <- second(box) }()
		testenv.Eventually(t, "the second waits for the first", func() bool {
			if len(ended) > 0 {
				return true // it did not wait, and has its verdict
			}
			var waiting int
			err := db.QueryRowContext(ctx, `SELECT count(*) FROM pg_stat_activity
				WHERE datname = current_database() AND wait_event_type = 'Lock'`).Scan(&waiting)
			return err == nil && waiting > 0
		})
		must(t, tx.Commit())
		return box, <-ended
	}
	box, err := meet([]string{"DELETE FROM secrets WHERE tenant_id = 'default' AND name = 'key'"}, func(box string) error {
		_, err := s.DecideAccount(ctx, "fake", box)
		return err
	})
	row, failed := s.Sandbox(ctx, "default", box)
	if must(t, failed); !models.IsNoSecret(err) || row.ProviderKey != nil {
		t.Errorf("decided for a secret that goes: %v, %v", row.ProviderKey, err)
	}
	_, err = meet([]string{
		"UPDATE tenants SET provider_keys = '{}'", "UPDATE sandboxes SET provider_key = 'key' WHERE id = 'BOX'",
		"SELECT 1 FROM secrets WHERE tenant_id = 'default' AND name = 'key' FOR KEY SHARE",
	}, func(string) error { return s.DeleteSecret(ctx, "default", "key") })
	var used *models.SecretUsedError
	if !errors.As(err, &used) || used.Sandboxes != 1 {
		t.Errorf("deleted the secret of a sandbox: %v", err)
	}
}
