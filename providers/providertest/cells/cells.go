// Package cells checks code that runs in contexts: cells of Python, bash and JavaScript.
package cells

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"sandyard/providers"
	"sandyard/providers/codecontext"
	"sandyard/providers/providertest/fixture"
)

// notebook runs cells in one sandbox.
type notebook struct {
	t    *testing.T
	box  codecontext.Box
	room fixture.Room
}

func newNotebook(t *testing.T, s *fixture.Suite) notebook {
	t.Helper()
	return notebookIn(t, s, 1024) // many contexts run in it
}

func notebookIn(t *testing.T, s *fixture.Suite, megabytes int64) notebook {
	t.Helper()
	if s.NeedsSystem(t); s.Caps.Code == providers.Unsupported {
		t.Skip("skipped: the provider declares code unsupported")
	}
	r := s.NewRoomWith(t, providers.Spec{Resources: providers.Resources{MemoryMB: megabytes}})
	box, err := codecontext.In(r.Sandbox)
	if err != nil {
		t.Fatal(err)
	}
	return notebook{t, box, r}
}

// on is the notebook in another test.
func (n notebook) on(t *testing.T) notebook {
	n.t = t
	return n
}

func (n notebook) cell(lang, context, code string) codecontext.Cell {
	return codecontext.Cell{
		ID: fixture.NewID(n.t), Language: lang, Context: context, Code: code, Timeout: time.Minute, MaxOutput: 1 << 20,
	}
}

// run runs a cell and fails the test on an error of the platform.
func (n notebook) run(c codecontext.Cell, stop <-chan struct{}) codecontext.Outcome {
	n.t.Helper()
	o, err := codecontext.Run(fixture.Within(n.t), n.box, c, stop)
	if err != nil {
		n.t.Fatalf("cell %.80q: %v", c.Code, err)
	}
	return o
}

func (n notebook) do(lang, context, code string) codecontext.Outcome {
	n.t.Helper()
	return n.run(n.cell(lang, context, code), nil)
}

// wants fails unless the cell printed out and its value is shown as text.
func (n notebook) wants(o codecontext.Outcome, out, value string) {
	n.t.Helper()
	if string(o.Stdout) != out || mainText(o) != value || o.Error != nil || o.StateLost {
		n.t.Errorf("got %s\nwant stdout %q and the value %q", tell(o), out, value)
	}
}

// fails checks the error that a cell ended with.
func (n notebook) fails(o codecontext.Outcome, name, part string) {
	n.t.Helper()
	if o.Error == nil || o.Error.Name != name || !strings.Contains(o.Error.Value+o.Error.Traceback, part) {
		n.t.Errorf("got %s\nwant %s with %q", tell(o), name, part)
	}
}

func mainText(o codecontext.Outcome) string {
	for _, r := range o.Results {
		if r.Main {
			return unquote(r.Data["text/plain"])
		}
	}
	return ""
}

func unquote(raw json.RawMessage) (s string) {
	if json.Unmarshal(raw, &s) != nil {
		return string(raw)
	}
	return s
}

func tell(o codecontext.Outcome) string {
	code := "none"
	if o.ExitCode != nil {
		code = fmt.Sprint(*o.ExitCode)
	}
	var shown []string
	for _, r := range o.Results {
		shown = append(shown, fmt.Sprintf("%.300s", r.Data))
	}
	return fmt.Sprintf(
		"error %+v exit code %s state lost %v timed out %v cut %v count %d\nstdout %d %.300q\nstderr %d %.300q\nresults %s",
		o.Error,
		code,
		o.StateLost,
		o.TimedOut,
		o.Cut,
		o.Count,
		o.StdoutBytes,
		o.Stdout,
		o.StderrBytes,
		o.Stderr,
		shown,
	)
}

