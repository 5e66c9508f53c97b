package envd

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"unicode/utf8"

	"sandyard/guest/dialect"
	"sandyard/providers"

	"connectrpc.com/connect"
)

// maxErrorText bounds what is kept of a guest's error message, in bytes.
const maxErrorText = 1 << 10

// errNoExec is the cause of an answer about a command that the guest does not know.
var errNoExec = errors.New("no such command in the sandbox")

// classOf translates the guest's reasons.
func classOf(reason string) (providers.Class, bool) {
	switch reason {
	case dialect.ReasonFileNotFound:
		return providers.FileNotFound, true
	case dialect.ReasonNotAFile:
		return providers.NotAFile, true
	case dialect.ReasonNotADir:
		return providers.NotADir, true
	case dialect.ReasonExists:
		return providers.FileExists, true
	case dialect.ReasonDenied:
		return providers.FileDenied, true
	case dialect.ReasonInvalidPath:
		return providers.InvalidPath, true
	case dialect.ReasonNoSpace:
		return providers.NoSpace, true
	case dialect.ReasonTooLarge:
		return providers.TooLarge, true
	case dialect.ReasonArchive:
		return providers.BadArchive, true
	case dialect.ReasonNoCommand:
		return providers.NoCommand, true
	case dialect.ReasonNoDir:
		return providers.NoDir, true
	case dialect.ReasonNoUser:
		return providers.NoUser, true
	case dialect.ReasonInvalid, dialect.ReasonNoAccess:
		return providers.Invalid, true
	case dialect.ReasonNoExec:
		return providers.NoExec, true
	case dialect.ReasonNoProcess:
		return providers.NoProcess, true
	case dialect.ReasonEnded:
		return providers.ExecEnded, true
	case dialect.ReasonTooMany:
		return providers.TooManyExecs, true
	case dialect.ReasonBusy:
		return providers.Busy, true
	case dialect.ReasonUnsupported:
		return providers.NotSupported, true
	case dialect.ReasonNoMatch:
		return providers.NoMatch, true
	case dialect.ReasonAmbiguous:
		return providers.Ambiguous, true
	case dialect.ReasonInternal:
		return providers.Internal, true
	default:
		return "", false
	}
}

// callError translates the error of a Connect call.
func (s *Sandbox) callError(err error) error {
	var refused *connect.Error
	if !errors.As(err, &refused) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return s.unavailable(err)
	}
	if class, known := classOf(refused.Meta().Get(dialect.ReasonHeader)); known {
		return &providers.Error{Class: class, Message: clean(refused.Message()), Err: err}
	}
	switch refused.Code() {
	case connect.CodeUnimplemented:
		return &providers.Error{Class: providers.NotSupported, Message: clean(refused.Message()), Err: err}
	case connect.CodeInvalidArgument, connect.CodeNotFound, connect.CodeFailedPrecondition:
		return &providers.Error{Class: providers.Invalid, Message: clean(refused.Message()), Err: err}
	default:
		return s.unavailable(err)
	}
}

// httpError translates a plain HTTP answer other than 2xx.
func httpError(answer *http.Response) error {
	var body dialect.FileError
	text, err := io.ReadAll(io.LimitReader(answer.Body, 4*maxErrorText))
	if err != nil || json.Unmarshal(text, &body) != nil || body.Message == "" {
		body.Message = http.StatusText(answer.StatusCode)
	}
	class, known := classOf(answer.Header.Get(dialect.ReasonHeader))
	if !known {
		class = classOfStatus(answer.StatusCode)
	}
	e := &providers.Error{Class: class, Message: clean(body.Message)}
	if answer.Header.Get(dialect.ReasonHeader) == dialect.ReasonNoExec {
		e.Err = errNoExec
	}
	return e
}

func classOfStatus(status int) providers.Class {
	switch {
	case status == http.StatusNotFound:
		return providers.FileNotFound
	case status == http.StatusRequestEntityTooLarge:
		return providers.TooLarge
	case status == http.StatusInsufficientStorage:
		return providers.NoSpace
	case status >= http.StatusInternalServerError:
		return providers.Unavailable
	default:
		return providers.Invalid
	}
}

// clean makes a guest's words fit for a log and a user.
func clean(text string) string {
	if len(text) > maxErrorText {
		text = text[:maxErrorText]
	}
	if !utf8.ValidString(text) {
		text = strings.ToValidUTF8(text, "\uFFFD")
	}
	return strings.Map(func(r rune) rune {
		if r < ' ' {
			return ' '
		}
		return r
	}, text)
}
