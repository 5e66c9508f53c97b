package envd_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"testing"
	"time"

	"sandyard/providers"
	"sandyard/providers/envd"
)

// soon ends calls whose answers have no end.
func soon(t *testing.T) context.Context {
	t.Helper()
	return deadline(t, 50*time.Millisecond)
}

// checkBackground makes the calls about commands that go on by themselves.
func checkBackground(t *testing.T, s *envd.Sandbox) {
	t.Helper()
	const limit = 100
	ctx := soon(t)
	checkError(t, "start", s.Start(ctx, providers.Command{Name: "x", Argv: []string{"true"}}))
	launched, err := s.Launch(ctx, providers.Command{Name: "x", Argv: []string{"true"}, Stdin: []byte("in")})
	checkError(t, "launch", err)
	shown, err := s.Exec(ctx, "x", time.Millisecond)
	checkError(t, "exec", err)
	for _, stream := range []providers.Stream{providers.Stdout, providers.Stderr, providers.Report} {
		out, err := s.Output(ctx, "x", providers.OutputQuery{Stream: stream, Offset: 3, Max: limit})
		checkError(t, "output", err)
		if len(out.Data) > limit || (err == nil && out.Begin < 3) {
			t.Errorf("of the output came %d bytes from %d on", len(out.Data), out.Begin)
		}
		checkExecs(t, "x", out.Exec)
	}
	checkExecs(t, "x", launched, shown)
	execs, err := s.Execs(ctx)
	checkError(t, "execs", err)
	checkExecs(t, "", execs...)
	fed, err := s.Feed(ctx, "x", providers.Input{ID: "i", Data: []byte("in"), Wait: time.Millisecond})
	checkError(t, "feed", err)
	settled, err := s.Settle(ctx, "x", "i")
	checkError(t, "settle", err)
	for _, f := range []providers.Fed{fed, settled} {
		for i := range f.Before {
			if f.Age < 0 || f.Before[i] < 0 || f.After[i] < 0 {
				t.Errorf("an input of %+v", f)
			}
		}
	}
	checkError(t, "signal", s.Signal(ctx, "x", "i", "INT"))
	checkError(t, "signal to a process", s.SignalProcess(ctx, providers.ProcessSignal{ID: "i", Pid: 2, Signal: "SIGINT"}))
	list, err := s.Processes(ctx)
	checkError(t, "processes", err)
	for _, p := range list.Processes {
		if p.Pid < 0 || p.Parent < 0 || p.Start < 0 || p.Threads < 0 || p.RSSKB < 0 || p.CPUMS < 0 || p.AgeMS < 0 || len(list.Processes) > list.Total {
			t.Errorf("a process of %+v", p)
		}
		checkKept(t, p)
	}
	checkError(t, "resize", s.Resize(ctx, "x", providers.TerminalSize{Cols: 80, Rows: 24}))
	checkError(t, "network", s.SetNetwork(ctx, true))
	tail, err := s.Tail(ctx, "x", 0)
	checkError(t, "tail", err)
	if err == nil {
		_, err = io.Copy(io.Discard, io.LimitReader(tail, 1<<16))
		checkError(t, "read the tail", err)
		_ = tail.Close()
	}
}

// checkExecs says that what is told of commands can be kept and is possible.
func checkExecs(t *testing.T, asked string, execs ...providers.Exec) {
	t.Helper()
	for _, e := range execs {
		if asked != "" && e.ID != "" && e.ID != asked {
			t.Errorf("another command than the one asked for: %q", e.ID)
		}
		if e.Pid < 0 || e.StdoutBytes < 0 || e.StderrBytes < 0 || e.AgeMS < 0 || e.DurationMS < 0 || (e.ExitCode != nil && *e.ExitCode&^0xff != 0) {
			t.Errorf("a command of %+v", e)
		}
		checkKept(t, e)
	}
}

