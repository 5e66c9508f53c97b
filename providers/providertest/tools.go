package providertest

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"sandyard/providers"
	"sandyard/providers/emulated"
	"sandyard/providers/providertest/fixture"
)

// tools checks the file tools, each case in a folder of its own.
func tools(t *testing.T, s *fixture.Suite) {
	if s.Caps.Files == providers.Unsupported {
		t.Skip("skipped: the provider declares files unsupported")
	}
	r := s.NewRoom(t)
	_, own := r.Sandbox.(providers.FileTools)
	if native := s.Caps.FileTools == providers.Native; native != own {
		t.Errorf("file tools are declared %s; implemented: %v", s.Caps.FileTools, own)
	}
	t.Run("edit", func(t *testing.T) { t.Parallel(); edit(t, r) })
	t.Run("edit refused", func(t *testing.T) { t.Parallel(); editRefused(t, r) })
	t.Run("edit made once", func(t *testing.T) { t.Parallel(); editOnce(t, s) })
	t.Run("glob", func(t *testing.T) { t.Parallel(); glob(t, r) })
	t.Run("grep", func(t *testing.T) { t.Parallel(); grep(t, r) })
	t.Run("grep shows little of much", func(t *testing.T) { t.Parallel(); grepBounds(t, r) })
	t.Run("many files", func(t *testing.T) { t.Parallel(); manyFiles(t, r) })
}

func toolsOf(r fixture.Room) providers.FileTools { return emulated.Tools(r.Sandbox) }

func replace(old, with string) providers.Replacement {
	return providers.Replacement{Old: []byte(old), New: []byte(with)}
}

func edit(t *testing.T, r fixture.Room) {
	all := func(e providers.Replacement) providers.Replacement { e.All = true; return e }
	times := func(n int, e providers.Replacement) providers.Replacement { e.Count = n; return e }
	for name, c := range map[string]struct {
		content string
		edits   []providers.Replacement
		want    string
		times   []int
	}{
		"once":    {"a b c", []providers.Replacement{replace("b", "B")}, "a B c", []int{1}},
		"counted": {"x y x", []providers.Replacement{times(2, replace("x", "zz"))}, "zz y zz", []int{2}},
		"all":     {"x y x", []providers.Replacement{all(replace("x", ""))}, " y ", []int{2}},
		"in turn": {
			"one",
			[]providers.Replacement{replace("one", "two two"), times(2, replace("two", "3"))},
			"3 3",
			[]int{1, 2},
		},
		"not in itself": {"aaaa", []providers.Replacement{times(2, replace("aa", "aaa"))}, "aaaaaa", []int{2}},
		"lines":         {"a\r\nb\r\nc", []providers.Replacement{replace("a\r\nb", "x\ny")}, "x\ny\r\nc", []int{1}},
		"bytes": {
			"\x00\xff\xfe ü\x00",
			[]providers.Replacement{replace("\xff\xfe", "\xfe\x00\xff")},
			"\x00\xfe\x00\xff ü\x00",
			[]int{1},
		},
		"to nothing": {"gone", []providers.Replacement{replace("gone", "")}, "", []int{1}},
	} {
		path := "edit/" + name
		if _, err := r.WriteFile(fixture.Within(t), path, []byte(c.content), 0o750); err != nil {
			t.Fatal(err)
		}
		got, err := toolsOf(r).Edit(fixture.Within(t), providers.Edit{Name: fixture.NewID(t), Path: path, Edits: c.edits})
		if err != nil || !slices.Equal(got.Replaced, c.times) || got.File.Size != int64(len(c.want)) ||
			got.File.Mode != "0750" ||
			got.File.Path != "/workspace/"+path {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
		fixture.WantFile(t, r, path, c.want)
	}
	if left := fixture.Paths(t, r, "edit", 1); len(left) != 8 {
		t.Errorf("the folder holds %v", left)
	}
}

func editRefused(t *testing.T, r fixture.Room) {
	const content = "one\ntwo\ntwo\r\n"
	fixture.MustWrite(t, r, "refused/f", content)
	times := replace("two", "2")
	times.Count = 3
	for name, c := range map[string]struct {
		edits []providers.Replacement
		class providers.Class
		says  string
	}{
		"absent":          {[]providers.Replacement{replace("three", "3")}, providers.NoMatch, "edit 1"},
		"second absent":   {[]providers.Replacement{replace("one", "1"), replace("one", "1")}, providers.NoMatch, "edit 2"},
		"ambiguous":       {[]providers.Replacement{replace("two", "2")}, providers.Ambiguous, "2 times (line 2, 3)"},
		"another number":  {[]providers.Replacement{times}, providers.Ambiguous, "2 times (line 2, 3), not 3"},
		"other line ends": {[]providers.Replacement{replace("two\r\ntwo", "2")}, providers.NoMatch, "line ends"},
		"other space":     {[]providers.Replacement{replace("  one", "2")}, providers.NoMatch, "white space"},
		"empty":           {[]providers.Replacement{replace("", "2")}, providers.Invalid, "empty"},
		"no change":       {[]providers.Replacement{replace("one", "one")}, providers.Invalid, "the same"},
	} {
		_, err := toolsOf(
			r,
		).Edit(fixture.Within(t), providers.Edit{Name: fixture.NewID(t), Path: "refused/f", Edits: c.edits})
		fixture.WantClass(t, err, c.class)
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v does not say %q", name, err, c.says)
		}
	}
	fixture.WantFile(t, r, "refused/f", content)
	for path, class := range map[string]providers.Class{
		"refused/none": providers.FileNotFound,
		"refused":      providers.NotAFile,
	} {
		_, err := toolsOf(
			r,
		).Edit(fixture.Within(t), providers.Edit{
			Name: fixture.NewID(t), Path: path,
			Edits: []providers.Replacement{replace("a", "b")},
		})
		fixture.WantClass(t, err, class)
	}
}

