package guest

import (
	"net/http"

	"sandyard/guest/dialout"
	"sandyard/guest/protocol"
)

// setNetwork is PUT /network.
func (g *Guest) setNetwork(w http.ResponseWriter, r *http.Request) (any, error) {
	in, err := body[protocol.Network](w, r)
	if err != nil {
		return nil, err
	}
	if !in.On {
		g.execs.SetFloor(nil)
		g.dialout.Close()
		return nil, nil
	}
	addr, err := g.dialout.Open(r.Context(), g.log)
	if err != nil {
		return nil, err
	}
	g.execs.SetFloor(dialout.Env(addr))
	return nil, nil
}
