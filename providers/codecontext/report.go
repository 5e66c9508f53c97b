package codecontext

import (
	"bytes"
	"encoding/json"
	"strings"
)

// Bounds of what is taken from a sandbox about one cell. Its driver keeps the same ones; hostile code does not.
const (
	maxResults = 100
	maxBytes   = 4 << 20
	maxLine    = maxBytes + 64<<10
	maxText    = 64 << 10 // of each part of an error
)

// frame is a line of a driver's report.
type frame struct {
	ID       string                     `json:"id"`
	Type     string                     `json:"type"` // ready, of the driver itself; begin, result, cut or done, of a cell
	Count    int                        `json:"count"`
	Main     bool                       `json:"main"`
	Data     map[string]json.RawMessage `json:"data"`
	Error    *Error                     `json:"error"`
	ExitCode *int                       `json:"exit_code"`
}

// report collects what a driver tells of one cell.
type report struct {
	id      string
	line    []byte // the beginning of one that has not come whole
	skip    bool   // the rest of the line is of no use
	size    int
	begun   bool
	done    bool
	results []Result
	cut     bool
	last    frame // done, once it has come
	count   int
}

// gap says that something before the next byte is missing.
func (r *report) gap() {
	r.line, r.skip, r.cut, r.begun = nil, true, true, true
}

// add takes the next piece of the report, and answers whether the cell is done.
func (r *report) add(b []byte) bool {
	for len(b) > 0 && !r.done {
		line, rest, whole := bytes.Cut(b, []byte("\n"))
		b = rest
		if len(r.line)+len(line) > maxLine {
			r.gap()
		}
		if !r.skip {
			r.line = append(r.line, line...)
		}
		if whole {
			r.take()
			r.line, r.skip = nil, false
		}
	}
	return r.done
}

// take reads a whole line. What is no line of a driver's is none of the cell's business.
func (r *report) take() {
	var f frame
	if json.Unmarshal(r.line, &f) != nil {
		return
	}
	if f.ID != r.id {
		if r.begun && f.Type == "begin" { // a context runs one cell at a time, so ours is over
			r.done, r.cut = true, true
		}
		return
	}
	switch f.Type {
	case "begin":
		r.begun, r.count = true, min(max(f.Count, 0), 1<<31-1)
	case "result":
		r.keep(f)
	case "cut":
		r.cut = true
	case "done":
		if f.ExitCode != nil { // no process can end with more, whatever hostile code says
			*f.ExitCode &= 0xff
		}
		r.done, r.last = true, f
	}
}

func (r *report) keep(f frame) {
	if len(f.Data) == 0 || len(r.results) >= maxResults || r.size+len(r.line) > maxLine {
		r.cut = true
		return
	}
	r.size += len(r.line)
	r.results = append(r.results, Result{Main: f.Main, Data: f.Data})
}

// bounded is an error that can be stored.
func bounded(e *Error) *Error {
	if e == nil {
		return nil
	}
	return &Error{Name: text(e.Name, 256), Value: text(e.Value, maxText), Traceback: text(e.Traceback, maxText)}
}

func text(s string, limit int) string {
	if len(s) > limit {
		s = s[:limit]
	}
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}