// Run checks cells of Python and bash, and what holds for those of all languages.
func Run(t *testing.T, s *fixture.Suite) {
	n := newNotebook(t, s)
	for name, check := range map[string]func(*testing.T, notebook){
		"python": pythonCells, "python rich": pythonRich, "python errors": pythonErrors, "python ends": pythonEnds,
		"bash": bashCells, "bash exits": bashExits, "interrupt": interruptedCells, "killed": killedCells,
		"once":     cellsRunOnce,
		"contexts": contexts, "made contexts": madeContexts, "output": cellOutput, "live": cellsLive, "long": longCells,
		"fakes": fakedCells,
	} {
		t.Run(name, func(t *testing.T) { t.Parallel(); check(t, n.on(t)) })
	}
	t.Run("another worker", func(t *testing.T) { t.Parallel(); cellTakenOver(t, s, newNotebook(t, s)) })
	t.Run("out of memory", func(t *testing.T) { t.Parallel(); hungryCell(t, s) })
	t.Run("paused", func(t *testing.T) { t.Parallel(); pausedCell(t, s) })
	t.Run("no interpreter", func(t *testing.T) {
		t.Parallel()
		_, err := codecontext.Run(fixture.Within(t), n.box, n.on(t).cell(codecontext.JavaScript, "", "1"), nil)
		if fixture.WantClass(t, err, providers.NoCommand); err != nil && !strings.Contains(err.Error(), "node") {
			t.Errorf("it does not name what is missing: %v", err)
		}
	})
}

func pythonCells(t *testing.T, n notebook) {
	py := func(code string) codecontext.Outcome { t.Helper(); return n.do(codecontext.Python, "py", code) }
	n.wants(py("import math\nx = 20\ndef double(n):\n    return 2 * n\nprint('hello')"), "hello\n", "")
	n.wants(py("double(x) + math.floor(2.5)"), "", "42")
	n.wants(py("_ + 1;"), "", "")
	n.wants(py("import os\nos.mkdir('below'); os.chdir('below')"), "", "")
	n.wants(py("os.path.basename(os.getcwd())"), "", "'below'")
	n.wants(
		py("import asyncio\nasync def later():\n    await asyncio.sleep(0.01)\n    return 'late'\nawait later()"),
		"",
		"'late'",
	)
	n.wants(py("for i in range(2): print(i)\nNone"), "0\n1\n", "")
	n.wants(py("class A:\n    pass\nimport pickle\ntype(pickle.loads(pickle.dumps(A()))).__name__"), "", "'A'")
	c := n.cell(
		codecontext.Python,
		"py",
		"import subprocess\nsubprocess.run('echo $WORD $PWD; echo wrong >&2', shell=True).returncode",
	)
	c.Env, c.Dir = map[string]string{"WORD": "here"}, "/tmp"
	o := n.run(c, nil)
	n.wants(o, "here /tmp\n", "0")
	if string(o.Stderr) != "wrong\n" || o.Count != 9 {
		t.Errorf("got %s", tell(o))
	}
	for _, joined := range []bool{true, false} { // and the cell behind it has two streams again
		c = n.cell(
			codecontext.Python,
			"py",
			"print('1'); print('2', file=sys.stderr); subprocess.run('echo 3 >&2', shell=True); print('4')",
		)
		c.Code, c.Merge = "import sys\n"+c.Code, joined
		want := map[bool]string{true: "1\n2\n3\n4\n", false: "1\n4\n"}[joined]
		if o := n.run(c, nil); string(o.Stdout) != want || joined == (len(o.Stderr) > 0) {
			t.Errorf("merged %v: got %s", joined, tell(o))
		}
	}
	n.wants(py("os.environ.get('WORD', 'none'), os.getcwd()"), "", "('none', '/tmp')")
}

