package house

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"

	"sandyard/service"
)

// TestReadmeListsEveryVariable compares README's table with what the programs read.
func TestReadmeListsEveryVariable(t *testing.T) {
	t.Parallel()
	want := map[string]service.Variable{}
	for _, v := range service.Variables(service.API{}, service.Worker{}, service.Scheduler{}) {
		if _, twice := want[v.Name]; twice {
			t.Errorf("%s is described in two ways", v.Name)
		}
		want[v.Name] = v
	}
	for _, row := range tableRows(t, "README.md", "| variable | default | meaning |") {
		name, def := strings.Trim(row[0], "`"), strings.Trim(row[1], "`")
		v, ok := want[name]
		if !ok {
			t.Errorf("README lists %s, which nothing reads", name)
			continue
		}
		if def != v.Default || row[2] != v.Doc {
			t.Errorf("README says %s = %q: %q; the code says %q: %q", name, def, row[2], v.Default, v.Doc)
		}
		delete(want, name)
	}
	for name := range want {
		t.Errorf("README does not list %s", name)
	}
}

// TestEnvironmentIsReadInOnePlace finds reads of the environment outside cmd, where no table would show them.
func TestEnvironmentIsReadInOnePlace(t *testing.T) {
	t.Parallel()
	for _, file := range goFiles(t) {
		if strings.HasPrefix(file, "cmd/") || strings.HasSuffix(file, "_test.go") {
			continue
		}
		set := token.NewFileSet()
		parsed, err := parser.ParseFile(set, filepath.Join(root, file), nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			if s, ok := n.(*ast.SelectorExpr); ok && isEnvRead(s) {
				t.Errorf("%v reads the environment", set.Position(s.Pos()))
			}
			return true
		})
	}
}

func isEnvRead(s *ast.SelectorExpr) bool {
	pkg, ok := s.X.(*ast.Ident)
	return ok && pkg.Name == "os" && (s.Sel.Name == "Getenv" || s.Sel.Name == "LookupEnv")
}
