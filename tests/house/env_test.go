package house

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"

	"sandyard/app"
)

// configuration is the page that lists every variable.
const configuration = "docs/operate/configuration.md"

// TestConfigurationListsEveryVariable compares the table of docs/operate/configuration.md with what the programs read.
func TestConfigurationListsEveryVariable(t *testing.T) {
	t.Parallel()
	want := map[string]app.Variable{}
	for _, v := range app.Variables(app.API{}, app.Worker{}, app.Scheduler{}) {
		if _, twice := want[v.Name]; twice {
			t.Errorf("%s is described in two ways", v.Name)
		}
		want[v.Name] = v
	}
	for _, row := range tableRows(t, configuration, "| variable | default | meaning |") {
		name, def := strings.Trim(row[0], "`"), strings.Trim(row[1], "`")
		v, ok := want[name]
		if !ok {
			t.Errorf("%s lists %s, which nothing reads", configuration, name)
			continue
		}
		if def != v.Default || row[2] != v.Doc {
			t.Errorf("%s says %s = %q: %q; the code says %q: %q", configuration, name, def, row[2], v.Default, v.Doc)
		}
		delete(want, name)
	}
	for name := range want {
		t.Errorf("%s does not list %s", configuration, name)
	}
}

// TestEnvironmentIsReadInOnePlace finds reads of the environment outside cmd and the tests, where no table would show them.
func TestEnvironmentIsReadInOnePlace(t *testing.T) {
	t.Parallel()
	for _, file := range goFiles(t) {
		if strings.HasPrefix(file, "cmd/") || strings.HasPrefix(file, "dev/testenv/") || strings.HasSuffix(file, "_test.go") {
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