func pythonRich(t *testing.T, n notebook) {
	o := n.do(codecontext.Python, "rich", `
class Page:
    def __repr__(self): return "a page"
    def _repr_html_(self): return "<b>bold</b>"
    def _repr_png_(self): return b"\x89PNG"
display(Page(), {"a": [1, 2]})
Page()`)
	if len(o.Results) != 3 {
		t.Fatalf("got %s", tell(o))
	}
	page, list, last := o.Results[0], o.Results[1], o.Results[2]
	if page.Main || unquote(page.Data["text/html"]) != "<b>bold</b>" || unquote(page.Data["image/png"]) != "iVBORw==" ||
		unquote(page.Data["text/plain"]) != "a page" {
		t.Errorf("a page is shown as %s", page.Data)
	}
	if string(list.Data["application/json"]) != `{"a": [1, 2]}` || !last.Main {
		t.Errorf("got %s", tell(o))
	}
	o = n.do(codecontext.Python, "rich", "for i in range(1000): display(i)")
	if len(o.Results) != 100 || !o.Cut || o.Error != nil {
		t.Errorf("of 1000 results there are %d; %v", len(o.Results), o.Cut)
	}
	o = n.do(codecontext.Python, "rich", "class Big:\n    def _repr_html_(self): return 'x' * (9 << 20)\nBig()")
	if len(o.Results) != 1 || !o.Cut || o.Results[0].Data["text/html"] != nil ||
		!strings.Contains(mainText(o), "Big object") {
		t.Errorf("of 9 MiB there are %d results, cut %v", len(o.Results), o.Cut)
	}
	o = n.do(codecontext.Python, "rich", "class Large:\n    def _repr_html_(self): return 'x' * (3 << 20)\nLarge()")
	if len(o.Results) != 1 || o.Cut || len(unquote(o.Results[0].Data["text/html"])) != 3<<20 {
		t.Errorf("of 3 MiB there are %d results, cut %v", len(o.Results), o.Cut)
	}
}

func pythonErrors(t *testing.T, n notebook) {
	py := func(code string) codecontext.Outcome { t.Helper(); return n.do(codecontext.Python, "err", code) }
	o := py("kept = 1\ndef f():\n    return 1 / 0\nprint('before')\nf()")
	n.fails(o, "ZeroDivisionError", "    return 1 / 0")
	if string(o.Stdout) != "before\n" || strings.Contains(o.Error.Traceback, `"sandyard"`) ||
		o.Error.Value != "division by zero" {
		t.Errorf("got %s", tell(o))
	}
	o = py("def f(:\n  pass")
	if n.fails(o, "SyntaxError", "line 1"); strings.Contains(o.Error.Traceback, "ast.py") ||
		!strings.Contains(o.Error.Traceback, "def f(:") {
		t.Errorf("got %s", tell(o))
	}
	n.fails(py("class Own(Exception): pass\nraise Own('mine')"), "Own", "mine")
	n.fails(py("import sys\nsys.exit(3)"), "SystemExit", "3")
	n.wants(py("sys.exit()"), "", "")
	n.fails(py("input()"), "EOFError", "")
	n.fails(py("class R:\n    def __repr__(self): raise ValueError('no repr')\nR()"), "ValueError", "no repr")
	n.fails(py("def g(): return g()\ng()"), "RecursionError", "")
	n.fails(py("import os\nos.chdir('/nowhere')"), "FileNotFoundError", "nowhere")
	o = py("if os.fork() == 0:\n    print('child')\nelse:\n    os.wait()\n    print('parent')")
	n.wants(o, "child\nparent\n", "")
	n.wants(py("kept"), "", "1")
}

func pythonEnds(t *testing.T, n notebook) {
	n.wants(n.do(codecontext.Python, "end", "x = 1"), "", "")
	o := n.do(codecontext.Python, "end", "import os\nprint('last words', flush=True)\nos._exit(7)")
	n.fails(o, codecontext.ContextDied, "exit code 7")
	if !o.StateLost || string(o.Stdout) != "last words\n" {
		t.Errorf("got %s", tell(o))
	}
	o = n.do(codecontext.Python, "end", "x")
	if n.fails(o, "NameError", "x"); o.StateLost || o.Count != 1 {
		t.Errorf("a fresh context: %s", tell(o))
	}
	o = n.do(codecontext.Python, "end", "import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)")
	n.fails(o, codecontext.ContextDied, "SIGSEGV")
	n.wants(n.do(codecontext.Python, "end", "1"), "", "1")
}

