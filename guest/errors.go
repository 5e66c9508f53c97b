package guest

import (
	"encoding/json"
	"errors"
	"net/http"

	"sandyard/guest/dialect"

	"connectrpc.com/connect"
)

// refusal returns err as a dialect error.
func refusal(err error) *dialect.Error {
	var e *dialect.Error
	if errors.As(err, &e) {
		return e
	}
	return dialect.Errorf(dialect.ReasonInternal, "%v", err)
}

// connectError is err for a Connect answer, with envd's code and our reason.
func connectError(err error) error {
	if err == nil {
		return nil
	}
	e := refusal(err)
	answer := connect.NewError(connectCode(e.Reason), e)
	answer.Meta().Set(dialect.ReasonHeader, e.Reason)
	return answer
}

func connectCode(reason string) connect.Code {
	switch reason {
	case dialect.ReasonFileNotFound, dialect.ReasonNoCommand, dialect.ReasonNoExec, dialect.ReasonNoProcess:
		return connect.CodeNotFound
	case dialect.ReasonDenied:
		return connect.CodePermissionDenied
	case dialect.ReasonExists:
		return connect.CodeAlreadyExists
	case dialect.ReasonNoSpace, dialect.ReasonTooLarge, dialect.ReasonBusy:
		return connect.CodeResourceExhausted
	case dialect.ReasonNoUser, dialect.ReasonNoAccess:
		return connect.CodeUnauthenticated
	case dialect.ReasonUnsupported:
		return connect.CodeUnimplemented
	case dialect.ReasonInternal:
		return connect.CodeInternal
	default:
		return connect.CodeInvalidArgument
	}
}

// writeError answers a plain HTTP call as envd does, with our reason beside it.
func writeError(w http.ResponseWriter, err error) {
	e := refusal(err)
	w.Header().Set(dialect.ReasonHeader, e.Reason)
	status := httpStatus(e.Reason)
	writeJSON(w, status, dialect.FileError{Code: status, Message: e.Message})
}

func httpStatus(reason string) int {
	switch reason {
	case dialect.ReasonFileNotFound, dialect.ReasonNoExec, dialect.ReasonNoProcess:
		return http.StatusNotFound
	case dialect.ReasonDenied:
		return http.StatusForbidden
	case dialect.ReasonExists, dialect.ReasonBusy, dialect.ReasonTooMany, dialect.ReasonEnded:
		return http.StatusConflict
	case dialect.ReasonNoSpace:
		return http.StatusInsufficientStorage
	case dialect.ReasonTooLarge:
		return http.StatusRequestEntityTooLarge
	case dialect.ReasonNoUser, dialect.ReasonNoAccess:
		return http.StatusUnauthorized
	case dialect.ReasonInternal:
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
