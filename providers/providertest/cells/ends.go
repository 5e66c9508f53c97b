package cells

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"sandyard/dev/testenv"
	"sandyard/providers"
	"sandyard/providers/codecontext"
	"sandyard/providers/providertest/fixture"
)

// interruptedCells checks that what is stopped in time keeps its context.
func interruptedCells(t *testing.T, n notebook) {
	for lang, codes := range map[string][3]string{
		codecontext.Python: {"x = 5", "import time\nwhile True: time.sleep(0.01)", "print(x)"},
		codecontext.Bash:   {"x=5", "while :; do sleep 0.01; done", "echo $x"},
	} {
		t.Run(lang, func(t *testing.T) {
			t.Parallel()
			n := n.on(t)
			context := "int-" + lang
			n.do(lang, context, codes[0])
			c := n.cell(lang, context, codes[1])
			c.Timeout = 300 * time.Millisecond
			o := n.run(c, nil)
			interrupted := o.Error != nil && o.Error.Name == "KeyboardInterrupt" || o.ExitCode != nil && *o.ExitCode == 130
			if !o.TimedOut || o.StateLost || !interrupted {
				t.Errorf("timed out: %s", tell(o))
			}
			stop := make(chan struct{})
			time.AfterFunc(100*time.Millisecond, func() { close(stop) })
			if o = n.run(n.cell(lang, context, codes[1]), stop); o.TimedOut || o.StateLost {
				t.Errorf("stopped: %s", tell(o))
			}
			n.wants(n.do(lang, context, codes[2]), "5\n", "")
		})
	}
	t.Run("async", func(t *testing.T) {
		t.Parallel()
		n := n.on(t)
		c := n.cell(codecontext.Python, "async", "import asyncio\ny = 6\nawait asyncio.sleep(1000)")
		c.Timeout = 2 * time.Second
		n.fails(n.run(c, nil), "KeyboardInterrupt", "")
		n.wants(n.do(codecontext.Python, "async", "await asyncio.sleep(0)\ny"), "", "6")
	})
}

// killedCells checks that what does not stop is killed with its context.
func killedCells(t *testing.T, n notebook) {
	c := n.cell(
		codecontext.Python,
		"deaf",
		"import signal, time\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nprint('deaf', flush=True)\n"+
			"while True: time.sleep(1)",
	)
	c.Timeout = 4 * time.Second
	o := n.run(c, nil)
	if n.fails(o, codecontext.ContextKilled, "lost"); !o.TimedOut || !o.StateLost || string(o.Stdout) != "deaf\n" {
		t.Errorf("got %s", tell(o))
	}
	n.wants(n.do(codecontext.Python, "deaf", "2"), "", "2")
}

// cellsRunOnce checks what happens to attempts after the first.
func cellsRunOnce(t *testing.T, n notebook) {
	for name, ending := range map[string]string{
		"done": "print('once')",
		"dead": "print('once', flush=True); os._exit(1)",
	} {
		n.do(codecontext.Python, "once-"+name, "'started for another'")
		c := n.cell(codecontext.Python, "once-"+name, "import os\nopen('"+name+"', 'a').write('x')\n"+ending)
		first := n.run(c, nil)
		c.Again = true
		again := n.run(c, nil)
		if tell(again) != tell(first) || string(again.Stdout) != "once\n" {
			t.Errorf("%s: the first attempt got\n%s\nthe second\n%s", name, tell(first), tell(again))
		}
		fixture.WantFile(t, n.room, name, "x")
		n.wants(n.do(codecontext.Python, "once-"+name, "'next'"), "", "'next'")
	}
}

