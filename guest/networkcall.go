package guest

import (
	"encoding/json"
	"net/http"

	"sandyard/guest/dialout"
	"sandyard/guest/protocol"
)

// setNetwork is PUT /network.
func (g *Guest) setNetwork(w http.ResponseWriter, r *http.Request) {
	var wish protocol.Network
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxMessage)).Decode(&wish); err != nil {
		writeError(w, protocol.Errorf(protocol.ReasonInvalid, "the body is not JSON: %v", err))
		return
	}
	if !wish.On {
		g.execs.SetFloor(nil)
		g.dialout.Close()
	} else if addr, err := g.dialout.Open(r.Context(), g.log); err != nil {
		writeError(w, err)
		return
	} else {
		g.execs.SetFloor(dialout.Env(addr))
	}
	w.WriteHeader(http.StatusNoContent)
}
