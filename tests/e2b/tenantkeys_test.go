//go:build e2b

package e2b

import (
	"database/sql"
	"fmt"
	"strings"
	"testing"

	"sandyard/dev/testenv"
	"sandyard/models"
	"sandyard/providers"
	"sandyard/providers/daytona"
	"sandyard/providers/e2b"
)

// TestTenantsKeysOfE2B gives a tenant an account of its own at E2B, whose place another installation takes.
func TestTenantsKeysOfE2B(t *testing.T) {
	t.Parallel()
	tenantsKeys(t, "e2b")
}

// TestTenantsKeysOfDaytona does so at Daytona.
func TestTenantsKeysOfDaytona(t *testing.T) {
	t.Parallel()
	tenantsKeys(t, "daytona")
}

// renter is an installation at a vendor, where tenant acme has an account of its own beside the operator's.
type renter struct {
	*stack

	keys     []string // acme's at the vendor, the latest last
	acme     string   // its key here
	operator string
}

func tenantsKeys(t *testing.T, cloud string) {
	over := newStack(t)
	_, err := over.store.CreateTenant(t.Context(), "second", nil)
	check(t, err)
	s := &stack{t: t, api: listen(t), edge: listen(t), log: &lockedLog{}, over: over, cloud: cloud, fleet: "renter"}
	s.begin()
	r := &renter{stack: s}
	r.acme, err = s.store.CreateTenant(t.Context(), "acme", nil)
	check(t, err)
	r.operator, err = s.store.CreateKey(t.Context(), "default", "operator", []string{models.ScopeOperator})
	check(t, err)
	r.rotate()
	r.set("VENDOR_KEY")

	theirs, ours := r.create(r.acme, nil), r.create(s.ownKey, nil)
	r.live("second", 1)
	r.live("default", 1)
	r.works(theirs)
	r.reconciles(theirs, ours)
	r.rotates(theirs)
	r.refuses(theirs)
	r.ends(theirs, ours)
	r.tellsNoKey(theirs)
}

// rotate writes another key of acme's account, and revokes those before.
func (r *renter) rotate() {
	make := r.over.store.CreateKey
	if r.cloud == "e2b" {
		make = r.over.store.CreateE2BKey
	}
	key, err := make(r.t.Context(), "second", fmt.Sprint("key ", len(r.keys)), []string{models.ScopeSandboxes})
	check(r.t, err)
	r.keys = append(r.keys, key)
	r.askAs(r.acme, "PUT", "/v1/secrets/VENDOR_KEY", map[string]any{"value": key}, 200)
	for _, old := range r.keys[:len(r.keys)-1] {
		check(r.t, r.over.store.RevokeKey(r.t.Context(), "second", old))
	}
}

func (r *renter) set(secret string) {
	r.t.Helper()
	r.askAs(r.operator, "PATCH", "/v1/tenants/acme", map[string]any{"provider_keys": map[string]string{r.cloud: secret}}, 200)
}

// submit returns the job that a request has led to, when it has ended.
func (r *renter) submit(key, method, path string, body any) (whole, job map[string]any) {
	r.t.Helper()
	whole = r.askAs(key, method, path+"?wait=60s", body, 200)
	job, _ = whole["job"].(map[string]any)
	return whole, job
}

func (r *renter) create(key string, wish map[string]any) (id string) {
	r.t.Helper()
	if wish == nil {
		wish = map[string]any{}
	}
	done, job := r.submit(key, "POST", "/v1/sandboxes", wish)
	box, _ := done["sandbox"].(map[string]any)
	if id, _ = box["id"].(string); job["state"] != "succeeded" || id == "" {
		r.t.Fatalf("create: %v", done)
	}
	return id
}

// live waits until a tenant of the vendor's has so many sandboxes.
func (r *renter) live(tenant string, want int) {
	r.t.Helper()
	testenv.Eventually(r.t, fmt.Sprintf("account %s has %d sandboxes", tenant, want), func() bool {
		n, err := r.over.store.CountSandboxes(r.t.Context(), tenant, models.SandboxFilter{Live: true})
		return err == nil && n == want
	})
}

func (r *renter) exec(key, box, command string) (stdout string) {
	r.t.Helper()
	done, job := r.submit(key, "POST", "/v1/sandboxes/"+box+"/exec", map[string]any{"command": command})
	if job["state"] != "succeeded" {
		r.t.Fatalf("exec: %v", done)
	}
	stdout, _ = job["stdout"].(string)
	return stdout
}

