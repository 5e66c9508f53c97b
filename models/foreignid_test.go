package models_test

import (
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"sandyard/models"
)

// TestIDsOfAnyFormNameNothing: an id comes from a request. Whatever it holds, it is one value, and neither an error of the database, which
// would undo the submissions of others, nor the ids of several sandboxes.
func TestIDsOfAnyFormNameNothing(t *testing.T) {
	t.Parallel()
	s := open(t, 100)
	x, y := create(t, s, newSandbox()).Sandbox, create(t, s, newSandbox()).Sandbox
	for _, id := range []string{
		"", "{", "}", `"`, `\`, `",`, "{}", "NULL", "null", x.ID + "," + y.ID, `"` + x.ID + `"`, x.ID + " ", strings.Repeat("a,", 50_000),
		"a\x00b", "\xff\xfe", "ü", "a'b", "$1",
	} {
		_, err := s.Submit(t.Context(), models.Submission{TenantID: "default", SandboxID: id, Jobs: []models.Job{newJob("exec", id)}})
		if !errors.Is(err, models.ErrNotFound) {
			t.Errorf("%.40q: %v, want ErrNotFound", id, err)
		}
		routes, err := s.Routes(t.Context(), []string{id, x.ID})
		if len(id) < 100 && utf8.ValidString(id) && !strings.Contains(id, "\x00") && (err != nil || len(routes) != 1) {
			t.Errorf("%.40q beside a real one: %d routes, %v", id, len(routes), err)
		}
	}
}
