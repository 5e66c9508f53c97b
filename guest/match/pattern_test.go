package match

import (
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestPatternsSelect(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		glob, yes, no string // paths with blanks between them
		hidden        bool
	}{
		{glob: "*.go", yes: "a.go", no: "a.gox dir/a.go .a.go"},
		{glob: "*.go", yes: "a.go .a.go", no: "dir/a.go", hidden: true},
		{glob: ".*", yes: ".a .git", no: "a a/.b"},
		{glob: "a?c", yes: "abc aüc", no: "ac abbc a/c"},
		{glob: "[a-c]x", yes: "ax cx", no: "dx x"},
		{glob: "[!a-c]x", yes: "dx üx", no: "ax"},
		{glob: "[^a]x", yes: "bx", no: "ax"},
		{glob: "[]]x", yes: "]x", no: "[x"},
		{glob: "[x", yes: "[x", no: "x"},
		{glob: "a[&&b]c", yes: "a&c abc", no: "acc"},
		{glob: `a\*b`, yes: "a*b", no: "axb"},
		{glob: "a.b", yes: "a.b", no: "axb"},
		{glob: "{a,b}/c", yes: "a/c b/c", no: "c a/b"},
		{glob: "{a,b{c,d}}", yes: "a bc bd", no: "b c"},
		{glob: "a{,b}", yes: "a ab", no: "b"},
		{glob: "a}", yes: "a}", no: "a"},
		{glob: "**/x", yes: "x a/x a/b/x", no: "a/x/y .a/x"},
		{glob: "**/x", yes: ".a/x", no: "y", hidden: true},
		{glob: "a/**", yes: "a/b a/b/c", no: "a b"},
		{glob: "a/**/b", yes: "a/b a/x/b a/x/y/b", no: "a/x b"},
		{glob: "**/**/x", yes: "x a/x", no: "y"},
		{glob: "./a//b", yes: "a/b", no: "a"},
		{glob: "**", yes: "a a/b", no: ".a"},
	} {
		p, err := Compile(c.glob)
		if err != nil {
			t.Errorf("%s: %v", c.glob, err)
			continue
		}
		for path := range strings.FieldsSeq(c.yes) {
			if !p.Selects(path, c.hidden) {
				t.Errorf("%s does not select %s", c.glob, path)
			}
		}
		for path := range strings.FieldsSeq(c.no) {
			if p.Selects(path, c.hidden) {
				t.Errorf("%s selects %s", c.glob, path)
			}
		}
	}
}

func TestPatternsThatAreRefused(t *testing.T) {
	t.Parallel()
	for glob, why := range map[string]string{
		"":                                      "empty",
		"a/../b":                                "..",
		"{a,b":                                  "not closed",
		".":                                     "matches nothing",
		"[z-a]":                                 "cannot be read",
		strings.Repeat("a", maxPattern+1):       "longer",
		strings.Repeat("{a,b}", 7):              "too many",
		"{" + strings.Repeat("a,", 65) + "a}":   "too many",
		strings.Repeat("{", 100) + "a,b" + "}}": "not closed",
	} {
		if _, err := Compile(glob); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%.40q: %v, want %q", glob, err, why)
		}
	}
}

// TestHostilePatternsEnd: what makes other matchers try every way of many ends here, however it is counted.
func TestHostilePatternsEnd(t *testing.T) {
	t.Parallel()
	done := make(chan bool)
	go func() {
		p, err := Compile(strings.Repeat("**/", 500) + strings.Repeat("*a", 500) + "b")
		done <- err == nil && !p.Selects(strings.Repeat("a/", 500)+strings.Repeat("a", 5000), true)
	}()
	select {
	case right := <-done:
		if !right {
			t.Error("it selects what it should not, or is refused")
		}
	case <-time.After(time.Minute):
		t.Fatal("the pattern is still tried after a minute")
	}
}

func TestSplit(t *testing.T) {
	t.Parallel()
	for glob, want := range map[string][2]string{
		"a/b/*.go":  {"a/b", "*.go"},
		"/etc/*":    {"/etc", "*"},
		"*.go":      {"", "*.go"},
		"a":         {"", "a"},
		"../a/*":    {"../a", "*"},
		"./a/*":     {"a", "*"},
		"a/{b,c}/d": {"a", "{b,c}/d"},
		`a\/b/*`:    {"", `a\/b/*`},
	} {
		if base, rest := Split(glob); base != want[0] || rest != want[1] {
			t.Errorf("%s: %q and %q, want %q", glob, base, rest, want)
		}
	}
}
