package house

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestMakeTargetsInDocumentsExist looks up every `make target VARIABLE=value` that a document names.
func TestMakeTargetsInDocumentsExist(t *testing.T) {
	t.Parallel()
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	call := regexp.MustCompile(`(?:^|[ (])make ([a-z][a-z0-9-]*)((?: +[A-Z]+=\S*)*)`)
	variable := regexp.MustCompile(`([A-Z]+)=`)
	calls := 0
	for _, p := range pages(t) {
		for _, span := range codeSpans(p) {
			for _, m := range call.FindAllStringSubmatch(span, -1) {
				calls++
				if !regexp.MustCompile(`(?m)^(\S+ )*` + m[1] + `( \S+)*:`).Match(makefile) {
					t.Errorf("%s names make %s, which is no target", p.path, m[1])
				}
				for _, v := range variable.FindAllStringSubmatch(m[2], -1) {
					if !strings.Contains(string(makefile), v[1]) {
						t.Errorf("%s names make %s %s=, which the Makefile does not know", p.path, m[1], v[1])
					}
				}
			}
		}
	}
	if calls < 30 {
		t.Errorf("only %d calls of make were found", calls)
	}
}

// command is a subcommand of sandyard, as its code has it.
type command struct {
	args  string // what its help says of its arguments
	flags []string
}

// TestCommandsInDocumentsExist looks up every `sandyard command word --flag` that a document names.
func TestCommandsInDocumentsExist(t *testing.T) {
	t.Parallel()
	known := commandsOf(t)
	call := regexp.MustCompile(`(?:^|[ /])sandyard ([a-z-]+)((?: +(?:--[a-z0-9-]+|[a-z]+\b))*)`)
	calls := 0
	for _, p := range pages(t) {
		for _, span := range codeSpans(p) {
			for _, m := range call.FindAllStringSubmatch(span, -1) {
				calls++
				c, ok := known[m[1]]
				if !ok {
					t.Errorf("%s names sandyard %s, which is no command", p.path, m[1])
					continue
				}
				for _, word := range strings.Fields(m[2]) {
					flag, isFlag := strings.CutPrefix(word, "--")
					switch {
					case isFlag && flag != "help" && !slices.Contains(c.flags, flag):
						t.Errorf("%s names sandyard %s %s, which is no flag", p.path, m[1], word)
					case !isFlag && m[1] == "node" && !strings.Contains(c.args, word):
						t.Errorf("%s names sandyard %s %s, which it does not do", p.path, m[1], word)
					}
				}
			}
		}
	}
	if calls < 10 {
		t.Errorf("only %d calls of sandyard were found", calls)
	}
}

// commandsOf reads cmd/sandyard: the list that commands returns, with the options in the arguments of each.
func commandsOf(t *testing.T) map[string]command {
	t.Helper()
	functions := map[string]*ast.FuncDecl{}
	for _, file := range goFiles(t) {
		if filepath.Dir(file) != "cmd/sandyard" || strings.HasSuffix(file, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, file), nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range parsed.Decls {
			if f, ok := d.(*ast.FuncDecl); ok {
				functions[f.Name.Name] = f
			}
		}
	}
	found := map[string]command{}
	ast.Inspect(functions["commands"], func(n ast.Node) bool {
		if l, ok := n.(*ast.CompositeLit); ok && len(l.Elts) == 4 && text(l.Elts[0]) != "" {
			args := text(l.Elts[1]) // which TestCommandLinePageIsTheCommandLine holds to the options that there are
			found[text(l.Elts[0])] = command{args, optionsIn(args, nil)}
		}
		return true
	})
	if len(found) < 5 {
		t.Fatalf("only %d commands were found in cmd/sandyard", len(found))
	}
	return found
}

// text is the value of a string in the code; empty = it is none.
func text(e ast.Expr) string {
	l, ok := e.(*ast.BasicLit)
	if !ok || l.Kind != token.STRING {
		return ""
	}
	s, err := strconv.Unquote(l.Value)
	if err != nil {
		return ""
	}
	return s
}
