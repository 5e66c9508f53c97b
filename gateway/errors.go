package gateway

import (
	"encoding/json"
	"errors"
	"net/http"

	"sandyard/providers"
)

// refusal is the body of an answer that did not come from the sandbox, as E2B's clients expect it.
type refusal struct {
	Sandbox string `json:"sandboxId,omitempty"`
	Message string `json:"message"`
	Port    uint16 `json:"port,omitempty"`
	Code    int    `json:"code"`
}

func writeError(w http.ResponseWriter, status int, r refusal) {
	r.Code = status
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(r) // a caller that is gone needs no answer
}

// NotFound answers for a sandbox that does not run.
func NotFound(w http.ResponseWriter, sandbox string) {
	writeError(w, http.StatusBadGateway, refusal{Sandbox: sandbox, Message: "The sandbox was not found"})
}

// explain answers for a request that did not reach the sandbox.
func (g *Gateway) explain(w http.ResponseWriter, r *http.Request, err error) {
	t := targetOf(r.Context())
	var refused *providers.Error
	switch {
	case r.Context().Err() != nil: // the caller is gone
		w.WriteHeader(http.StatusBadGateway)
	case errors.Is(err, providers.ErrNotFound), errors.Is(err, providers.ErrLost), errors.Is(err, providers.ErrPaused):
		NotFound(w, t.sandbox)
	case errors.As(err, &refused) && refused.Class == providers.Invalid:
		writeError(w, http.StatusBadGateway, refusal{Sandbox: t.sandbox, Port: t.port, Message: "The sandbox is running but port is not open"})
	case errors.As(err, &refused) && refused.Class == providers.NotSupported:
		writeError(w, http.StatusNotImplemented, refusal{Sandbox: t.sandbox, Message: refused.Message})
	default:
		g.Log.WarnContext(r.Context(), "request not passed on", "sandbox_id", t.sandbox, "port", t.port, "error", err)
		writeError(w, http.StatusBadGateway, refusal{Sandbox: t.sandbox, Port: t.port, Message: "The sandbox did not answer; try again"})
	}
}
