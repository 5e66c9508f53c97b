package codecontext

import (
	"fmt"
	"strings"
	"testing"
)

func TestReportIsReadInAnyPieces(t *testing.T) {
	t.Parallel()
	const all = `{"id":"x","type":"done"}
noise
{"id":"c","type":"begin","count":3}
{"id":"c","type":"result","main":true,"data":{"text/plain":"42"}}
{"id":"x","type":"result","data":{"text/plain":"of another"}}
{"id":"c","type":"done","count":3,"error":{"name":"E","value":"v"},"exit_code":4}
{"id":"d","type":"begin","count":4}
`
	for size := 1; size <= len(all); size++ {
		r := report{id: "c"}
		for rest := all; rest != "" && !r.done; {
			piece := rest[:min(size, len(rest))]
			rest = rest[len(piece):]
			r.add([]byte(piece))
		}
		if !r.done || r.count != 3 || len(r.results) != 1 || r.last.Error.Name != "E" || *r.last.ExitCode != 4 || r.cut {
			t.Fatalf("in pieces of %d: %+v", size, r)
		}
	}
}

func TestReportIsBounded(t *testing.T) {
	t.Parallel()
	r := report{id: "c"}
	piece := []byte(strings.Repeat("x", 1<<20))
	for range 64 {
		r.add(piece)
		if len(r.line) > maxLine {
			t.Fatalf("a line without an end takes %d bytes", len(r.line))
		}
	}
	r.add([]byte("\n"))
	for i := range 10 * maxResults {
		r.add(fmt.Appendf(nil, `{"id":"c","type":"result","data":{"text/plain":%d}}`+"\n", i))
	}
	if len(r.results) != maxResults || !r.cut {
		t.Errorf("%d results are kept", len(r.results))
	}
	r = report{id: "c"}
	for range 16 {
		r.add(fmt.Appendf(nil, `{"id":"c","type":"result","data":{"text/plain":%q}}`+"\n", piece))
	}
	if r.size > maxLine || len(r.results) > 4 {
		t.Errorf("%d results of %d bytes are kept", len(r.results), r.size)
	}
	e := bounded(&Error{Name: "a\x00b", Value: "\xff" + strings.Repeat("y", 1<<20)})
	if e.Name != "a\uFFFDb" || len(e.Value) > maxText+8 || strings.Contains(e.Value, "\xff") {
		t.Errorf("an error becomes %.80q", e)
	}
}

// TestExitCodeIsOneOfAProcess: code in the sandbox can write into its driver's report.
func TestExitCodeIsOneOfAProcess(t *testing.T) {
	t.Parallel()
	for said, want := range map[string]int{"0": 0, "4": 4, "-1": 255, "256": 0, "9999999999": 255} {
		r := report{id: "c"}
		r.add([]byte(`{"id":"c","type":"done","exit_code":` + said + "}\n"))
		if !r.done || *r.last.ExitCode != want {
			t.Errorf("%s becomes %d, want %d", said, *r.last.ExitCode, want)
		}
	}
}

// TestReportWithGap: what came before is not kept by the sandbox any more.
func TestReportWithGap(t *testing.T) {
	t.Parallel()
	r := report{id: "c"}
	r.add([]byte(`{"id":"c","type":"begin","count":1}` + "\n" + `{"id":"c","ty`))
	r.gap()
	if r.add([]byte(`"rest of a line"}` + "\n" + `{"id":"c","type":"result","data":{"text/plain":1}}` + "\n")) {
		t.Fatal("it is done")
	}
	if !r.cut || len(r.results) != 1 {
		t.Errorf("got %+v", r)
	}
	if !r.add([]byte(`{"id":"d","type":"begin","count":2}` + "\n")) {
		t.Error("the next cell has begun, and this one is not over")
	}
}

func FuzzReport(f *testing.F) {
	f.Add([]byte(`{"id":"c","type":"result","data":{"a":1}}`+"\n"), 3)
	f.Add([]byte(`{"id":"c","type":"done","error":{}}`+"\n"), 1)
	f.Fuzz(func(t *testing.T, all []byte, size int) {
		whole, pieces := report{id: "c"}, report{id: "c"}
		whole.add(all)
		size = max(1, size%64)
		for rest := all; len(rest) > 0; {
			n := min(size, len(rest))
			pieces.add(rest[:n])
			rest = rest[n:]
		}
		if whole.done != pieces.done || len(whole.results) != len(pieces.results) || whole.count != pieces.count {
			t.Errorf("at once %+v, in pieces %+v", whole, pieces)
		}
	})
}
