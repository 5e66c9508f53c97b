package envd

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"unicode/utf8"

	"sandyard/guest/protocol"
	"sandyard/providers"

	"connectrpc.com/connect"
)

// maxErrorText bounds what is kept of a guest's error message, in bytes.
const maxErrorText = 1 << 10

// classOf translates the guest's reasons.
func classOf(reason string) (providers.Class, bool) {
	switch reason {
	case protocol.ReasonFileNotFound:
		return providers.FileNotFound, true
	case protocol.ReasonNotAFile:
		return providers.NotAFile, true
	case protocol.ReasonNotADir:
		return providers.NotADir, true
	case protocol.ReasonExists:
		return providers.FileExists, true
	case protocol.ReasonDenied:
		return providers.FileDenied, true
	case protocol.ReasonInvalidPath:
		return providers.InvalidPath, true
	case protocol.ReasonNoSpace:
		return providers.NoSpace, true
	case protocol.ReasonTooLarge:
		return providers.TooLarge, true
	case protocol.ReasonArchive:
		return providers.BadArchive, true
	case protocol.ReasonNoCommand:
		return providers.NoCommand, true
	case protocol.ReasonNoDir:
		return providers.NoDir, true
	case protocol.ReasonNoUser:
		return providers.NoUser, true
	case protocol.ReasonInvalid, protocol.ReasonNoAccess:
		return providers.Invalid, true
	case protocol.ReasonNoExec:
		return providers.NoExec, true
	case protocol.ReasonNoProcess:
		return providers.NoProcess, true
	case protocol.ReasonEnded:
		return providers.ExecEnded, true
	case protocol.ReasonTooMany:
		return providers.TooManyExecs, true
	case protocol.ReasonBusy:
		return providers.Busy, true
	case protocol.ReasonUnsupported:
		return providers.NotSupported, true
	case protocol.ReasonNoMatch:
		return providers.NoMatch, true
	case protocol.ReasonAmbiguous:
		return providers.Ambiguous, true
	case protocol.ReasonInternal:
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
	if class, known := classOf(refused.Meta().Get(protocol.ReasonHeader)); known {
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
	var body protocol.FileError
	text, err := io.ReadAll(io.LimitReader(answer.Body, 4*maxErrorText))
	if err != nil || json.Unmarshal(text, &body) != nil || body.Message == "" {
		body.Message = http.StatusText(answer.StatusCode)
	}
	class, known := classOf(answer.Header.Get(protocol.ReasonHeader))
	if !known {
		class = classOfStatus(answer.StatusCode)
	}
	return &providers.Error{Class: class, Message: clean(body.Message)}
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