func contexts(t *testing.T, n notebook) {
	n.do(codecontext.Python, "ctx-a", "x = 'a'")
	n.do(codecontext.Python, "ctx-b", "x = 'b'")
	n.do(codecontext.Python, "", "x = 'default'")
	n.wants(n.do(codecontext.Python, "ctx-a", "x"), "", "'a'")
	n.wants(n.do(codecontext.Python, "python", "x"), "", "'default'")
	_, err := codecontext.Run(fixture.Within(t), n.box, n.cell(codecontext.Bash, "ctx-a", "true"), nil)
	fixture.WantClass(t, err, providers.Invalid)
	named := func(name string) (lang string) {
		list, err := codecontext.List(fixture.Within(t), n.box)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range list {
			if c.Name == name && c.Pid > 0 {
				lang += c.Language
			}
		}
		return lang
	}
	if named("ctx-a") != codecontext.Python || named("ctx-b") != codecontext.Python ||
		named(codecontext.Python) != codecontext.Python {
		t.Error("the contexts that run are not listed once each")
	}
	for range 2 {
		if err := codecontext.Delete(fixture.Within(t), n.box, "ctx-a"); err != nil {
			t.Fatal(err)
		}
	}
	if named("ctx-a") != "" || named("ctx-b") == "" {
		t.Error("the wrong context was deleted")
	}
	n.fails(n.do(codecontext.Python, "ctx-a", "x"), "NameError", "x")
	stuck := make(chan codecontext.Outcome, 1)
	c := n.cell(codecontext.Python, "ctx-c", "open('begun', 'w')\nimport time\ntime.sleep(1000)")
	go func() {
		o, _ := codecontext.Run(context.WithoutCancel(t.Context()), n.box, c, nil)
		stuck <- o
	}()
	testenv.Eventually(t, "the cell runs", func() bool { _, err := n.room.Stat(t.Context(), "begun"); return err == nil })
	n.wants(n.do(codecontext.Python, "ctx-b", "x"), "", "'b'") // beside it
	if err := codecontext.Delete(fixture.Within(t), n.box, "ctx-c"); err != nil {
		t.Fatal(err)
	}
	if o := <-stuck; o.Error == nil || o.Error.Name != codecontext.ContextDied || !o.StateLost {
		t.Errorf("a cell whose context is deleted: %s", tell(o))
	}
}

// madeContexts checks contexts that are started before their first cell.
func madeContexts(t *testing.T, n notebook) {
	alone := func(context.Context) (func(), error) { return func() {}, nil }
	create := func(w codecontext.Wish) (bool, error) {
		t.Helper()
		return codecontext.Create(fixture.Within(t), n.box, w, alone)
	}
	for lang, code := range map[string]string{
		codecontext.Python: "import os\nprint(os.environ['WORD'], os.getcwd())", codecontext.Bash: `echo "$WORD $PWD"`,
	} {
		w := codecontext.Wish{
			ID:       fixture.NewID(t),
			Language: lang,
			Context:  "made-" + lang,
			Env:      map[string]string{"WORD": "kept"},
			Dir:      "/tmp",
		}
		for range 2 { // the second is another attempt at the first
			if existing, err := create(w); existing || err != nil {
				t.Errorf("%s: existing %v, %v", lang, existing, err)
			}
		}
		for range 2 {
			if o := n.do(lang, w.Context, code); string(o.Stdout) != "kept /tmp\n" || o.Error != nil || o.StateLost {
				t.Errorf("%s: %s", lang, tell(o))
			}
		}
		if existing, err := create(w); existing || err != nil { // also when cells have run in it
			t.Errorf("%s: existing %v, %v", lang, existing, err)
		}
		w.ID = fixture.NewID(t)
		if existing, err := create(w); !existing || err != nil {
			t.Errorf("%s, which runs: existing %v, %v", lang, existing, err)
		}
		if o := n.do(lang, w.Context, code); o.Count != 3 {
			t.Errorf("the first context did not go on: %s", tell(o))
		}
	}
	fails := func(class providers.Class, part string, w codecontext.Wish) {
		t.Helper()
		w.ID = fixture.NewID(t)
		_, err := create(w)
		if fixture.WantClass(t, err, class); err != nil && !strings.Contains(err.Error(), part) {
			t.Errorf("it does not say %q: %v", part, err)
		}
	}
	fails(providers.Invalid, "made-bash", codecontext.Wish{Language: codecontext.Python, Context: "made-bash"})
	fails(providers.NoDir, "/nowhere", codecontext.Wish{Language: codecontext.Python, Context: "nowhere", Dir: "/nowhere"})
	fails(providers.NoCommand, "node", codecontext.Wish{Language: codecontext.JavaScript, Context: "node"})
	fails(
		providers.NoContext,
		"encodings",
		codecontext.Wish{Language: codecontext.Python, Context: "homeless", Env: map[string]string{"PYTHONHOME": "/nowhere"}},
	)
	w := codecontext.Wish{ID: fixture.NewID(t), Language: codecontext.Python, Context: "abandoned"}
	_, err := create(w)
	for range 2 {
		if err == nil {
			err = codecontext.Abandon(fixture.Within(t), n.box, w)
		}
	}
	if err != nil {
		t.Error(err)
	}
	n.fails(n.do(codecontext.Python, "abandoned", "WORD"), "NameError", "WORD")
}

