package match

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"sandyard/guest/protocol"
)

// found writes matches as LINE:COLUMN text, with the neighbours in brackets.
func found(t *testing.T, r protocol.GrepRequest, text string, b *Budget) (all []string, more bool) {
	t.Helper()
	s, err := NewSearch(r)
	if err != nil {
		t.Fatal(err)
	}
	list, more, err := s.File(strings.NewReader(text), "f", b)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range list {
		line := fmt.Sprintf("%d:%d %s", m.Line, m.Column, m.Text)
		if len(m.Before)+len(m.After) > 0 {
			line += fmt.Sprint(m.Before, m.After)
		}
		all = append(all, line)
	}
	return all, more
}

func TestSearch(t *testing.T) {
	t.Parallel()
	const text = "one\ntwo\r\nOne more\n\nlast one"
	for name, c := range map[string]struct {
		r    protocol.GrepRequest
		want []string
	}{
		"expression":   {protocol.GrepRequest{Pattern: "^o"}, []string{"1:1 one"}},
		"in a line":    {protocol.GrepRequest{Pattern: "one$"}, []string{"1:1 one", "5:6 last one"}},
		"without case": {protocol.GrepRequest{Pattern: "^o", IgnoreCase: true}, []string{"1:1 one", "3:1 One more"}},
		"fixed":        {protocol.GrepRequest{Pattern: "e m", Fixed: true}, []string{"3:3 One more"}},
		"fixed, case":  {protocol.GrepRequest{Pattern: "ONE", Fixed: true, IgnoreCase: true}, []string{"1:1 one", "3:1 One more", "5:6 last one"}},
		"no meaning":   {protocol.GrepRequest{Pattern: "o.e", Fixed: true}, nil},
		"CRLF is gone": {protocol.GrepRequest{Pattern: "two$"}, []string{"2:1 two"}},
		"empty lines":  {protocol.GrepRequest{Pattern: "^$"}, []string{"4:1 "}},
		"neighbours": {
			protocol.GrepRequest{Pattern: "two|last", Context: 1},
			[]string{"2:1 two[one] [One more]", "5:1 last one[] []"},
		},
		"shared neighbours": {
			protocol.GrepRequest{Pattern: "(?i)^one", Context: 1},
			[]string{"1:1 one[] [two]", "3:1 One more[two] []"},
		},
	} {
		if got, more := found(t, c.r, text, &Budget{Matches: 10, Bytes: 1000}); !slices.Equal(got, c.want) || more {
			t.Errorf("%s: %q, want %q; more: %v", name, got, c.want, more)
		}
	}
}

func TestSearchKeepsItsBudget(t *testing.T) {
	t.Parallel()
	r, text := protocol.GrepRequest{Pattern: "x"}, strings.Repeat("x\n", 5)
	b := &Budget{Matches: 3, Bytes: 1000}
	if got, more := found(t, r, text, b); len(got) != 3 || !more || b.Matches != 0 {
		t.Errorf("%q, more: %v, left %+v", got, more, *b)
	}
	if got, more := found(t, r, "y\n", b); len(got) != 0 || more {
		t.Errorf("a file without a match with nothing left: %q, more: %v", got, more)
	}
	if got, more := found(t, r, text, &Budget{Matches: 5, Bytes: 3}); len(got) != 2 || !more {
		t.Errorf("three bytes of lines and paths: %q, more: %v", got, more)
	}
	if got, more := found(t, r, text, &Budget{Matches: 5, Bytes: 1000}); len(got) != 5 || more {
		t.Errorf("just enough: %q, more: %v", got, more)
	}
}

