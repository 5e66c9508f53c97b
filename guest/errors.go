package guest

import (
	"encoding/json"
	"errors"
	"net/http"

	"sandyard/guest/protocol"

	"connectrpc.com/connect"
)

// refusal returns err as a protocol error.
func refusal(err error) *protocol.Error {
	if e, ok := errors.AsType[*protocol.Error](err); ok {
		return e
	}
	return protocol.Errorf(protocol.ReasonInternal, "%v", err)
}

// connectError is err for a Connect answer, with envd's code and our reason.
func connectError(err error) error {
	if err == nil {
		return nil
	}
	e := refusal(err)
	answer := connect.NewError(codesOf(e.Reason).connect, e)
	answer.Meta().Set(protocol.ReasonHeader, e.Reason)
	return answer
}

// codes are what a reason is called in a Connect answer and in a plain HTTP one.
type codes struct {
	connect connect.Code
	http    int
}

func codesOf(reason string) codes {
	c, known := map[string]codes{
		protocol.ReasonFileNotFound: {connect.CodeNotFound, http.StatusNotFound},
		protocol.ReasonNoExec:       {connect.CodeNotFound, http.StatusNotFound},
		protocol.ReasonNoProcess:    {connect.CodeNotFound, http.StatusNotFound},
		protocol.ReasonNoCommand:    {connect.CodeNotFound, http.StatusBadRequest},
		protocol.ReasonDenied:       {connect.CodePermissionDenied, http.StatusForbidden},
		protocol.ReasonExists:       {connect.CodeAlreadyExists, http.StatusConflict},
		protocol.ReasonBusy:         {connect.CodeResourceExhausted, http.StatusConflict},
		protocol.ReasonNoSpace:      {connect.CodeResourceExhausted, http.StatusInsufficientStorage},
		protocol.ReasonTooLarge:     {connect.CodeResourceExhausted, http.StatusRequestEntityTooLarge},
		protocol.ReasonTooMany:      {connect.CodeInvalidArgument, http.StatusConflict},
		protocol.ReasonEnded:        {connect.CodeInvalidArgument, http.StatusConflict},
		protocol.ReasonNoUser:       {connect.CodeUnauthenticated, http.StatusUnauthorized},
		protocol.ReasonNoAccess:     {connect.CodeUnauthenticated, http.StatusUnauthorized},
		protocol.ReasonUnsupported:  {connect.CodeUnimplemented, http.StatusBadRequest},
		protocol.ReasonInternal:     {connect.CodeInternal, http.StatusInternalServerError},
	}[reason]
	if !known {
		return codes{connect.CodeInvalidArgument, http.StatusBadRequest}
	}
	return c
}

// writeError answers a plain HTTP call as envd does, with our reason beside it.
func writeError(w http.ResponseWriter, err error) {
	e := refusal(err)
	w.Header().Set(protocol.ReasonHeader, e.Reason)
	status := codesOf(e.Reason).http
	writeJSON(w, status, protocol.FileError{Code: status, Message: e.Message})
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // a caller that is gone needs no answer
}
