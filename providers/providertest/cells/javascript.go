package cells

import (
	"context"
	"strings"
	"testing"
	"time"

	"sandyard/providers"
	"sandyard/providers/codecontext"
	"sandyard/providers/providertest/fixture"
)

// JavaScript checks cells of JavaScript in sandboxes of an image that has node.
func JavaScript(t *testing.T, open func(t *testing.T) providers.Provider, o fixture.Options) {
	t.Helper()
	n := newNotebook(t, fixture.New(t, open, o))
	for name, check := range map[string]func(*testing.T, notebook){
		"state": jsState, "results": jsResults, "errors": jsErrors, "ends": jsEnds, "made": jsMade,
	} {
		t.Run(name, func(t *testing.T) { t.Parallel(); check(t, n.on(t)) })
	}
}

// jsMade checks a context that is started before its first cell.
func jsMade(t *testing.T, n notebook) {
	w := codecontext.Wish{
		ID:       fixture.NewID(t),
		Language: codecontext.JavaScript,
		Context:  "made",
		Env:      map[string]string{"WORD": "kept"},
		Dir:      "/tmp",
	}
	existing, err := codecontext.Create(
		fixture.Within(t),
		n.box,
		w,
		func(context.Context) (func(), error) { return func() {}, nil },
	)
	if existing || err != nil {
		t.Errorf("existing %v, %v", existing, err)
	}
	n.wants(n.do(codecontext.JavaScript, "made", "process.env.WORD + process.cwd()"), "", "'kept/tmp'")
}

func jsState(t *testing.T, n notebook) {
	js := func(code string) codecontext.Outcome { t.Helper(); return n.do(codecontext.JavaScript, "js", code) }
	n.wants(
		js(
			"const a = 1\nlet {b, c: [d = 4]} = {b: 2, c: []}\nfunction sum(...all) { return all.reduce((x, y) => x + y) }\n"+
				"class P { x = 1 }\nconsole.log('hello')",
		),
		"hello\n",
		"",
	)
	n.wants(js("sum(a, b, d) + new P().x"), "", "8")
	n.wants(js("const a = 10, b = 20; let d\nclass P { x = 2 }\na + b + new P().x;"), "", "32")
	n.wants(js("typeof d"), "", "'undefined'")
	n.wants(
		js(
			"const late = await new Promise((r) => setTimeout(() => r('late'), 10))\n"+
				"async function again() { return late + 'r' }\nlate",
		),
		"",
		"'late'",
	)
	n.wants(js("await again()"), "", "'later'")
	n.wants(js("for await (const x of [1, Promise.resolve(2)]) console.log(x)"), "1\n2\n", "")
	n.wants(
		js(
			"const fs = require('fs'); fs.writeFileSync('own.mjs', 'export default 7; export const two = 2'); "+
				"fs.writeFileSync('own.js', 'exports.three = 3')",
		),
		"",
		"",
	)
	n.wants(
		js(
			"import seven, { two as deux } from './own.mjs'\nimport * as path from 'path'\n"+
				"seven + deux + path.sep.length + require('./own').three",
		),
		"",
		"13",
	)
	n.wants(js("(await import('./own.mjs')).two"), "", "2")
	n.wants(js("require('fs').readFileSync(0).length"), "", "0")
	n.wants(js("if (true) { let hidden = 1; var seen = 2 }\n[typeof hidden, seen].join()"), "", "'undefined,2'")
	c := n.cell(codecontext.JavaScript, "js", "process.env.WORD + process.cwd()")
	c.Env, c.Dir = map[string]string{"WORD": "here"}, "/tmp"
	n.wants(n.run(c, nil), "", "'here/tmp'")
	n.wants(js("String(process.env.WORD) + process.cwd()"), "", "'undefined/tmp'")
	for _, joined := range []bool{true, false} {
		c = n.cell(
			codecontext.JavaScript,
			"js",
			"console.log(1); console.error(2); process.stderr.write('3\\n'); console.log(4);",
		)
		c.Merge = joined
		want := map[bool]string{true: "1\n2\n3\n4\n", false: "1\n4\n"}[joined]
		if o := n.run(c, nil); string(o.Stdout) != want || joined == (len(o.Stderr) > 0) {
			t.Errorf("merged %v: got %s", joined, tell(o))
		}
	}
	n.wants(js("require('child_process').execSync('echo out; echo $((1 + 1))').toString()"), "", `'out\n2\n'`)
}

