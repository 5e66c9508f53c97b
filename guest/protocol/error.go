package protocol

import "fmt"

// Error is a refusal with the reason that crosses the wire in ReasonHeader.
type Error struct {
	Reason  string
	Message string // for the user
}

func (e *Error) Error() string { return e.Message }

// Errorf makes an Error.
func Errorf(reason, format string, args ...any) *Error {
	return &Error{Reason: reason, Message: fmt.Sprintf(format, args...)}
}
