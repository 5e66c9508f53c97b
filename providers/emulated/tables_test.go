package emulated_test

import (
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"sandyard/providers"
	"sandyard/providers/emulated"
	"sandyard/providers/fake"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// filesAlone is a sandbox without file tools of its own.
type filesAlone struct{ providers.Sandbox }

// over returns the emulated tools of a sandbox with these files.
func over(t *testing.T, files map[string]string) (providers.FileTools, providers.Sandbox) {
	t.Helper()
	p := fake.New(fake.Options{})
	t.Cleanup(func() { must(t, p.Close()) })
	_, err := p.Create(t.Context(), providers.Spec{ID: "box", Image: "fake"})
	must(t, err)
	box, err := p.Open(t.Context(), "box")
	must(t, err)
	for name, text := range files {
		_, err := box.WriteFile(t.Context(), name, []byte(text), 0)
		must(t, err)
	}
	return emulated.Tools(filesAlone{box}), box
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// base is the work directory of the fake's sandboxes.
func base(t *testing.T, box providers.Sandbox) string {
	t.Helper()
	info, err := box.Stat(t.Context(), ".")
	must(t, err)
	return info.Path + "/"
}

func tree() map[string]string {
	return map[string]string{
		"a.go": "package a\nfunc A() {}\n", "b.txt": "func in text\n", "sub/c.go": "func C() {}\nfunc D() {}\n",
		"sub/deep/d.go": "var d\n", ".hidden/e.go": "func E() {}\n", "binary": "func\x00\n",
	}
}

func TestGlob(t *testing.T) {
	t.Parallel()
	tools, box := over(t, tree())
	for pattern, want := range map[string]string{
		"*.go": "a.go", "**/*.go": "a.go sub/c.go sub/deep/d.go", "sub/*": "sub/c.go sub/deep", "none/*": "", "*.{txt,go}": "a.go b.txt",
	} {
		found, err := tools.Glob(t.Context(), providers.Glob{Path: ".", Pattern: pattern, Limit: 100})
		var names []string
		for _, e := range found.Entries {
			names = append(names, strings.TrimPrefix(e.Path, base(t, box)))
		}
		if got := strings.Join(names, " "); err != nil || got != want || found.Truncated {
			t.Errorf("%s: got %q, %v, want %q", pattern, got, err, want)
		}
	}
	found, err := tools.Glob(t.Context(), providers.Glob{Path: ".", Pattern: "**/*.go", Limit: 2})
	if err != nil || len(found.Entries) != 2 || !found.Truncated {
		t.Errorf("two of three: got %+v, %v", found, err)
	}
	found, err = tools.Glob(t.Context(), providers.Glob{Path: ".", Pattern: "**/e.go", Hidden: true, Limit: 9})
	if err != nil || len(found.Entries) != 1 {
		t.Errorf("hidden: got %+v, %v", found, err)
	}
	if _, err := tools.Glob(t.Context(), providers.Glob{Path: "nowhere", Pattern: "*", Limit: 1}); err == nil {
		t.Error("a directory that is not there has entries")
	}
}

func TestGrep(t *testing.T) {
	t.Parallel()
	tools, box := over(t, tree())
	for _, c := range []struct {
		grep   providers.Grep
		want   string
		binary int
	}{
		{providers.Grep{Pattern: `func \w`}, "a.go:2 b.txt:1 sub/c.go:1 sub/c.go:2", 1},
		{providers.Grep{Pattern: `func \w`, Include: "*.go"}, "a.go:2 sub/c.go:1 sub/c.go:2", 0},
		{providers.Grep{Pattern: `func \w`, Include: "sub/*.go"}, "sub/c.go:1 sub/c.go:2", 0},
		{providers.Grep{Pattern: "A()", Fixed: true}, "a.go:2", 1},
		{providers.Grep{Pattern: "FUNC c", IgnoreCase: true}, "sub/c.go:1", 1},
		{providers.Grep{Pattern: "func", Path: "sub/c.go"}, "sub/c.go:1 sub/c.go:2", 0},
	} {
		if c.grep.Limit = 100; c.grep.Path == "" {
			c.grep.Path = "."
		}
		found, err := tools.Grep(t.Context(), c.grep)
		var places []string
		for _, m := range found.Matches {
			places = append(places, strings.TrimPrefix(m.Path, base(t, box))+":"+string(rune('0'+m.Line)))
		}
		if got := strings.Join(places, " "); err != nil || got != c.want || found.Binary != c.binary {
			t.Errorf("%+v: got %q, %d binary, %v, want %q, %d", c.grep, got, found.Binary, err, c.want, c.binary)
		}
	}
	if _, err := tools.Grep(t.Context(), providers.Grep{Path: ".", Pattern: "(", Limit: 1}); providers.AsError(err).Class != providers.Invalid {
		t.Errorf("a pattern that is none: %v", err)
	}
}

// TestEditOnce: an edit that is tried again under its name is made once, and says what it did.
func TestEditOnce(t *testing.T) {
	t.Parallel()
	tools, box := over(t, map[string]string{"f": "one one two"})
	edit := providers.Edit{Name: "job", Path: "f", Edits: []providers.Replacement{
		{Old: []byte("one"), New: []byte("one more"), All: true},
	}}
	for range 2 {
		done, err := tools.Edit(t.Context(), edit)
		if err != nil || !slices.Equal(done.Replaced, []int{2}) {
			t.Errorf("got %+v, %v", done, err)
		}
		if text, err := box.ReadFile(t.Context(), "f", 100); string(text) != "one more one more two" {
			t.Errorf("the file is %q, %v", text, err)
		}
	}
	for class, r := range map[providers.Class]providers.Replacement{
		providers.NoMatch: {Old: []byte("three")}, providers.Ambiguous: {Old: []byte("more")},
	} {
		_, err := tools.Edit(t.Context(), providers.Edit{Path: "f", Edits: []providers.Replacement{r}})
		if providers.AsError(err).Class != class {
			t.Errorf("%s: got %v", class, err)
		}
	}
}

// TestOneFileOfMany: what is wrong with one file does not keep the others.
func TestOneFileOfMany(t *testing.T) {
	t.Parallel()
	tools, _ := over(t, map[string]string{"f": "text"})
	read, err := tools.ReadFiles(t.Context(), []string{"f", "none", "f"}, 100)
	if err != nil || len(read) != 3 || string(read[0].Data) != "text" || string(read[2].Data) != "text" ||
		read[1].Err == nil || read[1].Err.Class != providers.FileNotFound {
		t.Errorf("got %+v, %v", read, err)
	}
	read, err = tools.ReadFiles(t.Context(), []string{"f", "f"}, 5)
	if err != nil || read[0].Err != nil || read[1].Err == nil || read[1].Err.Class != providers.TooLarge {
		t.Errorf("more than the limit: got %+v, %v", read, err)
	}
	wrote, err := tools.WriteFiles(t.Context(), []providers.FileWrite{{Path: "f/g"}, {Path: "h", Data: []byte("x")}})
	if err != nil || wrote[0].Err == nil || wrote[1].Err != nil || wrote[1].File.Size != 1 {
		t.Errorf("got %+v, %v", wrote, err)
	}
}