func cellOutput(t *testing.T, n notebook) {
	c := n.cell(codecontext.Python, "much", "for i in range(100_000): print(str(i).rjust(99))")
	c.MaxOutput = 1000
	o := n.run(c, nil)
	if len(o.Stdout) != 1000 || !strings.HasSuffix(string(o.Stdout), " 99999\n") || o.StdoutBytes != 10_000_000 {
		t.Errorf("got %d bytes of %d: %.100q", len(o.Stdout), o.StdoutBytes, o.Stdout)
	}
	for i := range 20 { // no output is lost, nor told of the wrong cell
		n.wants(n.do(codecontext.Python, "much", fmt.Sprintf("import os\nos.system('echo %d')\nprint('x' * %d)", i, i*1000)),
			fmt.Sprintf("%d\n%s\n", i, strings.Repeat("x", i*1000)), "")
	}
}

// longCells checks code that fills the pipe to a driver many times over.
func longCells(t *testing.T, n notebook) {
	text := strings.Repeat("0123456789abcde\n", 20_000)
	n.wants(n.do(codecontext.Python, "long", "len('''"+text+"''')"), "", "320000")
	n.wants(n.do(codecontext.Bash, "long-sh", "text='"+text+"'\necho ${#text}"), "320000\n", "")
}

// hungryCell checks a cell that takes more memory than the sandbox has: the sandbox lives on.
func hungryCell(t *testing.T, s *fixture.Suite) {
	s.NeedsLimits(t)
	if s.OwnKernel {
		t.Skip("skipped: such a sandbox ends with its memory")
	}
	n := notebookIn(t, s, 128)
	o := n.do(codecontext.Python, "", "x = [b'x' * (1 << 20) for i in range(1000)]")
	if n.fails(o, codecontext.OutOfMemory, "lack of memory"); !o.StateLost {
		t.Errorf("got %s", tell(o))
	}
	n.wants(n.do(codecontext.Python, "", "'lives'"), "", "'lives'")
}