// editOnce repeats an edit, as a worker does that does not know whether the first one was made.
func editOnce(t *testing.T, s *fixture.Suite) {
	r := s.NewRoom(t)
	fixture.MustWrite(t, r, "once/f", "a")
	e := providers.Edit{Name: fixture.NewID(t), Path: "once/f", Edits: []providers.Replacement{replace("a", "aa")}}
	again := func(box providers.Sandbox) {
		got, err := emulated.Tools(box).Edit(fixture.Within(t), e)
		if err != nil || !slices.Equal(got.Replaced, []int{1}) || got.File.Size != 2 {
			t.Errorf("%+v, %v", got, err)
		}
	}
	again(r.Sandbox)
	again(r.Sandbox)
	again(fixture.MustOpen(t, s.Open(t), r.ID))
	back := fixture.MustOpen(t, r.Worker, r.ID)
	fixture.WantFile(t, back, "once/f", "aa")
	e.Name, e.Edits[0].Count = fixture.NewID(t), 2
	if _, err := emulated.Tools(back).Edit(fixture.Within(t), e); err != nil {
		t.Errorf("another edit: %v", err)
	}
	fixture.WantFile(t, back, "once/f", "aaaa")
}

func glob(t *testing.T, r fixture.Room) {
	for _, f := range []string{
		"a.py", "b.txt", "sub/c.py", "sub/deep/d.py", "sub.py/e", ".hidden/f.py", "sub/.g.py",
		"sub/ü 1.txt", "[x].txt",
	} {
		fixture.MustWrite(t, r, "glob/"+f, "x")
	}
	for _, c := range []struct {
		glob providers.Glob
		want string
	}{
		{providers.Glob{Pattern: "*.py"}, "a.py sub.py"},
		{providers.Glob{Pattern: "**/*.py"}, "a.py sub.py sub/c.py sub/deep/d.py"},
		{providers.Glob{Pattern: "**/*.py", Hidden: true}, ".hidden/f.py a.py sub.py sub/.g.py sub/c.py sub/deep/d.py"},
		{providers.Glob{Pattern: "**/.*"}, ".hidden sub/.g.py"},
		{providers.Glob{Pattern: ".hidden/*"}, ".hidden/f.py"},
		{providers.Glob{Pattern: "sub/**"}, "sub/c.py sub/deep sub/deep/d.py sub/ü 1.txt"},
		{providers.Glob{Pattern: "**/deep/**/*.py"}, "sub/deep/d.py"},
		{providers.Glob{Pattern: "*/c.py"}, "sub/c.py"},
		{providers.Glob{Pattern: "{a,b}.{py,txt}"}, "a.py b.txt"},
		{providers.Glob{Pattern: "sub{,/deep}/?.py"}, "sub/c.py sub/deep/d.py"},
		{providers.Glob{Pattern: "[a-b].*"}, "a.py b.txt"},
		{providers.Glob{Pattern: "[!a].*"}, "b.txt"},
		{providers.Glob{Pattern: `\[x\].txt`}, "[x].txt"},
		{providers.Glob{Pattern: "sub/ü*"}, "sub/ü 1.txt"},
		{providers.Glob{Pattern: "./sub/../*.txt"}, "[x].txt b.txt"},
		{providers.Glob{Pattern: "/workspace/glob/sub/*.py"}, "sub/c.py"},
		{providers.Glob{Pattern: "a.py"}, "a.py"},
		{providers.Glob{Pattern: "none/*"}, ""},
		{providers.Glob{Pattern: "a.py/*"}, ""},
		{providers.Glob{Pattern: "**/*.py", Limit: 2}, "a.py sub.py …"},
		{providers.Glob{Pattern: "**/*.py", Limit: 4}, "a.py sub.py sub/c.py sub/deep/d.py"},
	} {
		c.glob.Path = "glob"
		if c.glob.Limit == 0 {
			c.glob.Limit = 100
		}
		got, err := toolsOf(r).Glob(fixture.Within(t), c.glob)
		if text := globbed(got); err != nil || text != c.want {
			t.Errorf("%+v: %q, %v; want %q", c.glob, text, err, c.want)
		}
	}
	for pattern, class := range map[string]providers.Class{
		"": providers.Invalid, "{a": providers.Invalid,
		"*/../..": providers.Invalid, "[z-a]": providers.Invalid, "../../*": providers.InvalidPath,
		"/etc/*": providers.InvalidPath,
	} {
		_, err := toolsOf(r).Glob(fixture.Within(t), providers.Glob{Path: "glob", Pattern: pattern, Limit: 10})
		fixture.WantClass(t, err, class)
	}
	_, err := toolsOf(r).Glob(fixture.Within(t), providers.Glob{Path: "none", Pattern: "*", Limit: 10})
	fixture.WantClass(t, err, providers.FileNotFound)
}

