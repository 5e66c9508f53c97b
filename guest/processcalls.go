package guest

import (
	"net/http"
	"strconv"

	"golang.org/x/sys/unix"

	"sandyard/guest/protocol"
)

func (g *Guest) listProcesses(http.ResponseWriter, *http.Request) (any, error) {
	return g.execs.Processes(), nil
}

// signalProcess sends one process a signal, by its name such as SIGTERM.
func (g *Guest) signalProcess(_ http.ResponseWriter, r *http.Request) (any, error) {
	start := int64(0)
	if err := readNumber("start", r.URL.Query().Get("start"), &start); err != nil {
		return nil, err
	}
	pid, err := strconv.Atoi(r.PathValue("pid"))
	if err != nil {
		return nil, protocol.Errorf(protocol.ReasonInvalid, "'%s' is not the id of a process", r.PathValue("pid"))
	}
	name := r.URL.Query().Get("signal")
	number := unix.SignalNum(name)
	if number == 0 {
		return nil, protocol.Errorf(protocol.ReasonInvalid, "'%s' is not a signal", name)
	}
	return nil, g.execs.SignalProcess(r.URL.Query().Get("id"), pid, start, number)
}