// checkTools makes the calls that edit, search and batch.
func checkTools(t *testing.T, s *envd.Sandbox) {
	t.Helper()
	ctx := soon(t)
	edited, err := s.Edit(ctx, providers.Edit{Name: "x", Path: "f", Edits: []providers.Replacement{{Old: []byte("a"), New: []byte("b")}}})
	checkError(t, "edit", err)
	checkFiles(t, edited.File)
	for _, n := range edited.Replaced {
		if n < 0 {
			t.Errorf("%d replacements", n)
		}
	}
	globbed, err := s.Glob(ctx, providers.Glob{Path: "d", Pattern: "*", Limit: 2})
	checkError(t, "glob", err)
	if len(globbed.Entries) > 2 || globbed.Unreadable < 0 {
		t.Errorf("selected %+v", globbed)
	}
	checkFiles(t, globbed.Entries...)
	grepped, err := s.Grep(ctx, providers.Grep{Path: "d", Pattern: "a", Context: 1, Limit: 2})
	checkError(t, "grep", err)
	if len(grepped.Matches) > 2 || grepped.Searched < 0 || grepped.Binary < 0 || grepped.Unreadable < 0 {
		t.Errorf("found %+v", grepped)
	}
	checkKept(t, grepped)
	outcomes, err := s.WriteFiles(ctx, []providers.FileWrite{{Path: "f", Data: []byte("text")}})
	checkError(t, "write many", err)
	checkOutcomes(t, err, 1, outcomes)
	outcomes, err = s.ReadFiles(ctx, []string{"f", "g"}, 100)
	checkError(t, "read many", err)
	checkOutcomes(t, err, 2, outcomes)
}

func checkOutcomes(t *testing.T, err error, want int, outcomes []providers.FileOutcome) {
	t.Helper()
	if err != nil {
		return
	}
	if len(outcomes) != want {
		t.Errorf("%d outcomes of %d", len(outcomes), want)
	}
	sum := 0
	for _, o := range outcomes {
		if o.Err != nil {
			checkError(t, "a file of many", o.Err)
		}
		checkFiles(t, o.File)
		sum += len(o.Data)
	}
	if sum > 100 {
		t.Errorf("%d bytes were read", sum)
	}
}

// checkStreams makes the calls whose bodies are passed on as they come.
func checkStreams(t *testing.T, s *envd.Sandbox) {
	t.Helper()
	ctx := soon(t)
	for _, length := range []int64{-1, 0, 4} {
		f, err := s.OpenFile(ctx, "f", 0, length)
		checkError(t, "open", err)
		if err == nil {
			if f.Size < 0 || f.Mode > 0o777 {
				t.Errorf("a file of %d bytes with mode %o", f.Size, f.Mode)
			}
			checkKept(t, f.ModifiedAt)
			_ = f.Close()
		}
	}
	saved, err := s.SaveFile(ctx, "f", bytes.NewReader([]byte("text")), 4, 0)
	checkError(t, "save", err)
	checkFiles(t, saved)
	tree, err := s.OpenTree(ctx, "d", true)
	checkError(t, "open a tree", err)
	if err == nil {
		_ = tree.Close()
	}
	report, err := s.SaveTree(ctx, "d", bytes.NewReader([]byte("tar")))
	checkError(t, "save a tree", err)
	if report.Files < 0 || report.Bytes < 0 || len(report.Stripped) > 100 {
		t.Errorf("unpacked %+v", report)
	}
	checkKept(t, report)
	told := 0
	checkError(t, "watch", s.Watch(ctx, "d", true, func(e providers.FileEvent) error {
		if told++; e.Op == "" {
			t.Error("nothing was told")
		}
		checkKept(t, e)
		return nil
	}))
}

// checkFiles says that what is told of files can be kept.
func checkFiles(t *testing.T, files ...providers.FileInfo) {
	t.Helper()
	for _, f := range files {
		if f.Size < 0 {
			t.Errorf("a file of %d bytes", f.Size)
		}
		checkKept(t, f)
	}
}

// checkKept says that PostgreSQL takes what is made of an answer: JSON without a NUL.
func checkKept(t *testing.T, v any) {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Errorf("%+v is no JSON: %v", v, err)
	}
	if bytes.Contains(text, []byte(`\u0000`)) {
		t.Errorf("%s holds a NUL", text)
	}
}