func globbed(g providers.Globbed) string {
	var names []string
	for _, e := range g.Entries {
		names = append(names, strings.TrimPrefix(e.Path, "/workspace/glob/"))
	}
	if g.Truncated {
		names = append(names, "…")
	}
	return strings.Join(names, " ")
}

func grep(t *testing.T, r fixture.Room) {
	for path, content := range map[string]string{
		"a.go": "func a() {\n\treturn\n}\n", "b.txt": "Return\r\nnothing\r\nreturn it", "sub/c.go": "// a.b\n",
		".h/d.go": "return", "bin": "return\x00return\n",
		"late": strings.Repeat("return\n", 50) + "\x00", "latin": "caf\xe9 return\n",
	} {
		fixture.MustWrite(t, r, "grep/"+path, content)
	}
	for _, c := range []struct {
		grep providers.Grep
		want string
	}{
		{providers.Grep{Pattern: "return"}, "a.go:2:2:\treturn b.txt:3:1:return it latin:1:6:caf\uFFFD return"},
		{providers.Grep{Pattern: "RETURN", IgnoreCase: true, Include: "*.txt"}, "b.txt:1:1:Return b.txt:3:1:return it"},
		{providers.Grep{Pattern: "^return", Include: "*.txt"}, "b.txt:3:1:return it"},
		{providers.Grep{Pattern: "nothing$"}, "b.txt:2:1:nothing"},
		{providers.Grep{Pattern: `a\.b|func (\w+)\(`, Include: "**/*.go"}, "a.go:1:1:func a() { sub/c.go:1:4:// a.b"},
		{providers.Grep{Pattern: "a.b", Fixed: true}, "sub/c.go:1:4:// a.b"},
		{providers.Grep{Pattern: "A.B", Fixed: true, IgnoreCase: true}, "sub/c.go:1:4:// a.b"},
		{providers.Grep{Pattern: "return", Hidden: true, Include: "*.go"}, ".h/d.go:1:1:return a.go:2:2:\treturn"},
		{providers.Grep{Pattern: "a", Include: "sub/*"}, "sub/c.go:1:4:// a.b"},
		{providers.Grep{Pattern: "return", Path: "grep/b.txt"}, "b.txt:3:1:return it"},
		{providers.Grep{Pattern: "return", Include: "a.*", Context: 1}, "a.go:2:2:[func a() {]\treturn[}]"},
		{providers.Grep{Pattern: "t", Limit: 2, Include: "*.txt"}, "b.txt:1:3:Return b.txt:2:3:nothing …"},
		{providers.Grep{Pattern: "nowhere"}, ""},
	} {
		if c.grep.Path == "" {
			c.grep.Path = "grep"
		}
		if c.grep.Limit == 0 {
			c.grep.Limit = 100
		}
		got, err := toolsOf(r).Grep(fixture.Within(t), c.grep)
		if text := grepped(got); err != nil || text != c.want {
			t.Errorf("%+v: %q, %v; want %q", c.grep, text, err, c.want)
		}
		if c.grep.Pattern == "return" && c.grep.Path == "grep" && c.grep.Include == "" &&
			(got.Binary != 2 || got.Searched != 4) {
			t.Errorf("searched %d, passed over %d binary files", got.Searched, got.Binary)
		}
	}
	for pattern, class := range map[string]providers.Class{"": providers.Invalid, "(": providers.Invalid, `(a)\1`: providers.Invalid} {
		_, err := toolsOf(r).Grep(fixture.Within(t), providers.Grep{Path: "grep", Pattern: pattern, Limit: 10})
		fixture.WantClass(t, err, class)
	}
	_, err := toolsOf(r).Grep(fixture.Within(t), providers.Grep{Path: "none", Pattern: "a", Limit: 10})
	fixture.WantClass(t, err, providers.FileNotFound)
}

