package models_test

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"sandyard/models"
)

// TestTheLastBuildWinsWhateverItsID finishes builds in every order whose ids were made by machines with clocks an hour apart.
func TestTheLastBuildWinsWhateverItsID(t *testing.T) {
	t.Parallel()
	s := open(t, 100)
	now := time.Now()
	for name, order := range map[string][]int{"in-order": {0, 1}, "the-other-way-round": {1, 0}} {
		var held []models.AttemptRef
		var builds []models.Build
		for i, clock := range []time.Duration{time.Hour, -time.Hour} { // the second is the later one
			b := &models.Build{
				ID: models.NewIDAt("bld_", now.Add(clock)), TenantID: "default", Template: name, Recipe: json.RawMessage(`{}`), Image: name + string('0'+rune(i)),
			}
			h, row := submitBuild(t, s, b)
			held, builds = append(held, h), append(builds, row)
		}
		for _, i := range order {
			if err := s.FinishBuild(t.Context(), held[i], builds[i]); err != nil {
				t.Fatal(err)
			}
		}
		has, err := s.TemplateOf(t.Context(), models.Owner{Tenant: "default"}, name)
		if err != nil || has.Image != builds[1].Image {
			t.Errorf("%s: the template has %q, want the later one's %q, %v", name, has.Image, builds[1].Image, err)
		}
	}
}

// TestAnImageThatIsNamedAfterABuildHolds, and one that is merely named again does not stand in its way.
func TestAnImageThatIsNamedAfterABuildHolds(t *testing.T) {
	t.Parallel()
	s := open(t, 100)
	owner := models.Owner{Tenant: "default"}
	for named, want := range map[string]string{"first": "built", "other": "other", "new": "new"} {
		if named != "new" {
			if _, err := s.CreateTemplate(t.Context(), owner, models.Template{Name: named, Image: "first"}); err != nil {
				t.Fatal(err)
			}
		}
		held, b := submitBuild(t, s, &models.Build{ID: models.NewID("bld_"), TenantID: "default", Template: named, Recipe: json.RawMessage(`{}`), Image: "built"})
		if _, err := s.PutTemplate(t.Context(), owner, models.Template{Name: named, Image: named}); err != nil {
			t.Fatal(err)
		}
		if err := s.FinishBuild(t.Context(), held, b); err != nil {
			t.Fatal(err)
		}
		if has, err := s.TemplateOf(t.Context(), owner, named); err != nil || has.Image != want {
			t.Errorf("%q named after the build: the template has %q, want %q, %v", named, has.Image, want, err)
		}
		held, b = submitBuild(t, s, &models.Build{ID: models.NewID("bld_"), TenantID: "default", Template: named, Recipe: json.RawMessage(`{}`), Image: "again"})
		if err := s.FinishBuild(t.Context(), held, b); err != nil {
			t.Fatal(err)
		}
		if has, err := s.TemplateOf(t.Context(), owner, named); err != nil || has.Image != "again" {
			t.Errorf("after a later build the template has %q, %v", has.Image, err)
		}
	}
}

// submitBuild submits a build and claims its job.
func submitBuild(t *testing.T, s *models.Store, b *models.Build) (models.AttemptRef, models.Build) {
	t.Helper()
	box := newSandbox()
	b.SandboxID = box.ID
	j := newJob(models.KindBuild, box.ID)
	sub := models.Submission{TenantID: "default", SandboxID: box.ID, New: box, Build: b, Timeout: time.Minute, Jobs: []models.Job{j}}
	if _, err := s.Submit(t.Context(), sub); err != nil {
		t.Fatal(err)
	}
	c, err := s.Claim(t.Context(), j.ID, "node", lease)
	if err != nil {
		t.Fatal(err)
	}
	row, err := s.Build(t.Context(), b.ID)
	if err != nil {
		t.Fatal(err)
	}
	return models.AttemptRef{ID: c.ID, Attempt: c.Attempt}, row
}

func TestIDsSortByTheGivenMoment(t *testing.T) {
	t.Parallel()
	var ids []string
	at := time.Date(2026, 3, 4, 5, 6, 7, 999_900_000, time.UTC)
	for i := range 200 { // beyond the end of the second
		ids = append(ids, models.NewIDAt("x_", at.Add(time.Duration(i)*time.Microsecond)))
	}
	if !slices.IsSorted(ids) || len(slices.Compact(ids)) != len(ids) {
		t.Errorf("not in order: %v", ids)
	}
	if here := models.NewID("x_"); len(here) != len(ids[0]) {
		t.Errorf("%q is longer or shorter than %q", ids[0], here)
	}
	early, late := models.NewIDAt("x_", time.Now().Add(-time.Second)), models.NewIDAt("x_", time.Now().Add(time.Second))
	if here := models.NewID("x_"); here < early || here > late {
		t.Errorf("%q is not between %q and %q", here, early, late)
	}
}