// pausedCell checks that a cell goes on after a pause.
func pausedCell(t *testing.T, s *fixture.Suite) {
	n := newNotebook(t, s)
	pauser, ok := fixture.Pauser(n.room.Worker)
	if !ok {
		t.Skip("skipped: the provider cannot pause")
	}
	ended := make(chan error, 1)
	c := n.cell(
		codecontext.Python,
		"",
		"import os, time\nopen('begun', 'a').write('x')\nwhile not os.path.exists('go'): time.sleep(0.02)\n'woken'",
	)
	go func() {
		_, err := codecontext.Run(fixture.Within(t), n.box, c, nil)
		ended <- err
	}()
	testenv.Eventually(t, "the cell runs", func() bool { _, err := n.room.Stat(t.Context(), "begun"); return err == nil })
	if err := pauser.Pause(fixture.Within(t), n.room.ID); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; !errors.Is(err, providers.ErrPaused) {
		t.Errorf("with the pause the cell's wait ends with %v, want ErrPaused", err)
	}
	if err := pauser.Resume(fixture.Within(t), n.room.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := fixture.MustOpen(t, n.room.Worker, n.room.ID).WriteFile(fixture.Within(t), "go", nil, 0); err != nil {
		t.Fatal(err)
	}
	c.Again = true
	o, err := codecontext.Run(fixture.Within(t), n.box, c, nil)
	if err != nil {
		t.Fatal(err)
	}
	n.wants(o, "", "'woken'")
	fixture.WantFile(t, n.room, "begun", "x")
}

// cellsLive checks that a cell's output can be followed under its own name.
func cellsLive(t *testing.T, n notebook) {
	n.wants(n.do(codecontext.Python, "live", "print('before')"), "before\n", "")
	c := n.cell(
		codecontext.Python,
		"live",
		"import os, time\nprint('begun', flush=True)\nwhile not os.path.exists('go-on'): time.sleep(0.02)\nprint('end')",
	)
	got := make(chan codecontext.Outcome, 1)
	go func() {
		o, err := codecontext.Run(fixture.Within(t), n.box, c, nil)
		if err != nil {
			t.Error(err)
		}
		got <- o
	}()
	testenv.Eventually(
		t,
		"the cell is known",
		func() bool { _, err := n.box.Exec(t.Context(), c.ID, 0); return err == nil },
	)
	if text, e := fixture.Output(t, n.box, c.ID, providers.Stdout, 6); text != "begun\n" || !e.Running || e.ID != c.ID ||
		e.StdoutBytes != 6 {
		t.Errorf("while it runs: %q %+v", text, e)
	}
	ended := make(chan providers.Exec, 1)
	go func() {
		e, err := n.box.Exec(fixture.Within(t), c.ID, time.Minute)
		if err != nil {
			t.Error(err)
		}
		ended <- e
	}()
	if _, err := n.room.WriteFile(fixture.Within(t), "go-on", nil, 0); err != nil {
		t.Fatal(err)
	}
	n.wants(<-got, "begun\nend\n", "")
	if e := <-ended; e.Running {
		t.Errorf("at its end: %+v", e)
	}
	if text, e := fixture.Output(t, n.box, c.ID, providers.Stdout, 10); text != "begun\nend\n" || e.Running {
		t.Errorf("after its end: %q %+v", text, e)
	}
	n.wants(n.do(codecontext.Python, "live", "print('next')"), "next\n", "")
	if text, e := fixture.Output(t, n.box, c.ID, providers.Stdout, 1); text != "" || e.StdoutBytes != 10 {
		t.Errorf("after the next cell: %q %+v", text, e)
	}
	_, err := n.box.Output(fixture.Within(t), fixture.NewID(t), providers.OutputQuery{})
	fixture.WantClass(t, err, providers.NoExec)
}

// fakedCells checks what code that writes a report of its own can do: nothing to others.
func fakedCells(t *testing.T, n notebook) {
	o := n.do(codecontext.Python, "fake", `
import os
for fd in range(3, 1024):
    try:
        if os.readlink("/proc/self/fd/%d" % fd).startswith("pipe:"):
            os.write(fd, b'nonsense {{{\n{"id": 7}\n[]\n\x00\xff\n{"type":"done","id":"another"}\n' + b"x" * (1 << 20) + b"\n")
    except OSError:
        pass
print("through")`)
	if o.StateLost && o.Error == nil || len(o.Results) > 0 {
		t.Errorf("got %s", tell(o))
	}
	flood := n.cell(codecontext.Python, "flood", `
import os
for fd in range(3, 1024):
    try:
        while os.readlink("/proc/self/fd/%d" % fd).startswith("pipe:"):
            os.write(fd, b"nothing\n" * 8192)
    except OSError:
        pass`)
	flood.Timeout = 5 * time.Minute // the race detector makes it slow
	o = n.run(flood, nil)
	if n.fails(o, codecontext.ContextKilled, "64 MiB"); !o.StateLost || o.TimedOut {
		t.Errorf("got %s", tell(o))
	}
	o = n.do(codecontext.Python, "fake2", "import os\nos.closerange(3, 1024)")
	n.fails(o, codecontext.ContextDied, "")
	n.wants(n.do(codecontext.Python, "fake2", "3"), "", "3")
}

// cellTakenOver checks that a cell goes on when its worker dies, and is joined by another.
func cellTakenOver(t *testing.T, s *fixture.Suite, n notebook) {
	c := n.cell(codecontext.Python, "over", "import os, time\nprint('begun', flush=True)\nopen('over', 'a').write('x')\n"+
		"while not os.path.exists('go'): time.sleep(0.02)\n'over'")
	ctx, die := context.WithCancel(fixture.Within(t))
	left := make(chan error, 1)
	go func() {
		_, err := codecontext.Run(ctx, n.box, c, nil)
		left <- err
	}()
	testenv.Eventually(t, "the cell runs", func() bool { _, err := n.room.Stat(t.Context(), "over"); return err == nil })
	die()
	if err := <-left; err == nil {
		t.Error("the first worker got a result")
	}
	taken := fixture.MustOpen(t, s.Open(t), n.room.ID)
	other, err := codecontext.In(taken)
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan codecontext.Outcome, 1)
	c.Again = true
	go func() {
		o, err := codecontext.Run(fixture.Within(t), other, c, nil)
		if err != nil {
			t.Error(err)
		}
		got <- o
	}()
	if _, err := taken.WriteFile(fixture.Within(t), "go", nil, 0); err != nil {
		t.Fatal(err)
	}
	n.wants(<-got, "begun\n", "'over'")
	fixture.WantFile(t, taken, "over", "x")
}