func grepped(g providers.Grepped) string {
	var found []string
	for _, m := range g.Matches {
		text := m.Text
		if len(m.Before)+len(m.After) > 0 {
			text = fmt.Sprint(m.Before) + text + fmt.Sprint(m.After)
		}
		found = append(
			found,
			fmt.Sprintf("%s:%d:%d:%s", strings.TrimPrefix(m.Path, "/workspace/grep/"), m.Line, m.Column, text),
		)
	}
	if g.Truncated {
		found = append(found, "…")
	}
	return strings.Join(found, " ")
}

// grepBounds searches a line of 2 MiB, and more lines than an answer can hold.
func grepBounds(t *testing.T, r fixture.Room) {
	long := bytes.Repeat([]byte("ü"), 1<<20)
	copy(long[1<<19:], "needle")
	if _, err := r.WriteFile(fixture.Within(t), "bounds/long", append(long, "\nneedle"...), 0); err != nil {
		t.Fatal(err)
	}
	got, err := toolsOf(r).Grep(fixture.Within(t), providers.Grep{Path: "bounds", Pattern: "needle", Limit: 10})
	if err != nil || len(got.Matches) != 2 {
		t.Fatalf("%+v, %v", got, err)
	}
	if m := got.Matches[0]; !m.Clipped || m.Column != 1<<19+1 || len(m.Text) > 500 ||
		!strings.Contains(m.Text, "needle") ||
		strings.Contains(m.Text, "\uFFFD") {
		t.Errorf("the long line is shown as %+v", m)
	}
	if m := got.Matches[1]; m.Clipped || m.Text != "needle" || m.Line != 2 {
		t.Errorf("the line behind it is shown as %+v", m)
	}
	fixture.MustWrite(t, r, "bounds/many", strings.Repeat(strings.Repeat("needle ", 50)+"\n", 10_000))
	got, err = toolsOf(
		r,
	).Grep(fixture.Within(t), providers.Grep{Path: "bounds/many", Pattern: "needle", Limit: 10_000, Context: 20})
	if err != nil || !got.Truncated || len(got.Matches) == 0 || len(got.Matches) > 1000 {
		t.Errorf("%d matches, truncated %v, %v", len(got.Matches), got.Truncated, err)
	}
}

