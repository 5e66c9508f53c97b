package house

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const (
	longestFile     = 500
	longestFunction = 80
)

// TestNothingIsTooLong measures every Go file that is not generated.
func TestNothingIsTooLong(t *testing.T) {
	t.Parallel()
	functions := 0
	for _, file := range goFiles(t) {
		src, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			t.Fatal(err)
		}
		set := token.NewFileSet()
		parsed, err := parser.ParseFile(set, file, src, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		if ast.IsGenerated(parsed) {
			continue
		}
		if n := bytes.Count(src, []byte("\n")); n > longestFile {
			t.Errorf("%s has %d lines, at most %d are good", file, n, longestFile)
		}
		for _, d := range parsed.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			functions++
			if n := set.Position(f.End()).Line - set.Position(f.Pos()).Line; n > longestFunction {
				t.Errorf("%s: %s has %d lines, at most %d are good", file, f.Name.Name, n, longestFunction)
			}
		}
	}
	if functions < 500 {
		t.Errorf("only %d functions were looked at", functions)
	}
}

// goFiles lists what git would commit.
func goFiles(t *testing.T) []string {
	t.Helper()
	cmd := exec.Command("git", "ls-files", "--cached", "--others", "--exclude-standard", "*.go")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("git ls-files: %v", err)
	}
	var files []string
	for _, f := range strings.Fields(string(out)) {
		if _, err := os.Stat(filepath.Join(root, f)); err == nil { // not deleted and waiting to be committed
			files = append(files, f)
		}
	}
	return files
}
