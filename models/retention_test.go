package models_test

import (
	"testing"
	"time"

	"sandyard/models"
)

// TestBuildsAreForgotten but those whose image is still needed, or whose job is still known.
func TestBuildsAreForgotten(t *testing.T) {
	t.Parallel()
	s, db := openBeside(t)
	box := newSandbox()
	out := create(t, s, box)
	exec(t, db, "UPDATE sandboxes SET image = 'lives' WHERE id = $1", box.ID)
	for id, job := range map[string]string{"plain": "gone", "lives": "gone", "fresh": "gone", "known": out.Jobs[0].ID, "template": "gone"} {
		exec(t, db, `INSERT INTO builds (id, tenant_id, shared, template, sandbox_id, job_id, recipe, image, created_at)
			VALUES ($1, 'default', false, 't', 'x', $2, '{}', $1, now() - interval '2 hours')`, id, job)
		exec(t, db, "INSERT INTO build_logs (build_id, data) VALUES ($1, 'x')", id)
	}
	exec(t, db, "UPDATE builds SET created_at = now() WHERE id = 'fresh'")
	if _, err := s.PutTemplate(t.Context(), models.Owner{Tenant: "default"}, models.Template{Name: "t", Image: "template"}); err != nil {
		t.Fatal(err)
	}
	if n, err := s.PruneBuilds(t.Context(), time.Hour, 100); err != nil || n != 1 {
		t.Errorf("%d builds are forgotten, %v", n, err)
	}
	var left, logs int
	err := db.QueryRowContext(t.Context(), "SELECT (SELECT count(*) FROM builds WHERE id <> 'plain'), (SELECT count(*) FROM build_logs)").Scan(&left, &logs)
	if err != nil || left != 4 || logs != 4 {
		t.Errorf("%d builds are left with %d logs, %v", left, logs, err)
	}
}