func manyFiles(t *testing.T, r fixture.Room) {
	fixture.MustWrite(t, r, "many/dir/f", "x")
	files := []providers.FileWrite{
		{Path: "many/empty"},
		{Path: "many/dir", Data: []byte("in the way")},
		{Path: "many/ü/日\n本 語", Data: fixture.Pattern(1 << 16), Mode: 0o711},
		{Path: "../outside", Data: []byte("x")},
		{Path: "", Data: []byte("x")},
		{Path: "many/dir/f/below a file", Data: []byte("x")},
		{Path: "many/--boundary\r\n", Data: []byte("\r\n--boundary--\r\n")},
	}
	want := []providers.Class{
		"",
		providers.NotAFile,
		"",
		providers.InvalidPath,
		providers.InvalidPath,
		providers.NotADir,
		"",
	}
	written, err := toolsOf(r).WriteFiles(fixture.Within(t), files)
	if err != nil || len(written) != len(files) {
		t.Fatalf("%+v, %v", written, err)
	}
	var paths []string
	for i, w := range written {
		paths = append(paths, files[i].Path)
		if want[i] != "" {
			fixture.WantClass(t, asError(w.Err), want[i])
		} else if w.Err != nil || w.File.Size != int64(len(files[i].Data)) || w.File.Path != "/workspace/"+files[i].Path {
			t.Errorf("%q: %+v", files[i].Path, w)
		}
	}
	if written[2].File.Mode != "0711" || written[0].File.Mode != "0644" {
		t.Errorf("modes %s and %s", written[2].File.Mode, written[0].File.Mode)
	}
	want[5] = providers.NotADir
	read, err := toolsOf(r).ReadFiles(fixture.Within(t), append(paths, "many/none", "many/dir/f"), 1<<20)
	if err != nil || len(read) != len(files)+2 {
		t.Fatalf("%d read, %v", len(read), err)
	}
	for i, got := range read[:len(files)] {
		switch {
		case i == 5:
			fixture.WantClass(t, asError(got.Err), providers.NotADir, providers.FileNotFound)
		case want[i] != "":
			fixture.WantClass(t, asError(got.Err), want[i])
		case got.Err != nil || !bytes.Equal(got.Data, files[i].Data):
			t.Errorf("%q: %d bytes, %v", files[i].Path, len(got.Data), got.Err)
		}
	}
	fixture.WantClass(t, asError(read[7].Err), providers.FileNotFound)
	if string(read[8].Data) != "x" {
		t.Errorf("after all errors: %+v", read[8])
	}
	read, err = toolsOf(r).ReadFiles(fixture.Within(t), []string{paths[2], paths[2], "many/dir/f"}, 1<<16+1)
	if err != nil || len(read) != 3 || read[0].Err != nil || string(read[2].Data) != "x" {
		t.Fatalf("%d read, %v", len(read), err)
	}
	fixture.WantClass(t, asError(read[1].Err), providers.TooLarge)
}

// asError keeps a nil *providers.Error from becoming an error.
func asError(e *providers.Error) error {
	if e == nil {
		return nil
	}
	return e
}
