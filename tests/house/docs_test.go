package house

import (
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"
)

const (
	longestReadme       = 150
	longestArchitecture = 120
	longestPage         = 200
	widestLine          = 120 // characters
)

// wideTables names the pages whose tables may have wider rows, and why: a cell of Markdown cannot be broken.
func wideTables() map[string]string {
	return map[string]string{
		configuration:              "the code's own descriptions",
		packageTable:               "lists of imports",
		commandLine:                "the program's own descriptions",
		"docs/security.md":         "a promise with its tests; a gap with what to do about it",
		"docs/troubleshooting.md":  "cause and fix in one row",
		"docs/benchmarks.md":       "eight columns, as make bench prints them",
		"docs/api/sandboxes.md":    "the seven clocks have seven columns",
		"docs/testing/chaos.md":    "several checks that say one thing",
		"docs/operate/deploy.md":   "a step and its reason",
		"docs/design/edge.md":      "paths of files",
		"docs/design/reconcile.md": "a difference, its action and its name",
		"CONTRIBUTING.md":          "a tier, what it runs and what it finds",
		"docs/testing/gate.md":     "what the gate withstands",
		"images/README.md":         "what an image holds",
	}
}

// page is one document of the repository.
type page struct {
	path  string
	lines []string
}

// pages reads every Markdown file that git would commit.
func pages(t *testing.T) []page {
	t.Helper()
	cmd := exec.Command("git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("git ls-files: %v", err)
	}
	var all []page
	for _, name := range strings.Fields(string(out)) {
		if text, err := os.ReadFile(path.Join(root, name)); err == nil { // not deleted and waiting to be committed
			all = append(all, page{name, strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")})
		}
	}
	if len(all) < 30 {
		t.Fatalf("only %d documents were found", len(all))
	}
	return all
}

// TestDocumentsAreShort measures every document and every line.
func TestDocumentsAreShort(t *testing.T) {
	t.Parallel()
	for _, p := range pages(t) {
		most := map[string]int{"README.md": longestReadme, "ARCHITECTURE.md": longestArchitecture, "CHANGELOG.md": 100_000}[p.path]
		if most == 0 {
			most = longestPage
		}
		if len(p.lines) > most {
			t.Errorf("%s has %d lines, at most %d are good", p.path, len(p.lines), most)
		}
		_, wide := wideTables()[p.path]
		for i, line := range p.lines {
			if n := utf8.RuneCountInString(line); n > widestLine && (!wide || !strings.HasPrefix(line, "|")) {
				t.Errorf("%s:%d has %d characters, at most %d are good", p.path, i+1, n, widestLine)
			}
		}
	}
}

// TestPagesSayWhatTheyAreFor wants a title on every page below docs, and a paragraph that begins with what its reader can do.
func TestPagesSayWhatTheyAreFor(t *testing.T) {
	t.Parallel()
	for _, p := range pages(t) {
		if !strings.HasPrefix(p.path, "docs/") {
			continue
		}
		if len(p.lines) < 3 || !strings.HasPrefix(p.lines[0], "# ") || p.lines[1] != "" || !strings.HasPrefix(p.lines[2], "After this page ") {
			t.Errorf("%s does not begin with a title and what its reader can do after this page", p.path)
		}
	}
}

// TestLinksLeadSomewhere follows every link to a file of the repository, and to a heading in it. Every page below docs has one.
func TestLinksLeadSomewhere(t *testing.T) {
	t.Parallel()
	link := regexp.MustCompile(`\]\(([^)\s]+)\)`)
	headings, linked := map[string]map[string]bool{}, map[string]bool{}
	for _, p := range pages(t) {
		headings[p.path] = anchors(p)
	}
	links := 0
	for _, p := range pages(t) {
		for _, m := range link.FindAllStringSubmatch(strings.Join(p.lines, "\n"), -1) {
			target, anchor, _ := strings.Cut(m[1], "#")
			if strings.Contains(target, "://") {
				continue
			}
			links++
			linked[path.Join(path.Dir(p.path), target)] = true
			file := p.path
			if target != "" {
				file = path.Join(path.Dir(p.path), target)
			}
			if !exists(file) {
				t.Errorf("%s links to %s, which does not exist", p.path, file)
			} else if anchor != "" && !headings[file][anchor] {
				t.Errorf("%s links to %s#%s, which is no heading there", p.path, file, anchor)
			}
		}
	}
	for page := range headings {
		if strings.HasPrefix(page, "docs/") && !linked[page] {
			t.Errorf("no document links to %s", page)
		}
	}
	if links < 100 {
		t.Errorf("only %d links were found", links)
	}
}

// anchors are the headings of a page as links name them.
func anchors(p page) map[string]bool {
	odd := regexp.MustCompile(`[^\p{L}\p{N} _-]`)
	found := map[string]bool{}
	for _, line := range p.lines {
		if heading, ok := strings.CutPrefix(strings.TrimLeft(line, "#"), " "); ok && strings.HasPrefix(line, "#") {
			found[strings.ReplaceAll(strings.ToLower(odd.ReplaceAllString(heading, "")), " ", "-")] = true
		}
	}
	return found
}

func exists(file string) bool {
	found, err := filepath.Glob(path.Join(root, file))
	return err == nil && len(found) > 0
}

// TestPathsInDocumentsExist looks up every path of the repository that a document names as code.
func TestPathsInDocumentsExist(t *testing.T) {
	t.Parallel()
	ours := regexp.MustCompile(`^[A-Za-z0-9_.*-]+(/[A-Za-z0-9_.*-]+)+/?$`)
	paths := 0
	for _, p := range pages(t) {
		for _, word := range codeWords(p) {
			word = strings.TrimPrefix(word, "./")
			top, _, _ := strings.Cut(word, "/")
			if !ours.MatchString(word) || top == "bin" || top == ".sandyard" || top == "." || top == ".." || !exists(top) {
				continue
			}
			paths++
			if !exists(word) {
				t.Errorf("%s names %s, which does not exist", p.path, word)
			}
		}
	}
	if paths < 200 {
		t.Errorf("only %d paths were found", paths)
	}
}

// TestTestsInDocumentsExist looks up every test that a document names.
func TestTestsInDocumentsExist(t *testing.T) {
	t.Parallel()
	var code strings.Builder
	for _, file := range goFiles(t) {
		if strings.HasSuffix(file, "_test.go") || strings.Contains(file, "providertest/") {
			text, err := os.ReadFile(filepath.Join(root, file))
			if err != nil {
				t.Fatal(err)
			}
			code.Write(text)
		}
	}
	name := regexp.MustCompile(`\bTest[A-Z]\w+|-run (\w+)`)
	for _, p := range pages(t) {
		for _, span := range codeSpans(p) {
			for _, m := range name.FindAllStringSubmatch(span, -1) {
				pattern := `func ` + m[0] + `\(`
				if m[1] != "" {
					pattern = `func Test\w*` + m[1]
				}
				if m[1] != "NAME" && m[1] != "TestName" && !regexp.MustCompile(pattern).MatchString(code.String()) {
					t.Errorf("%s names the test %s, which does not exist", p.path, m[0])
				}
			}
		}
	}
}

// codeSpans are the pieces of a page that stand as code: lines of blocks, and what is between backticks.
func codeSpans(p page) []string {
	var spans, text []string
	block := false
	for _, line := range p.lines {
		switch {
		case strings.HasPrefix(line, "```"):
			block = !block
		case block || strings.HasPrefix(line, "    "):
			spans = append(spans, line)
		default:
			text = append(text, line)
		}
	}
	for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(strings.Join(text, "\n"), -1) {
		spans = append(spans, strings.ReplaceAll(m[1], "\n", " "))
	}
	return spans
}

func codeWords(p page) []string {
	var words []string
	for _, span := range codeSpans(p) {
		words = append(words, strings.Fields(span)...)
	}
	return words
}
