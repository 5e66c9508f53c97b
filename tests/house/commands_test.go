package house

import (
	"go/ast"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
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

// TestCommandsInDocumentsExist looks up every `sandyard command word --flag` that a document names.
func TestCommandsInDocumentsExist(t *testing.T) {
	t.Parallel()
	known := commandsOf(t)
	call := regexp.MustCompile(`(?:^|[ /])sandyard ([a-z-]+(?: +(?:--[a-z0-9-]+|[a-z]+\b))*)`)
	calls := 0
	for _, p := range pages(t) {
		for _, span := range codeSpans(p) {
			for _, m := range call.FindAllStringSubmatch(span, -1) {
				calls++
				path := "sandyard"
				for _, word := range strings.Fields(m[1]) {
					flag, isFlag := strings.CutPrefix(word, "--")
					_, isCommand := known[path+" "+word]
					switch {
					case isCommand:
						path += " " + word
					case word == "help" && known[path].group:
					case isFlag && flag != "help" && known[path].options[flag] == "":
						t.Errorf("%s names %s %s, which is no flag", p.path, path, word)
					case !isFlag && known[path].group:
						t.Errorf("%s names %s %s, which is no command", p.path, path, word)
					}
				}
			}
		}
	}
	if calls < 10 {
		t.Errorf("only %d calls of sandyard were found", calls)
	}
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
