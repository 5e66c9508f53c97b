package house

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const (
	mostFiles  = 25
	longestRow = 120
)

// crowded are packages with more files than a reader finds his way in, and how many they may have. Numbers go down only.
func crowded() map[string]int {
	return map[string]int{
		"models": 48,
	}
}

// TestPackagesAreSmall counts the hand-written files of each package, its tests apart.
func TestPackagesAreSmall(t *testing.T) {
	t.Parallel()
	files := map[string]int{}
	for _, file := range goFiles(t) {
		if !strings.HasSuffix(file, "_test.go") && !generated(t, file) {
			files[filepath.Dir(file)]++
		}
	}
	for dir, n := range files {
		switch most, known := crowded()[dir]; {
		case !known && n > mostFiles:
			t.Errorf("%s has %d files, at most %d are good; divide it by subject", dir, n, mostFiles)
		case known && n > most:
			t.Errorf("%s has %d files, it had %d; put the new one into a package of its own", dir, n, most)
		case known && n < most:
			t.Errorf("%s has only %d files left: write that number into crowded", dir, n)
		}
	}
	if len(files) < 30 {
		t.Errorf("only %d packages were looked at", len(files))
	}
}

const mostMethods = 60

// TestTypesHaveFewMethods counts the methods of each type. More than mostMethods no reader keeps in mind. The store is
// apart: a transaction spans tables, and methods of one type cannot stand in several packages.
func TestTypesHaveFewMethods(t *testing.T) {
	t.Parallel()
	methods := map[string]int{}
	for _, file := range goFiles(t) {
		if strings.HasSuffix(file, "_test.go") || generated(t, file) {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, file), nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range parsed.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv != nil {
				methods[filepath.Dir(file)+"."+receiver(f.Recv.List[0].Type)]++
			}
		}
	}
	if methods["models.Store"] <= mostMethods {
		t.Error("models.Store needs no exception any more")
	}
	for of, n := range methods {
		if of != "models.Store" && n > mostMethods {
			t.Errorf("%s has %d methods, at most %d are good; divide it by subject", of, n, mostMethods)
		}
	}
}

// receiver is the name of a method's type.
func receiver(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.IndexExpr:
		return receiver(e.X)
	case *ast.IndexListExpr:
		return receiver(e.X)
	case *ast.Ident:
		return e.Name
	}
	return "?"
}

// TestLinesFitThePage measures the hand-written lines of all packages but the wide ones. One with the tags of a field cannot be broken.
func TestLinesFitThePage(t *testing.T) {
	t.Parallel()
	for _, file := range goFiles(t) {
		if strings.HasSuffix(file, "_test.go") || wide()[filepath.Dir(file)] || generated(t, file) {
			continue
		}
		src, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			t.Fatal(err)
		}
		n, raw := 0, rawLines(t, file)
		for line := range strings.Lines(string(src)) {
			n++
			if !raw[n] && len(strings.TrimSuffix(line, "\n")) > longestRow && !strings.Contains(line, "`") {
				t.Errorf("%s:%d has more than %d characters", file, n, longestRow)
			}
		}
	}
}

// rawLines are the lines inside raw strings: a break would change the string.
func rawLines(t *testing.T, file string) map[int]bool {
	t.Helper()
	set := token.NewFileSet()
	parsed, err := parser.ParseFile(set, filepath.Join(root, file), nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	lines := map[int]bool{}
	ast.Inspect(parsed, func(n ast.Node) bool {
		if lit, ok := n.(*ast.BasicLit); ok && strings.HasPrefix(lit.Value, "`") {
			for at := set.Position(lit.Pos()).Line; at <= set.Position(lit.End()).Line; at++ {
				lines[at] = true
			}
		}
		return true
	})
	return lines
}

// wide are packages with longer lines. The list gets shorter only.
func wide() map[string]bool {
	return map[string]bool{
		"cmd/sandyard": true, "dev/testenv": true, "gateway": true, "providers": true, "providers/confine": true,
		"providers/docker": true, "providers/envd": true, "providers/fake": true, "providers/local": true,
		"providers/local/script": true, "tests/benchtable": true, "tests/chaos": true, "tests/chaos/mutate": true,
		"tests/e2b": true, "tests/silence": true,
	}
}

func generated(t *testing.T, file string) bool {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, file), nil, parser.ParseComments|parser.PackageClauseOnly)
	if err != nil {
		t.Fatal(err)
	}
	return ast.IsGenerated(parsed)
}