// works uses a sandbox in a tenant's account.
func (r *renter) works(box string) {
	r.t.Helper()
	if out := r.exec(r.acme, box, "echo hello > f; cat f"); out != "hello\n" {
		r.t.Errorf("exec printed %q", out)
	}
	for _, change := range []string{"/pause", "/resume"} {
		if done, job := r.submit(r.acme, "POST", "/v1/sandboxes/"+box+change, map[string]any{}); job["state"] != "succeeded" {
			r.t.Errorf("%s: %v", change, done)
		}
	}
	out := r.exec(r.acme, box, "cat f; env; cat /proc/[0-9]*/environ 2>/dev/null | tr '\\0' '\\n'")
	if !strings.HasPrefix(out, "hello\n") || strings.Contains(out, r.keys[0]) || strings.Contains(out, r.over.key[4:]) {
		r.t.Errorf("the sandbox holds a key, or lost a file: %.2000s", out)
	}
}

// at is who works with acme's key at the vendor, under the installation's name.
func (r *renter) at(key string) providers.Provider {
	var p providers.Provider
	var err error
	url := "http://" + r.over.api.Addr().String()
	if r.cloud == "e2b" {
		p, err = e2b.New(e2b.Config{APIKey: key, URL: url, DataURL: "http://" + r.over.edge.Addr().String(), Fleet: r.fleet})
	} else {
		p, err = daytona.New(daytona.Config{APIKey: key, URL: url + "/daytona/api", Fleet: r.fleet})
	}
	check(r.t, err)
	r.t.Cleanup(func() { _ = p.Close() })
	return p
}

// reconciles: what a lost create has left in acme's account is removed, and what carries another tenant's id in there has no
// say in that tenant's sandbox.
func (r *renter) reconciles(theirs, ours string) {
	r.t.Helper()
	gone := r.create(r.acme, nil)
	r.submit(r.acme, "DELETE", "/v1/sandboxes/"+gone, nil)
	r.live("second", 1)
	hostile := r.at(r.keys[0])
	_, err := hostile.Create(r.t.Context(), providers.Spec{ID: ours})
	check(r.t, err)
	check(r.t, hostile.(providers.Pauser).Pause(r.t.Context(), ours))
	if _, err := hostile.Create(r.t.Context(), providers.Spec{ID: gone, Labels: map[string]string{"by": "another"}}); err != nil {
		r.t.Logf("what is left is removed at once: %v", err)
	}
	made, err := r.over.store.CountSandboxes(r.t.Context(), "second", models.SandboxFilter{})
	if err != nil || made < 4 {
		r.t.Errorf("the account has had %d sandboxes, %v", made, err)
	}
	r.live("second", 2) // what was left is removed
	if left, err := hostile.List(r.t.Context()); err != nil || len(left) != 2 {
		r.t.Errorf("left in the account are %+v, %v", left, err)
	}
	for box, key := range map[string]string{theirs: r.acme, ours: r.ownKey} {
		if out := r.exec(key, box, "echo here"); out != "here\n" {
			r.t.Errorf("%s printed %q", box, out)
		}
	}
	check(r.t, hostile.Delete(r.t.Context(), ours))
	r.live("second", 1)
	r.live("default", 1)
}

// rotates: a key that is written again counts for sandboxes that live.
func (r *renter) rotates(box string) {
	r.t.Helper()
	r.rotate()
	if out := r.exec(r.acme, box, "echo rotated"); out != "rotated\n" {
		r.t.Errorf("with the new key: %q", out)
	}
}

// refuses: a key that the vendor does not take is the tenant's error and nobody else's.
func (r *renter) refuses(box string) {
	r.t.Helper()
	check(r.t, r.over.store.RevokeKey(r.t.Context(), "second", r.keys[len(r.keys)-1]))
	var job map[string]any
	testenv.Eventually(r.t, "the vendor refuses the key", func() bool {
		_, job = r.submit(r.acme, "POST", "/v1/sandboxes/"+box+"/exec", map[string]any{"command": "true"})
		return job["state"] == "failed"
	})
	why, _ := job["error"].(map[string]any)
	if text, _ := why["message"].(string); why["code"] != "provider_key_refused" || !strings.Contains(text, "VENDOR_KEY") {
		r.t.Errorf("refused: %v", job)
	}
	other := r.create(r.acme, map[string]any{"providers": []string{r.cloud, "docker"}})
	if b, err := r.store.Sandbox(r.t.Context(), "acme", other); err != nil || b.Provider != "docker" {
		r.t.Errorf("the next provider is %s, %v", b.Provider, err)
	}
	r.submit(r.acme, "DELETE", "/v1/sandboxes/"+other, nil)
	beside := r.create(r.ownKey, nil)
	r.submit(r.ownKey, "DELETE", "/v1/sandboxes/"+beside, nil)
	states, err := r.store.ProviderStates(r.t.Context())
	if err != nil || states[r.cloud].Away != 0 {
		r.t.Errorf("the provider counts as away: %+v, %v", states, err)
	}
	if b, err := r.store.Sandbox(r.t.Context(), "acme", box); err != nil || b.State != models.SandboxRunning {
		r.t.Errorf("the tenant's sandbox is %s, %v", b.State, err)
	}
}

