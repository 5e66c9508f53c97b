// Package house holds documents and code together: imports, variables, error codes, paths, commands, and how long functions
// and pages may be.
package house

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path"
	"regexp"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const module = "sandyard/"

// TestImportsAreInTheTable compares every package's imports with the table of docs/design/packages.md.
func TestImportsAreInTheTable(t *testing.T) {
	t.Parallel()
	allowed := tableOfImports(t)
	seen := map[string]bool{}
	for _, p := range packages(t) {
		name := strings.TrimPrefix(p.ImportPath, module)
		if strings.HasPrefix(name, "tests/") {
			continue
		}
		row, ok := rowOf(allowed, name)
		if !ok {
			t.Errorf("package %s has no row in %s", name, packageTable)
			continue
		}
		seen[row] = true
		for _, i := range p.Imports {
			if !strings.HasPrefix(i, module) {
				continue
			}
			if !matchAny(allowed[row], strings.TrimPrefix(i, module)) {
				t.Errorf("%s imports %s, which its row in %s does not allow", name, i, packageTable)
			}
		}
	}
	for row := range allowed {
		if !seen[row] {
			t.Errorf("%s has a row for %s, which is no package", packageTable, row)
		}
	}
}

// frameworks may each be named in one package and what lies below it.
func frameworks() map[string][]string {
	return map[string][]string{
		"github.com/gofiber/fiber":        {"web", "web/*"},
		"github.com/danielgtaylor/huma":   {"web", "web/*"},
		"github.com/modelcontextprotocol": {"toolset", "toolset/*", "web/mcp"},
		"github.com/hibiken/asynq":        {"jobs/queue"},
		"github.com/hibiken/asynqmon":     {"jobs/queue"},
		"gorm.io":                         {"models", "models/pg"},
		"github.com/docker/docker":        {"providers/docker", "providers/docker/*"},
		"github.com/spf13/cobra":          {"cmd/sandyard"},
		"github.com/moby/buildkit":        {"providers/dockerfile"},
	}
}

func TestEachFrameworkIsNamedInOnePackage(t *testing.T) {
	t.Parallel()
	found := map[string]bool{}
	for _, p := range packages(t) {
		name := strings.TrimPrefix(p.ImportPath, module)
		for _, i := range p.Imports {
			for framework, homes := range frameworks() {
				if i != framework && !strings.HasPrefix(i, framework+"/") {
					continue
				}
				found[framework] = true
				if !matchAny(homes, name) {
					t.Errorf("%s imports %s, whose home is %v", name, i, homes)
				}
			}
		}
	}
	for framework := range frameworks() {
		if !found[framework] {
			t.Errorf("nothing imports %s: the test looks for the wrong name", framework)
		}
	}
}

type goPackage struct {
	ImportPath string
	Imports    []string
}

func packages(t *testing.T) []goPackage {
	t.Helper()
	cmd := exec.Command("go", "list", "-json=ImportPath,Imports", "./...")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var all []goPackage
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p goPackage
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
}

const root = "../.."

// packageTable is the page that says which package may import which.
const packageTable = "docs/design/packages.md"

// tableOfImports reads its rows: package → patterns of what it may import.
func tableOfImports(t *testing.T) map[string][]string {
	t.Helper()
	quoted := regexp.MustCompile("`([^`]+)`")
	table := map[string][]string{}
	for _, row := range tableRows(t, packageTable, "| package | holds | imports of ours |") {
		var may []string
		for _, m := range quoted.FindAllStringSubmatch(row[2], -1) {
			may = append(may, m[1])
		}
		for _, m := range quoted.FindAllStringSubmatch(row[0], -1) {
			table[m[1]] = may
		}
	}
	return table
}

// tableRows returns the cells of the Markdown table in file that begins with the given header.
func tableRows(t *testing.T, file, header string) [][]string {
	t.Helper()
	b, err := os.ReadFile(path.Join(root, file))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(b), header+"\n")
	if !ok {
		t.Fatalf("%s has no table %q", file, header)
	}
	var rows [][]string
	for _, line := range strings.Split(rest, "\n")[1:] {
		if !strings.HasPrefix(line, "|") {
			return rows
		}
		var cells []string
		const bar = "\x00" // a | in a cell, which Markdown writes \|
		for _, c := range strings.Split(strings.Trim(strings.ReplaceAll(line, `\|`, bar), "|"), "|") {
			cells = append(cells, strings.TrimSpace(strings.ReplaceAll(c, bar, "|")))
		}
		rows = append(rows, cells)
	}
	return rows
}

// rowOf finds a package's row, or that of the nearest package above it.
func rowOf(table map[string][]string, name string) (string, bool) {
	for ; name != "."; name = path.Dir(name) {
		if _, ok := table[name]; ok {
			return name, true
		}
	}
	return "", false
}

// matchAny says whether name is one of the patterns, or lies below one that ends in /*.
func matchAny(patterns []string, name string) bool {
	for _, p := range patterns {
		below, star := strings.CutSuffix(p, "/*")
		if name == p || star && strings.HasPrefix(name, below+"/") {
			return true
		}
	}
	return false
}
