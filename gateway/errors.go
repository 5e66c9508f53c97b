package gateway

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"

	"sandyard/duplex"
	"sandyard/providers"
	"sandyard/tokens"
)

// ReasonHeader says why an answer did not come from the sandbox. No answer of a program in a sandbox has it.
const ReasonHeader = "Sandyard-Reason"

// Reasons why a request does not reach a sandbox.
const (
	NotFound    = "sandbox_not_found"   // it does not exist, or not any more
	Paused      = "sandbox_paused"      // and is not to be resumed by traffic
	NotReady    = "sandbox_not_ready"   // it is being created
	PortClosed  = "port_closed"         // nothing listens there
	Unreachable = "gateway_unreachable" // the worker that holds it cannot be reached or does not answer
	NoAnswer    = "sandbox_no_answer"   // it was reached and did not answer
	Unsupported = "unsupported_operation"
	Forbidden   = "forbidden"
	Malformed   = "malformed_request" // its body is not what HTTP allows, or was broken off
)

// Refusal is the body of an answer that did not come from the sandbox, as E2B's clients expect it.
type Refusal struct {
	Sandbox string `json:"sandboxId,omitempty"`
	Message string `json:"message"`
	Port    uint16 `json:"port,omitempty"`
	Code    int    `json:"code"`
}

// Refuse answers in place of a sandbox. What Refusal does not say follows from the reason.
func Refuse(w http.ResponseWriter, status int, reason string, r Refusal) {
	r.Code = status
	if r.Message == "" {
		r.Message = messages()[reason]
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set(ReasonHeader, reason)
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(r) // a caller that is gone needs no answer
}

func messages() map[string]string {
	return map[string]string{
		NotFound:    "The sandbox was not found",
		Paused:      "The sandbox is paused; resume it first",
		NotReady:    "The sandbox is being created; try again when it is running",
		PortClosed:  "The sandbox is running but port is not open",
		Unreachable: "The sandbox's worker cannot be reached or does not answer; try again",
		NoAnswer:    "The sandbox did not answer; try again",
		Malformed:   "The request's body is malformed or incomplete; send it again",
		Forbidden:   "this gateway serves only the edge of its own installation",
	}
}

// Barred answers a request that leads into no sandbox, whoever makes it, and says whether it is one: CONNECT would make a
// tunnel of what is passed on, and the proxy of a sandbox's programs is its way out, not one in.
func Barred(w http.ResponseWriter, r *http.Request, sandboxID string, port uint16) bool {
	switch {
	case r.Method == http.MethodConnect:
		w.Header().Set("Allow", "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS")
		Refuse(w, http.StatusMethodNotAllowed, Unsupported, Refusal{
			Message: "CONNECT is not supported; send the request directly, or open a WebSocket",
		})
	case port == tokens.ProxyPort:
		Refuse(w, http.StatusForbidden, Forbidden, Refusal{
			Sandbox: sandboxID, Port: port, Message: "this port is reserved for the sandbox's egress proxy; use another port",
		})
	default:
		return false
	}
	return true
}

// explain answers for a request that did not reach the sandbox.
func (g *Gateway) explain(w http.ResponseWriter, r *http.Request, err error) {
	t := targetOf(r.Context())
	var known *providers.Error
	why := Refusal{Sandbox: t.sandbox}
	switch {
	case r.Context().Err() != nil: // the caller is gone
		w.WriteHeader(http.StatusBadGateway)
	case duplex.BodyError(r.Context()) != nil: // as the edge had it from its client
		Refuse(w, http.StatusBadRequest, Malformed, why)
	case errors.Is(err, providers.ErrNotFound), errors.Is(err, providers.ErrLost):
		Refuse(w, http.StatusBadGateway, NotFound, why)
	case errors.Is(err, providers.ErrPaused):
		Refuse(w, http.StatusBadGateway, Paused, why)
	case errors.As(err, &known) && known.Class == providers.Invalid:
		why.Port = t.port
		Refuse(w, http.StatusBadGateway, PortClosed, why)
	case errors.As(err, &known) && known.Class == providers.NotSupported:
		why.Message = known.Message
		Refuse(w, http.StatusNotImplemented, Unsupported, why)
	default:
		g.unpassed.Warn(r.Context(), "request not forwarded", "sandbox_id", t.sandbox, "port", t.port, "error", err)
		why.Port = t.port
		Refuse(w, http.StatusBadGateway, NoAnswer, why)
	}
}

// ours begins the names of headers that no program in a sandbox may send.
const ours = "Sandyard-"

// clean takes from a sandbox's answer what would pass for ours, and what makes a proxy before the edge answer with a file
// of its own. In a trailer nobody expects more than checksums and states.
func clean(res *http.Response) error {
	for name := range res.Header {
		if strings.HasPrefix(name, ours) || strings.HasPrefix(name, "X-Accel-") || strings.HasSuffix(name, "-Sendfile") ||
			strings.HasSuffix(name, "-Send-File") {
			res.Header.Del(name)
		}
	}
	if _, upgraded := res.Body.(io.Writer); !upgraded {
		cleanTrailer(res.Trailer)
		res.Body = &trailed{res.Body, res}
	}
	return nil
}

// trailed is the body of an answer, behind which stands a trailer that is known only at its end.
type trailed struct {
	io.ReadCloser

	res *http.Response
}

func (t *trailed) Read(p []byte) (int, error) {
	n, err := t.ReadCloser.Read(p)
	if err != nil {
		cleanTrailer(t.res.Trailer)
	}
	return n, err
}

func cleanTrailer(trailer http.Header) {
	for name := range trailer {
		if strings.HasPrefix(name, ours) || strings.HasPrefix(name, "X-Accel-") || name == "Set-Cookie" {
			delete(trailer, name)
		}
	}
}