func jsResults(t *testing.T, n notebook) {
	o := n.do(
		codecontext.JavaScript,
		"rich",
		"display([1, {a: null}]); ({ [Symbol.for('Jupyter.display')]() { return { 'text/html': '<b>x</b>' } } })",
	)
	if len(o.Results) != 2 || string(o.Results[0].Data["application/json"]) != `[1,{"a":null}]` ||
		unquote(o.Results[1].Data["text/html"]) != "<b>x</b>" {
		t.Errorf("got %s", tell(o))
	}
	if o = n.do(codecontext.JavaScript, "rich", "for (let i = 0; i < 1000; i++) display(i)"); len(o.Results) != 100 ||
		!o.Cut {
		t.Errorf("of 1000 results there are %d", len(o.Results))
	}
	if o = n.do(codecontext.JavaScript, "rich", "'y'.repeat(1 << 20).split('')"); len(o.Results) != 1 || o.Error != nil {
		t.Errorf("got %.1000s", tell(o))
	}
}

func jsErrors(t *testing.T, n notebook) {
	js := func(code string) codecontext.Outcome { t.Helper(); return n.do(codecontext.JavaScript, "err", code) }
	o := js("const kept = 1\nfunction f() {\n  throw new TypeError('mine')\n}\nf()")
	n.fails(o, "TypeError", "<cell 1>:3")
	if strings.Contains(o.Error.Traceback, "sandyard") {
		t.Errorf("the driver shows: %s", o.Error.Traceback)
	}
	n.fails(js("let x = ;"), "SyntaxError", "")
	n.fails(js("await Promise.reject(new RangeError('later'))"), "RangeError", "later")
	n.fails(js("throw 'text'"), "Error", "text")
	n.fails(js("nothing.of"), "ReferenceError", "nothing")
	n.fails(js("process.exit(3)"), "ProcessExit", "3")
	n.wants(js("process.exit(0)"), "", "")
	n.fails(
		js("setTimeout(() => { throw new Error('in a timer') }, 1); await new Promise((r) => setTimeout(r, 100000))"),
		"Error",
		"in a timer",
	)
	n.wants(js("kept"), "", "1")
}

func jsEnds(t *testing.T, n notebook) {
	n.do(codecontext.JavaScript, "end", "const x = 5")
	for _, code := range []string{"while (true) {}", "await new Promise(() => {})"} {
		c := n.cell(codecontext.JavaScript, "end", code)
		c.Timeout = time.Second
		if o := n.run(c, nil); !o.TimedOut || o.StateLost || o.Error == nil || o.Error.Name != "Interrupted" {
			t.Errorf("%s: %s", code, tell(o))
		}
	}
	n.wants(n.do(codecontext.JavaScript, "end", "x"), "", "5")
	o := n.do(codecontext.JavaScript, "end", "process.kill(process.pid, 'SIGKILL'); while (true) {}")
	if n.fails(o, codecontext.ContextDied, "SIGKILL"); !o.StateLost {
		t.Errorf("got %s", tell(o))
	}
	n.fails(n.do(codecontext.JavaScript, "end", "x"), "ReferenceError", "x")
}

// Drawing checks what pandas and matplotlib show, in sandboxes of an image that has them.
func Drawing(t *testing.T, open func(t *testing.T) providers.Provider, o fixture.Options) {
	t.Helper()
	n := newNotebook(t, fixture.New(t, open, o))
	drawn := n.do(codecontext.Python, "", "import matplotlib.pyplot as plt\nplt.plot([1, 3, 2])\nplt.show()")
	if len(drawn.Results) == 0 ||
		!strings.HasPrefix(unquote(drawn.Results[len(drawn.Results)-1].Data["image/png"]), "iVBORw0KGgo") ||
		len(drawn.Stderr) > 0 {
		t.Errorf("a plot: %s", tell(drawn))
	}
	again := n.do(codecontext.Python, "", "fig, ax = plt.subplots()\nax.bar([1, 2], [3, 4])\nfig")
	pictures := 0
	for _, r := range again.Results {
		if r.Data["image/png"] != nil {
			pictures++
		}
	}
	if pictures != 1 {
		t.Errorf("a figure that is shown and open has %d pictures: %s", pictures, tell(again))
	}
	frame := n.do(codecontext.Python, "", "import pandas as pd\npd.DataFrame({'a': [1, 2]})")
	if len(frame.Results) != 1 || !strings.Contains(unquote(frame.Results[0].Data["text/html"]), "<table") ||
		!strings.Contains(mainText(frame), "a\n0  1") {
		t.Errorf("a table: %s", tell(frame))
	}
}