func bashCells(t *testing.T, n notebook) {
	sh := func(code string) codecontext.Outcome { t.Helper(); return n.do(codecontext.Bash, "sh", code) }
	n.wants(sh("word=it\\'s; list=(a 'b c'); greet() { echo \"hi $1\"; }\nmkdir -p sh; cd sh; export OUT=side"), "", "")
	n.wants(sh("greet \"$word\"; echo \"${list[1]} ${PWD##*/} $(printenv OUT)\""), "hi it's\nb c sh side\n", "")
	o := sh("echo wrong >&2; (exit 3)")
	if o.ExitCode == nil || *o.ExitCode != 3 || string(o.Stderr) != "wrong\n" || o.Count != 3 || o.Error != nil {
		t.Errorf("got %s", tell(o))
	}
	o = sh("if then")
	if o.ExitCode == nil || *o.ExitCode == 0 || !strings.Contains(string(o.Stderr), "syntax error") {
		t.Errorf("a syntax error: %s", tell(o))
	}
	n.wants(sh("cat; read line || echo none"), "none\n", "")
	n.wants(sh("echo here; continue; echo not reached"), "here\n", "")
	n.wants(sh("echo here; break 9; echo not reached"), "here\n", "")
	n.wants(sh("set -o pipefail; shopt -s extglob"), "", "")
	n.wants(sh("[[ aab == +(a)b ]] && shopt -o pipefail | tr -d '\\t '"), "pipefailon\n", "")
	c := n.cell(codecontext.Bash, "sh", "echo \"$word $PWD\"; word=changed")
	c.Env, c.Dir = map[string]string{"word": "given", "i": "1"}, "/tmp"
	n.wants(n.run(c, nil), "given /tmp\n", "")
	n.wants(sh("echo \"$word $PWD ${i-unset}\""), "it's /tmp unset\n", "")
	c = n.cell(codecontext.Bash, "sh", "echo not run")
	c.Dir = "/nowhere"
	if o = n.run(c, nil); *o.ExitCode == 0 || len(o.Stdout) > 0 || !strings.Contains(string(o.Stderr), "/nowhere") {
		t.Errorf("a directory that is not there: %s", tell(o))
	}
}

func bashExits(t *testing.T, n notebook) {
	sh := func(code string) codecontext.Outcome { t.Helper(); return n.do(codecontext.Bash, "exits", code) }
	exits := func(o codecontext.Outcome, code int, out string) {
		t.Helper()
		if o.ExitCode == nil || *o.ExitCode != code || o.StateLost || string(o.Stdout) != out {
			t.Errorf("got %s\nwant exit code %d, stdout %q", tell(o), code, out)
		}
	}
	exits(
		sh(
			"shopt -s extglob\ncode='my own'; state=2; i=3; declare -A map=([k]='v w'); f() { case $1 in +(x)) echo xs ;; "+
				"esac; "+
				"}; alias ll='echo aliased'; cd /tmp; umask 027",
		),
		0,
		"",
	)
	for range 3 {
		exits(
			sh("f() { case $1 in +(x)) echo xs ;; esac; echo \"$code\"; exit 4; }; f xx; echo not reached"),
			4,
			"xs\nmy own\n",
		)
	}
	exits(sh("echo \"$code $state $i ${map[k]} $PWD $(umask)\""), 0, "my own 2 3 v w /tmp 0027\n")
	exits(sh("set -eu; echo strict"), 0, "strict\n")
	exits(sh("echo before; false; echo after"), 1, "before\n")
	exits(sh("echo $-; echo $nothing_of_this_name 2>&1"), 1, "ehuBc\n")
	if o := sh("echo $nothing_of_this_name"); !strings.Contains(
		string(o.Stderr),
		"bash: line 1: nothing_of_this_name: unbound",
	) {
		t.Errorf("got %s", tell(o))
	}
	exits(sh("set +eu; readonly fixed=1; fixed=2; echo after"), 1, "")
	exits(sh("echo $fixed $code"), 0, "1 my own\n")
}
