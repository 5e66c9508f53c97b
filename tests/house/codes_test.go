package house

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const troubleshooting = "docs/troubleshooting.md"

// TestTroubleshootingListsEveryErrorCode compares the first column of docs/troubleshooting.md's tables of codes with what the
// code can answer with: problem documents, errors of jobs, classes of providers, reasons of the edge, codes of E2B.
func TestTroubleshootingListsEveryErrorCode(t *testing.T) {
	t.Parallel()
	codes := codesOf(t)
	if len(codes) < 80 {
		t.Fatalf("only %d codes were found in the code", len(codes))
	}
	listed := map[string]bool{}
	quoted := regexp.MustCompile("`([a-z0-9_]+)`")
	for _, p := range pages(t) {
		if p.path != troubleshooting {
			continue
		}
		table := ""
		for _, line := range p.lines {
			if strings.HasPrefix(line, "| code |") || strings.HasPrefix(line, "| reason |") || strings.HasPrefix(line, "| `error_code` |") {
				table = line
			} else if !strings.HasPrefix(line, "|") {
				table = ""
			} else if table != "" {
				for _, m := range quoted.FindAllStringSubmatch(strings.SplitN(line, "|", 3)[1], -1) {
					listed[m[1]] = true
				}
			}
		}
	}
	for code, where := range codes {
		if !listed[code] {
			t.Errorf("%s does not list the code %s of %s", troubleshooting, code, where)
		}
	}
	for code := range listed {
		if codes[code] == "" {
			t.Errorf("%s lists the code %s, which nothing answers with", troubleshooting, code)
		}
	}
}

// coder finds the codes in the packages that answer callers.
type coder struct {
	t         *testing.T
	set       *token.FileSet
	constants map[string]string // by name, which is unique enough in these packages
	codes     map[string]string // with where they are
}

// passedOn are the expressions that hand on a code which is found where it is made.
func passedOn() []string {
	return []string{"why.Code", "own.Code", "code", "string(e.Class)", "string(p.Class)", "string(err.Class)", "string(job.State)"}
}

func codesOf(t *testing.T) map[string]string {
	t.Helper()
	c := &coder{t: t, set: token.NewFileSet(), constants: map[string]string{}, codes: map[string]string{}}
	var files []*ast.File
	for _, file := range goFiles(t) {
		dir := filepath.Dir(file)
		if !slices.Contains([]string{"jobs", "jobs/worker", "jobs/secrets", "models", "gateway", "providers"}, dir) && dir != "web" && !strings.HasPrefix(dir, "web/") && !strings.HasPrefix(dir, "toolset") || strings.HasSuffix(file, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(c.set, filepath.Join(root, file), nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, parsed)
		c.readConstants(parsed, file)
	}
	for _, f := range files {
		ast.Inspect(f, c.look)
	}
	for _, state := range []string{"failed", "deleting", "deleted", "lost"} { // "sandbox_" and the state of one that takes no work
		c.codes["sandbox_"+state] = "jobs/worker/finish.go"
	}
	return c.codes
}

// readConstants takes every string that is a constant. Classes of providers, reasons of the edge and E2B's codes are codes by
// themselves.
func (c *coder) readConstants(f *ast.File, file string) {
	for _, d := range f.Decls {
		g, ok := d.(*ast.GenDecl)
		if !ok || g.Tok != token.CONST {
			continue
		}
		for _, s := range g.Specs {
			v := s.(*ast.ValueSpec)
			for i, name := range v.Names {
				if i >= len(v.Values) || text(v.Values[i]) == "" {
					continue
				}
				value := text(v.Values[i])
				c.constants[f.Name.Name+"."+name.Name] = value
				kind, _ := v.Type.(*ast.Ident)
				class := kind != nil && kind.Name == "Class" && file == "providers/errors.go"
				selected, _ := v.Type.(*ast.SelectorExpr)
				class = class || selected != nil && selected.Sel.Name == "Class"
				if class || file == "gateway/errors.go" && name.Name != "ReasonHeader" && name.Name != "ours" || file == "web/e2b/errors.go" {
					c.codes[value] = file
				}
			}
		}
	}
}

// look finds problems and errors of jobs where they are made.
func (c *coder) look(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.CallExpr:
		switch f := expression(n.Fun); {
		case (f == "problem.New" || f == "New") && len(n.Args) == 3: // in package problem without its name
			c.add(n.Args[1])
		case (f == "toolset.Reject" || f == "Reject") && len(n.Args) > 1: // likewise
			c.add(n.Args[0])
		case f == "later" && len(n.Args) == 5:
			c.add(n.Args[2])
			c.add(n.Args[3])
		}
	case *ast.CompositeLit:
		name, _ := n.Type.(*ast.Ident)
		if s, ok := n.Type.(*ast.SelectorExpr); ok {
			name = s.Sel
		}
		if name == nil || name.Name != "JobError" && name.Name != "failed" { // the latter of a tool of an agent
			return true
		}
		for _, e := range n.Elts {
			if kv, ok := e.(*ast.KeyValueExpr); ok {
				if key, ok := kv.Key.(*ast.Ident); ok && key.Name == "Code" {
					c.add(kv.Value)
				}
			}
		}
	}
	return true
}

// add takes the code that an expression stands for, and fails for one that it does not understand.
func (c *coder) add(e ast.Expr) {
	where := strings.TrimPrefix(c.set.Position(e.Pos()).String(), root+"/")
	value := text(e)
	switch e := e.(type) {
	case *ast.Ident:
		for _, pkg := range []string{"e2b", "problem", "jobs", "worker", "secrets", "models"} {
			if v := c.constants[pkg+"."+e.Name]; v != "" {
				value = v
			}
		}
	case *ast.CallExpr: // string(providers.NotSupported), string(job.State)
		if len(e.Args) == 1 {
			value = c.constants[expression(e.Args[0])]
		}
	}
	source := expression(e)
	switch {
	case value != "":
		c.codes[value] = where
	case slices.Contains(passedOn(), source), strings.HasPrefix(source, `"sandbox_" + `):
	default:
		c.t.Errorf("%s: the test does not see which code %s is", where, source)
	}
}

// expression writes the few kinds of expression that stand for codes.
func expression(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.BasicLit:
		return e.Value
	case *ast.SelectorExpr:
		return expression(e.X) + "." + e.Sel.Name
	case *ast.CallExpr:
		if len(e.Args) == 1 {
			return expression(e.Fun) + "(" + expression(e.Args[0]) + ")"
		}
	case *ast.BinaryExpr:
		return expression(e.X) + " " + e.Op.String() + " " + expression(e.Y)
	}
	return "?"
}