func TestLongAndBinaryLines(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("ü", 1000) + "here" + strings.Repeat("é", 1000)
	s, err := NewSearch(protocol.GrepRequest{Pattern: "here"})
	if err != nil {
		t.Fatal(err)
	}
	list, _, err := s.File(strings.NewReader(long), "f", &Budget{Matches: 1, Bytes: 1000})
	if err != nil || len(list) != 1 || !list[0].Clipped || !strings.Contains(list[0].Text, "ühereé") ||
		len(list[0].Text) > maxShown+8 || strings.Contains(list[0].Text, "\uFFFD") || list[0].Column != 2001 {
		t.Errorf("a long line is shown as %+v: %v", list, err)
	}
	beyond := strings.Repeat("a", maxLine) + "here\nhere\n"
	list, _, err = s.File(strings.NewReader(beyond), "f", &Budget{Matches: 5, Bytes: 10_000})
	if err != nil || len(list) != 1 || list[0].Line != 2 {
		t.Errorf("behind what is searched of a line: %+v, %v", list, err)
	}
	for name, text := range map[string]string{
		"at once": "a\x00b\nhere\n", "later": "here\n\x00\n", "in a long line": strings.Repeat("a", 2*maxLine) + "\x00\n",
	} {
		if _, _, err := s.File(strings.NewReader(text), "f", &Budget{Matches: 5, Bytes: 100}); !errors.Is(err, ErrBinary) {
			t.Errorf("NUL %s: %v", name, err)
		}
	}
	list, _, err = s.File(strings.NewReader("\xffhere\n"), "f", &Budget{Matches: 5, Bytes: 100})
	if err != nil || len(list) != 1 || list[0].Text != "\uFFFDhere" {
		t.Errorf("bytes that are no UTF-8: %+v, %v", list, err)
	}
}

func TestSearchesThatAreRefused(t *testing.T) {
	t.Parallel()
	for name, r := range map[string]protocol.GrepRequest{
		"empty": {}, "long": {Pattern: strings.Repeat("a", maxPattern+1)}, "no expression": {Pattern: "("},
	} {
		if _, err := NewSearch(r); err == nil {
			t.Errorf("%s is taken", name)
		}
	}
}

func TestReplace(t *testing.T) {
	t.Parallel()
	edit := func(from, to string) protocol.Edit { return protocol.Edit{Old: []byte(from), New: []byte(to)} }
	all, two := edit("a", "b"), edit("a", "b")
	all.All, two.Count = true, 2
	for name, c := range map[string]struct {
		content string
		edits   []protocol.Edit
		want    string // what comes of it, or a part of the error
		fails   bool
	}{
		"once":             {"xay", []protocol.Edit{edit("a", "b")}, "xby", false},
		"removed":          {"xay", []protocol.Edit{edit("a", "")}, "xy", false},
		"in turn":          {"a", []protocol.Edit{edit("a", "bc"), edit("c", "a")}, "ba", false},
		"all":              {"aXaXa", []protocol.Edit{all}, "bXbXb", false},
		"so many":          {"aa", []protocol.Edit{two}, "bb", false},
		"not so many":      {"aaa", []protocol.Edit{two}, "occurs 3 times (line 1, 1, 1), not 2", true},
		"too often":        {"a\na\n", []protocol.Edit{edit("a", "b")}, "occurs 2 times (line 1, 2)", true},
		"very often":       {strings.Repeat("a\n", 9), []protocol.Edit{edit("a", "b")}, "(line 1, 2, 3, 4, 5 and others)", true},
		"not at all":       {"x", []protocol.Edit{edit("a", "b")}, "does not occur; read", true},
		"other line ends":  {"a\r\nb", []protocol.Edit{edit("a\nb", "c")}, "line ends", true},
		"white space":      {"a", []protocol.Edit{edit(" a ", "c")}, "without the white space", true},
		"empty":            {"a", []protocol.Edit{edit("", "c")}, "is empty", true},
		"the same":         {"a", []protocol.Edit{edit("a", "a")}, "are the same", true},
		"second one fails": {"a", []protocol.Edit{edit("a", "b"), edit("a", "c")}, "edit 2 of 'f'", true},
		"too large":        {strings.Repeat("a", 1<<20), []protocol.Edit{{Old: []byte("a"), New: []byte(strings.Repeat("b", 17)), All: true}}, "large", true},
	} {
		before := c.content
		content := []byte(c.content)
		got, _, err := Replace(content, c.edits, "f")
		switch {
		case string(content) != before:
			t.Errorf("%s: the content was changed", name)
		case c.fails && (err == nil || got != nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: %q, %v; want %q", name, got, err, c.want)
		case !c.fails && (err != nil || string(got) != c.want):
			t.Errorf("%s: %q, %v; want %q", name, got, err, c.want)
		}
	}
}