// ends deletes the sandboxes; until then their key stays. One whose key is refused goes when a valid one is written.
func (r *renter) ends(theirs, ours string) {
	r.t.Helper()
	r.askAs(r.acme, "DELETE", "/v1/secrets/VENDOR_KEY", nil, 409)
	r.set("")
	begun := r.askAs(r.acme, "DELETE", "/v1/sandboxes/"+theirs, nil, 202)
	job, _ := begun["job"].(map[string]any)
	testenv.Eventually(r.t, "the delete with a refused key is tried again", func() bool {
		tried, _ := r.askAs(r.acme, "GET", fmt.Sprint("/v1/jobs/", job["id"]), nil, 200)["attempt"].(float64)
		return tried > 1
	})
	r.askAs(r.acme, "DELETE", "/v1/secrets/VENDOR_KEY", nil, 409)
	r.rotate()
	r.live("second", 0)
	testenv.Eventually(r.t, "the sandbox is deleted", func() bool {
		b, err := r.store.Sandbox(r.t.Context(), "acme", theirs)
		return err == nil && b.State == models.SandboxDeleted
	})
	if done, job := r.submit(r.ownKey, "DELETE", "/v1/sandboxes/"+ours, nil); job["state"] != "succeeded" {
		r.t.Errorf("delete: %v", done)
	}
	r.live("default", 0)
	r.askAs(r.acme, "DELETE", "/v1/secrets/VENDOR_KEY", nil, 409) // something may be left
	r.yesterday()
	r.askAs(r.acme, "DELETE", "/v1/secrets/VENDOR_KEY", nil, 204)
}

// yesterday is when acme's sandboxes were begun and ended.
func (r *renter) yesterday() {
	r.t.Helper()
	db, err := sql.Open("pgx", r.dsn)
	check(r.t, err)
	defer db.Close()
	for _, statement := range []string{
		"UPDATE provider_accounts SET used_at = used_at - interval '1 day'",
		"UPDATE sandboxes SET ended_at = ended_at - interval '1 day' WHERE tenant_id = 'acme'",
	} {
		_, err := db.ExecContext(r.t.Context(), statement)
		check(r.t, err)
	}
}

// tellsNoKey looks for the keys in every row of the installation's database, its log and what its API tells.
func (r *renter) tellsNoKey(box string) {
	r.t.Helper()
	db, err := sql.Open("pgx", r.dsn)
	check(r.t, err)
	defer db.Close()
	all := map[string]string{"the log": r.log.String()}
	for _, path := range []string{"/v1/sandboxes/" + box + "/events", "/v1/sandboxes/" + box, "/v1/secrets", "/v1/audit", "/v1/security-events"} {
		all[path] = fmt.Sprint(r.askAs(r.acme, "GET", path, nil, 200))
	}
	rows, err := db.QueryContext(r.t.Context(), "SELECT table_name FROM information_schema.tables WHERE table_schema = 'public'")
	check(r.t, err)
	defer rows.Close()
	var tables []string
	for rows.Next() {
		var name string
		check(r.t, rows.Scan(&name))
		tables = append(tables, name)
	}
	check(r.t, rows.Err())
	for _, name := range tables {
		var text string
		check(r.t, db.QueryRowContext(r.t.Context(), `SELECT coalesce(string_agg(t::text, chr(10)), '') FROM "`+name+`" t`).Scan(&text))
		all["table "+name] = text
	}
	if len(tables) < 10 || !strings.Contains(all["table jobs"], "provider_key_refused") || !strings.Contains(all["the log"], "VENDOR_KEY") {
		r.t.Errorf("nothing was read: %d tables", len(tables))
	}
	for where, text := range all {
		for _, key := range append(r.keys, r.over.key, r.over.ownKey) {
			if _, secret, _ := strings.Cut(key, "_"); strings.Contains(text, secret) {
				r.t.Errorf("a key is in %s", where)
			}
		}
	}
}
