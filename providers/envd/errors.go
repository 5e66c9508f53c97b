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
func classOf(reason string) (class providers.Class, known bool) {
	class, known = map[string]providers.Class{
		protocol.ReasonFileNotFound: providers.FileNotFound,
		protocol.ReasonNotAFile:     providers.NotAFile,
		protocol.ReasonNotADir:      providers.NotADir,
		protocol.ReasonExists:       providers.FileExists,
		protocol.ReasonDenied:       providers.FileDenied,
		protocol.ReasonInvalidPath:  providers.InvalidPath,
		protocol.ReasonNoSpace:      providers.NoSpace,
		protocol.ReasonTooLarge:     providers.TooLarge,
		protocol.ReasonArchive:      providers.BadArchive,
		protocol.ReasonNoCommand:    providers.NoCommand,
		protocol.ReasonNoDir:        providers.NoDir,
		protocol.ReasonNoUser:       providers.NoUser,
		protocol.ReasonInvalid:      providers.Invalid,
		protocol.ReasonNoAccess:     providers.Invalid,
		protocol.ReasonNoExec:       providers.NoExec,
		protocol.ReasonNoProcess:    providers.NoProcess,
		protocol.ReasonEnded:        providers.ExecEnded,
		protocol.ReasonTooMany:      providers.TooManyExecs,
		protocol.ReasonBusy:         providers.Busy,
		protocol.ReasonUnsupported:  providers.NotSupported,
		protocol.ReasonNoMatch:      providers.NoMatch,
		protocol.ReasonAmbiguous:    providers.Ambiguous,
		protocol.ReasonInternal:     providers.Internal,
	}[reason]
	return class, known
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
