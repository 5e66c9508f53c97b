package guest

import (
	"context"
	"math"
	"net/http"
	"strconv"
	"time"

	"sandyard/guest/execs"
	"sandyard/guest/protocol"
)

// tailExec streams a command's output for as long as somebody reads it. A stream that is whole has come to the
// command's end, or to where bytes are missing.
func (g *Guest) tailExec(w http.ResponseWriter, r *http.Request) {
	offset := int64(0)
	e, err := g.execs.Named(r.PathValue("name"))
	if err == nil {
		err = readNumber("offset", r.URL.Query().Get("offset"), &offset)
	}
	if err != nil {
		writeError(w, err)
		return
	}
	control := http.NewResponseController(w)
	begin := func(at int64) error {
		w.Header().Set(protocol.OffsetHeader, strconv.FormatInt(at, 10))
		w.Header().Set("Content-Type", "application/octet-stream")
		w.WriteHeader(http.StatusOK)
		return control.Flush()
	}
	defer endWrites(r, control)()
	err = e.Tail(r.Context(), offset, begin, func(b []byte) error {
		if _, err := w.Write(b); err != nil {
			return err
		}
		return control.Flush()
	}, cutOff)
	if err != nil {
		panic(http.ErrAbortHandler) // the only way left to say that this was not all
	}
}

// endWrites makes the end of a request end a write that waits for its client, and a command with it: a reader that is
// gone takes nothing any more. The returned function ends that.
func endWrites(r *http.Request, control *http.ResponseController) (stop func() bool) {
	return context.AfterFunc(r.Context(), func() { _ = control.SetWriteDeadline(time.Unix(1, 0)) })
}

// untilGone serves streams until their clients are gone.
func untilGone(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer endWrites(r, http.NewResponseController(w))()
		next.ServeHTTP(w, r)
	})
}

// overKey is the key of the channel that is closed when the conversation with the worker has ended.
type overKey struct{}

// cutPatience is how long it may take until a stream that broke off with its conversation can be told from one that was
// closed.
const cutPatience = time.Second

// cutOff says whether a request's stream broke off with the whole conversation.
func cutOff(ctx context.Context) bool {
	over, ok := ctx.Value(overKey{}).(<-chan struct{})
	if !ok {
		return false
	}
	select {
	case <-over:
		return true
	case <-time.After(cutPatience):
		return false
	}
}

// resizeExec sets the size of a command's terminal.
func (g *Guest) resizeExec(_ http.ResponseWriter, r *http.Request) (any, error) {
	cols, rows := int64(0), int64(0)
	e, err := g.execs.Named(r.PathValue("name"))
	if err == nil {
		err = readNumber("cols", r.URL.Query().Get("cols"), &cols)
	}
	if err == nil {
		err = readNumber("rows", r.URL.Query().Get("rows"), &rows)
	}
	if err != nil {
		return nil, err
	}
	return nil, resize(e, cols, rows)
}

func resize(e *execs.Exec, cols, rows int64) error {
	if cols < 1 || cols > math.MaxUint16 || rows < 1 || rows > math.MaxUint16 {
		return protocol.Errorf(protocol.ReasonInvalid, "a terminal has no size of %d columns and %d rows", cols, rows)
	}
	select {
	case <-e.Done():
		return protocol.Errorf(protocol.ReasonEnded, "the command has ended")
	default:
		return e.Resize(execs.Size{Cols: uint16(cols), Rows: uint16(rows)})
	}
}
