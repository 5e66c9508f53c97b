package house

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

const (
	middleSentence  = 25 // words, of the median of a page's paragraphs and list items
	longestSentence = 30 // words, also in the cells of tables
)

// TestSentencesAreShort counts the words of every sentence of every document. What the code says of its variables and
// options, which two tables repeat, may be longer.
func TestSentencesAreShort(t *testing.T) {
	t.Parallel()
	counted := 0
	for _, p := range pages(t) {
		prose, cells := texts(p)
		if p.path == configuration || p.path == commandLine {
			cells = nil
		}
		for _, s := range sentences(append(cells, prose...)) {
			counted++
			if n := len(strings.Fields(s)); n > longestSentence {
				t.Errorf("%s has a sentence of %d words, at most %d are good: %s", p.path, n, longestSentence, s)
			}
		}
		var lengths []int
		for _, s := range sentences(prose) {
			lengths = append(lengths, len(strings.Fields(s)))
		}
		slices.Sort(lengths)
		if n := len(lengths); n > 0 && lengths[(n-1)/2] > middleSentence {
			t.Errorf("%s: half of the sentences have %d words or more, at most %d are good", p.path, lengths[(n-1)/2], middleSentence)
		}
	}
	if counted < 3000 {
		t.Errorf("only %d sentences were found", counted)
	}
}

// sentences are those of some texts. What stands between backticks, and where a link leads, counts as one word.
func sentences(all []string) []string {
	code, link := regexp.MustCompile("`[^`]*`"), regexp.MustCompile(`\]\([^)]*\)`)
	ends := regexp.MustCompile(`[.!?]["*)]*\s+`)
	var found []string
	for _, text := range all {
		text = link.ReplaceAllString(code.ReplaceAllString(text, "X"), "]")
		from := 0
		for _, end := range ends.FindAllStringIndex(text, -1) {
			if next := text[end[1]:]; next != "" && strings.ContainsAny(next[:1], "abcdefghijklmnopqrstuvwxyz") {
				continue // after an abbreviation
			}
			found = append(found, text[from:end[1]])
			from = end[1]
		}
		found = append(found, text[from:])
	}
	return found
}

// texts are the paragraphs and list items of a page, and the cells of its tables, a line each.
func texts(p page) (prose, cells []string) {
	item := regexp.MustCompile(`^\s*([-*]|\d+\.) `)
	var lines []string
	end := func() {
		if len(lines) > 0 {
			prose = append(prose, strings.Join(lines, " "))
		}
		lines = nil
	}
	block := false
	for _, line := range p.lines {
		switch {
		case strings.HasPrefix(line, "```"):
			block = !block
			end()
		case block || strings.HasPrefix(line, "    "), strings.TrimSpace(line) == "", strings.HasPrefix(line, "#"):
			end()
		case strings.HasPrefix(line, "|"):
			end()
			cells = append(cells, strings.Split(strings.Trim(line, "| "), " | ")...)
		case item.MatchString(line):
			end()
			lines = append(lines, item.ReplaceAllString(line, ""))
		default:
			lines = append(lines, line)
		}
	}
	end()
	return prose, cells
}
