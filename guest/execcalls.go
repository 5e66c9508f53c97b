package guest

import (
	"net/http"
	"slices"
	"strconv"
	"time"

	"sandyard/guest/protocol"
)

// defaultGrace is how long a command that is told to end has before it is killed; maxGrace is the most it can get.
const (
	defaultGrace = 2 * time.Second
	maxGrace     = 5 * time.Minute
)

// listExecs lists named commands; with background=1 those that run in the background and were not forgotten.
func (g *Guest) listExecs(_ http.ResponseWriter, r *http.Request) (any, error) {
	list := g.execs.Infos()
	if r.URL.Query().Get("background") == "1" {
		list = slices.DeleteFunc(list, func(i protocol.ExecInfo) bool { return !i.Background || i.Forgotten })
	}
	return list, nil
}

func (g *Guest) showExec(_ http.ResponseWriter, r *http.Request) (any, error) {
	e, err := g.execs.Output(r.Context(), r.PathValue("name"))
	if err != nil {
		return nil, err
	}
	ctx, cancel := waiting(r.Context(), r)
	defer cancel()
	return e.Await(ctx), nil
}

func (g *Guest) forgetExec(_ http.ResponseWriter, r *http.Request) (any, error) {
	return nil, g.execs.Forget(r.PathValue("name"))
}

// killExec answers when nothing of the command is left. The parameters are grace_ms and reason.
func (g *Guest) killExec(_ http.ResponseWriter, r *http.Request) (any, error) {
	grace := defaultGrace
	if text := r.URL.Query().Get("grace_ms"); text != "" {
		ms, err := strconv.ParseUint(text, 10, 32)
		if err != nil {
			return nil, protocol.Errorf(protocol.ReasonInvalid, "grace_ms '%s' is not a number of milliseconds", text)
		}
		grace = min(time.Duration(ms)*time.Millisecond, maxGrace)
	}
	e, err := g.execs.Named(r.PathValue("name"))
	if err != nil {
		return nil, err
	}
	e.Kill(grace, r.URL.Query().Get("reason"))
	return e.Info(), nil
}

// writeStdin takes the command's input from the byte that the parameter offset names; eof=1 ends it.
func (g *Guest) writeStdin(_ http.ResponseWriter, r *http.Request) (any, error) {
	offset := int64(0)
	if err := readNumber("offset", r.URL.Query().Get("offset"), &offset); err != nil {
		return nil, err
	}
	e, err := g.execs.Named(r.PathValue("name"))
	if err != nil {
		return nil, err
	}
	return nil, e.WriteStdin(r.Context(), offset, r.Body, r.URL.Query().Get("eof") == "1")
}
