package guest

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"sandyard/guest/execs"
	"sandyard/guest/protocol"
)

const (
	maxWait   = 5 * time.Minute // of one call; whoever wants more asks again
	maxOutput = 4 << 20         // bytes of one answer
)

// launchExec starts a background command, or finds the one that has its name.
func (g *Guest) launchExec(w http.ResponseWriter, r *http.Request) {
	var l protocol.Launch
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxMessage)).Decode(&l); err != nil {
		writeError(w, protocol.Errorf(protocol.ReasonInvalid, "read the command: %v", err))
		return
	}
	c := execs.Command{
		Name: r.PathValue("name"), Argv: l.Argv, Env: l.Env, Dir: l.Dir, Stdin: l.Stdin, Report: l.Report,
		MaxOutput: l.MaxOutput, Timeout: time.Duration(l.TimeoutMs) * time.Millisecond, Background: true, Anew: l.Anew,
		Merge: l.Merge,
	}
	if l.Terminal != nil {
		c.TTY = &execs.Size{Cols: l.Terminal.Cols, Rows: l.Terminal.Rows}
	}
	if l.Shell != "" {
		c.Shell, c.Argv = true, []string{l.Shell}
	}
	e, err := g.execs.Start(c)
	if err != nil {
		writeError(w, err)
		return
	}
	writeJSON(w, http.StatusOK, e.Info())
}

// readOutput answers with bytes of one stream and, in a header, how the command is.
func (g *Guest) readOutput(w http.ResponseWriter, r *http.Request) {
	e, err := g.execs.Output(r.Context(), r.PathValue("name"))
	if err != nil {
		writeError(w, err)
		return
	}
	stream, offset, limit := int64(0), int64(0), int64(maxOutput)
	for name, to := range map[string]*int64{"stream": &stream, "offset": &offset, "max": &limit} {
		if err := readParameter(r, name, to); err != nil {
			writeError(w, err)
			return
		}
	}
	if stream > int64(execs.Report) {
		writeError(w, protocol.Errorf(protocol.ReasonInvalid, "there is no stream %d", stream))
		return
	}
	ctx, cancel := waiting(r.Context(), r)
	defer cancel()
	b, begin, info := e.Read(ctx, execs.Stream(stream), offset, int(min(limit, maxOutput)))
	report, err := json.Marshal(info)
	if err != nil {
		writeError(w, err)
		return
	}
	w.Header().Set(protocol.OffsetHeader, strconv.FormatInt(begin, 10))
	w.Header().Set(protocol.InfoHeader, string(report))
	w.Header().Set("Content-Type", "application/octet-stream")
	_, _ = w.Write(b) // a caller that is gone needs no answer
}

// feedExec appends the body to a command's input.
func (g *Guest) feedExec(w http.ResponseWriter, r *http.Request) {
	data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxMessage))
	if err != nil {
		writeError(w, protocol.Errorf(protocol.ReasonInvalid, "read the input: %v", err))
		return
	}
	e, err := g.execs.Named(r.PathValue("name"))
	if err != nil {
		writeError(w, err)
		return
	}
	ctx, cancel := waiting(r.Context(), r)
	defer cancel()
	q := r.URL.Query()
	fed, err := e.Feed(
		ctx,
		execs.Input{ID: q.Get("id"), Data: data, EOF: q.Get("eof") == "1", Fresh: q.Get("fresh") == "1"},
	)
	if err != nil {
		writeError(w, err)
		return
	}
	writeJSON(w, http.StatusOK, fed)
}

// settleExec takes in what a command has written, as the output of one of its inputs.
func (g *Guest) settleExec(w http.ResponseWriter, r *http.Request) {
	var fed protocol.Fed
	e, err := g.execs.Named(r.PathValue("name"))
	if err == nil {
		fed, err = e.Settle(r.Context(), r.URL.Query().Get("id"))
	}
	if err != nil {
		writeError(w, err)
		return
	}
	writeJSON(w, http.StatusOK, fed)
}

// signalExec sends a signal, by its name such as SIGINT.
func (g *Guest) signalExec(w http.ResponseWriter, r *http.Request) {
	name := r.URL.Query().Get("signal")
	number := unix.SignalNum(name)
	e, err := g.execs.Named(r.PathValue("name"))
	if err == nil && number == 0 {
		err = protocol.Errorf(protocol.ReasonInvalid, "'%s' is not a signal", name)
	}
	if err == nil {
		err = e.SignalOnce(r.URL.Query().Get("id"), number)
	}
	if err != nil {
		writeError(w, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// waiting is the request's context for as long as its parameter wait_ms allows.
func waiting(ctx context.Context, r *http.Request) (context.Context, context.CancelFunc) {
	ms, err := strconv.ParseUint(r.URL.Query().Get("wait_ms"), 10, 32)
	if err != nil {
		ms = 0
	}
	return context.WithTimeout(ctx, min(time.Duration(ms)*time.Millisecond, maxWait))
}

// readParameter leaves *to as it is when the parameter is absent.
func readParameter(r *http.Request, name string, to *int64) error {
	text := r.URL.Query().Get(name)
	if text == "" {
		return nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 {
		return protocol.Errorf(protocol.ReasonInvalid, "%s '%s' is not a number", name, text)
	}
	*to = n
	return nil
}
