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
func (g *Guest) listExecs(w http.ResponseWriter, r *http.Request) {
	list := g.execs.Infos()
	if r.URL.Query().Get("background") == "1" {
		list = slices.DeleteFunc(list, func(i protocol.ExecInfo) bool { return !i.Background || i.Forgotten })
	}
	writeJSON(w, http.StatusOK, list)
}

func (g *Guest) showExec(w http.ResponseWriter, r *http.Request) {
	e, err := g.execs.Output(r.Context(), r.PathValue("name"))
	if err != nil {
		writeError(w, err)
		return
	}
	ctx, cancel := waiting(r.Context(), r)
	defer cancel()
	writeJSON(w, http.StatusOK, e.Await(ctx))
}

func (g *Guest) forgetExec(w http.ResponseWriter, r *http.Request) {
	if err := g.execs.Forget(r.PathValue("name")); err != nil {
		writeError(w, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// killExec answers when nothing of the command is left. The parameters are grace_ms and reason.
func (g *Guest) killExec(w http.ResponseWriter, r *http.Request) {
	grace := defaultGrace
	if text := r.URL.Query().Get("grace_ms"); text != "" {
		ms, err := strconv.ParseUint(text, 10, 32)
		if err != nil {
			writeError(w, protocol.Errorf(protocol.ReasonInvalid, "grace_ms '%s' is not a number of milliseconds", text))
			return
		}
		grace = min(time.Duration(ms)*time.Millisecond, maxGrace)
	}
	e, err := g.execs.Named(r.PathValue("name"))
	if err != nil {
		writeError(w, err)
		return
	}
	e.Kill(grace, r.URL.Query().Get("reason"))
	writeJSON(w, http.StatusOK, e.Info())
}

// writeStdin takes the command's input from the byte that the parameter offset names; eof=1 ends it.
func (g *Guest) writeStdin(w http.ResponseWriter, r *http.Request) {
	offset, err := strconv.ParseInt("0"+r.URL.Query().Get("offset"), 10, 64)
	if err != nil {
		writeError(
			w,
			protocol.Errorf(protocol.ReasonInvalid, "offset '%s' is not a number of bytes", r.URL.Query().Get("offset")),
		)
		return
	}
	e, err := g.execs.Named(r.PathValue("name"))
	if err == nil {
		err = e.WriteStdin(r.Context(), offset, r.Body, r.URL.Query().Get("eof") == "1")
	}
	if err != nil {
		writeError(w, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}
