package toolset

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"sandyard/providers/codecontext"
)

func TestArgumentsThatAToolRefuses(t *testing.T) {
	t.Parallel()
	about := Describe[fileReadArgs]("file_read", "", Reads)
	for given, want := range map[string]string{
		`{}`:                               "file is missing; file_read requires file",
		``:                                 "file is missing",
		`null`:                             "file is missing",
		`{"file": null}`:                   "file is missing",
		`[1]`:                              "arguments must be a JSON object",
		`{"file": 7}`:                      "file must be a string, not a JSON number",
		`{"file": "a", "start_line": 1.5}`: "start_line must be a whole number",
		`{"file": "a", "path": "b"}`:       "path is not an argument of file_read, which takes file, start_line, end_line",
	} {
		err := Read(about, json.RawMessage(given), &fileReadArgs{})
		if own := (*Error)(nil); !errors.As(err, &own) || own.Code != "invalid_request" ||
			!strings.Contains(own.Text, want) {
			t.Errorf("%s: %v, want %q", given, err, want)
		}
	}
	var got fileReadArgs
	if err := Read(about, json.RawMessage(`{"file": "a", "end_line": 2}`), &got); err != nil || got.File != "a" ||
		*got.EndLine != 2 {
		t.Errorf("read %+v, %v", got, err)
	}
}

func TestToolsHaveOneNameAndOneSchemaEach(t *testing.T) {
	t.Parallel()
	var names []string
	for _, set := range Sets() {
		for _, tool := range set.Tools {
			names = append(names, tool.About.Name)
			if raw, err := json.Marshal(tool.About.InputSchema); err != nil ||
				!strings.Contains(string(raw), `"type":"object"`) {
				t.Errorf("%s: %s, %v", tool.About.Name, raw, err)
			}
			if tool.About.Annotations.ReadOnlyHint && *tool.About.Annotations.DestructiveHint ||
				tool.About.Description == "" {
				t.Errorf("%s: %+v", tool.About.Name, tool.About)
			}
		}
	}
	slices.Sort(names)
	if n := len(slices.Compact(slices.Clone(names))); n != len(names) {
		t.Errorf("of %d names %d are different: %v", len(names), n, names)
	}
}

// TestPiecesMakeTheWholeOutput reads an output piece by piece: letters are not cut, and no byte comes twice.
func TestPiecesMakeTheWholeOutput(t *testing.T) {
	t.Parallel()
	whole := strings.Repeat("äß€😀x", 9000)
	got, from := "", Cursor{}
	for n := 1; ; n++ {
		r := Ran{}
		end := min(len(whole), int(from[0])+MaxHead)
		r.Fill(
			from,
			Piece{Begin: from[0], Total: int64(len(whole)), Data: []byte(whole)[from[0]:end], Last: end == len(whole)},
			Piece{Last: true},
		)
		got += r.Stdout
		next, err := ReadCursor(r.Cursor)
		if err != nil || n > 20 {
			t.Fatalf("cursor %q after %d pieces: %v", r.Cursor, n, err)
		}
		if from = next; !r.More {
			break
		}
	}
	if got != whole {
		t.Errorf("%d bytes of %d", len(got), len(whole))
	}
	for _, bad := range []string{"9", "a.b", "-1.0", "1.2.3"} {
		if _, err := ReadCursor(bad); err == nil {
			t.Errorf("cursor %q is taken", bad)
		}
	}
}

func TestPicturesOfACellHaveABound(t *testing.T) {
	t.Parallel()
	picture := json.RawMessage(`"` + strings.Repeat("AAAA", MaxImage/8) + `"`)
	shown := []codecontext.Result{
		{Data: map[string]json.RawMessage{"image/png": picture}},
		{Data: map[string]json.RawMessage{"image/png": picture}},
	}
	shown = append(shown, codecontext.Result{Data: map[string]json.RawMessage{"image/png": picture}})
	if a := (Cell{Results: shown}).Answer(&Ran{}); len(a.Images) != 2 ||
		!strings.Contains(a.Text, "too large for the answer") {
		t.Errorf("%d pictures, %.200q", len(a.Images), a.Text)
	}
}
