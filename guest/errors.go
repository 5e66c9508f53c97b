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
	answer := connect.NewError(connectCode(e.Reason), e)
	answer.Meta().Set(protocol.ReasonHeader, e.Reason)
	return answer
}

func connectCode(reason string) connect.Code {
	switch reason {
	case protocol.ReasonFileNotFound, protocol.ReasonNoCommand, protocol.ReasonNoExec, protocol.ReasonNoProcess:
		return connect.CodeNotFound
	case protocol.ReasonDenied:
		return connect.CodePermissionDenied
	case protocol.ReasonExists:
		return connect.CodeAlreadyExists
	case protocol.ReasonNoSpace, protocol.ReasonTooLarge, protocol.ReasonBusy:
		return connect.CodeResourceExhausted
	case protocol.ReasonNoUser, protocol.ReasonNoAccess:
		return connect.CodeUnauthenticated
	case protocol.ReasonUnsupported:
		return connect.CodeUnimplemented
	case protocol.ReasonInternal:
		return connect.CodeInternal
	default:
		return connect.CodeInvalidArgument
	}
}

// writeError answers a plain HTTP call as envd does, with our reason beside it.
func writeError(w http.ResponseWriter, err error) {
	e := refusal(err)
	w.Header().Set(protocol.ReasonHeader, e.Reason)
	status := httpStatus(e.Reason)
	writeJSON(w, status, protocol.FileError{Code: status, Message: e.Message})
}

func httpStatus(reason string) int {
	switch reason {
	case protocol.ReasonFileNotFound, protocol.ReasonNoExec, protocol.ReasonNoProcess:
		return http.StatusNotFound
	case protocol.ReasonDenied:
		return http.StatusForbidden
	case protocol.ReasonExists, protocol.ReasonBusy, protocol.ReasonTooMany, protocol.ReasonEnded:
		return http.StatusConflict
	case protocol.ReasonNoSpace:
		return http.StatusInsufficientStorage
	case protocol.ReasonTooLarge:
		return http.StatusRequestEntityTooLarge
	case protocol.ReasonNoUser, protocol.ReasonNoAccess:
		return http.StatusUnauthorized
	case protocol.ReasonInternal:
		return http.StatusInternalServerError
	default:
		return http.StatusBadRequest
	}
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // a caller that is gone needs no answer
}
