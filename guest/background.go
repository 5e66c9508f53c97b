package guest

import (
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
func (g *Guest) launchExec(w http.ResponseWriter, r *http.Request) (any, error) {
	l, err := body[protocol.Launch](w, r)
	if err != nil {
		return nil, err
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
		return nil, err
	}
	return e.Info(), nil
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
		if err := readNumber(name, r.URL.Query().Get(name), to); err != nil {
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
func (g *Guest) feedExec(w http.ResponseWriter, r *http.Request) (any, error) {
	data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxMessage))
	if err != nil {
		return nil, protocol.Errorf(protocol.ReasonInvalid, "read the input: %v", err)
	}
	e, err := g.execs.Named(r.PathValue("name"))
	if err != nil {
		return nil, err
	}
	ctx, cancel := waiting(r.Context(), r)
	defer cancel()
	q := r.URL.Query()
	return e.Feed(
		ctx,
		execs.Input{ID: q.Get("id"), Data: data, EOF: q.Get("eof") == "1", Fresh: q.Get("fresh") == "1"},
	)
}

// settleExec takes in what a command has written, as the output of one of its inputs.
func (g *Guest) settleExec(_ http.ResponseWriter, r *http.Request) (any, error) {
	e, err := g.execs.Named(r.PathValue("name"))
	if err != nil {
		return nil, err
	}
	return e.Settle(r.Context(), r.URL.Query().Get("id"))
}

// signalExec sends a signal, by its name such as SIGINT.
func (g *Guest) signalExec(_ http.ResponseWriter, r *http.Request) (any, error) {
	name := r.URL.Query().Get("signal")
	number := unix.SignalNum(name)
	e, err := g.execs.Named(r.PathValue("name"))
	if err != nil {
		return nil, err
	}
	if number == 0 {
		return nil, protocol.Errorf(protocol.ReasonInvalid, "'%s' is not a signal", name)
	}
	return nil, e.SignalOnce(r.URL.Query().Get("id"), number)
}
