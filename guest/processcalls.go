package guest

import (
	"net/http"
	"strconv"

	"golang.org/x/sys/unix"

	"sandyard/guest/protocol"
)

func (g *Guest) listProcesses(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, g.execs.Processes())
}

// signalProcess sends one process a signal, by its name such as SIGTERM.
func (g *Guest) signalProcess(w http.ResponseWriter, r *http.Request) {
	start := int64(0)
	err := readParameter(r, "start", &start)
	pid, numbered := strconv.Atoi(r.PathValue("pid"))
	name := r.URL.Query().Get("signal")
	number := unix.SignalNum(name)
	switch {
	case err != nil:
	case numbered != nil:
		err = protocol.Errorf(protocol.ReasonInvalid, "'%s' is not the id of a process", r.PathValue("pid"))
	case number == 0:
		err = protocol.Errorf(protocol.ReasonInvalid, "'%s' is not a signal", name)
	default:
		err = g.execs.SignalProcess(r.URL.Query().Get("id"), pid, start, number)
	}
	if err != nil {
		writeError(w, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}
