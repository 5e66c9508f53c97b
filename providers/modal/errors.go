package modal

import (
	"context"
	"errors"
	"strings"

	vendor "github.com/modal-labs/modal-client/go"
	"google.golang.org/grpc/codes"

	"sandyard/providers"
	"sandyard/providers/remote"
)

// errNotModal is what an answer means that is none.
var errNotModal = &providers.Error{
	Class:   providers.Internal,
	Message: "the server did not answer as Modal does; ask your operator to check MODAL_SERVER_URL",
}

// is says whether an error is one of the client's, which are values.
func is[T error](err error) bool {
	_, ok := errors.AsType[T](err)
	return ok
}

// translated is the error of a call to do what.
func translated(what string, err error) error {
	if err == nil {
		return nil
	}
	if own, ok := errors.AsType[*providers.Error](err); ok {
		return own
	}
	class, message := class(err, what)
	return &providers.Error{Class: class, Message: message, Err: quiet(err)}
}

// quiet is an error for the log, without what could be a token.
func quiet(err error) error { return errors.New(remote.Redact(err.Error())) }

func class(err error, what string) (providers.Class, string) {
	away := "Modal did not " + what + " in time"
	switch {
	case is[vendor.NotFoundError](err), is[vendor.ConflictError](err):
		return providers.NotFound, providers.ErrNotFound.Message
	case is[vendor.InvalidError](err):
		return providers.Invalid, "Modal does not accept the request to " + what + "; check image, environment and resources"
	case is[vendor.ResourceExhaustedError](err):
		return providers.Capacity, "Modal has no room for the sandbox at the moment"
	case is[vendor.AlreadyExistsError](err):
		return providers.Busy, "the sandbox's state is changing at Modal"
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled),
		is[vendor.ExecTimeoutError](err), is[vendor.TimeoutError](err):
		return providers.Unavailable, away
	}
	s := statusOf(err)
	if s == nil {
		return providers.Internal, "Modal failed to " + what
	}
	switch s.Code() {
	case codes.Unauthenticated:
		return providers.Refused, "Modal does not take the operator's token; " +
			"ask your operator to check MODAL_TOKEN_ID and MODAL_TOKEN_SECRET"
	case codes.PermissionDenied:
		return providers.Refused, "Modal does not let the operator's account " + what +
			"; ask your operator to look at the account"
	case codes.NotFound:
		return providers.NotFound, providers.ErrNotFound.Message
	case codes.AlreadyExists, codes.FailedPrecondition:
		return providers.Busy, "the sandbox's state is changing at Modal"
	case codes.InvalidArgument, codes.OutOfRange:
		return providers.Invalid, "Modal does not accept the request to " + what + "; check image, environment and resources"
	case codes.ResourceExhausted:
		return exhausted(s.Message())
	case codes.Unimplemented:
		return providers.NotSupported, "this Modal server cannot " + what
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled, codes.Aborted, codes.Unknown:
		return providers.Unavailable, away
	}
	return providers.Internal, "Modal failed to " + what
}

// exhausted says what there is too little of.
func exhausted(text string) (providers.Class, string) {
	text = strings.ToLower(text)
	switch {
	case strings.Contains(text, "rate"):
		return providers.RateLimited, "Modal wants fewer calls"
	case strings.Contains(text, "limit"), strings.Contains(text, "quota"), strings.Contains(text, "budget"):
		return providers.Quota, "the Modal account has as much as it may have; delete some sandboxes, " +
			"or ask your operator for another plan"
	}
	return providers.Capacity, "Modal has no room for the sandbox at the moment"
}

// createTranslated is translated for a create, of which only the image can be missing.
func createTranslated(err error) error {
	missing := is[vendor.NotFoundError](err)
	if s := statusOf(err); s != nil && s.Code() == codes.NotFound {
		missing = true
	}
	switch {
	case err == nil:
		return nil
	case missing, is[vendor.RemoteError](err):
		return &providers.Error{
			Class: providers.ImageMissing, Message: "Modal cannot make a sandbox from the image, or does not know it",
			Err: quiet(err),
		}
	}
	return translated("create a sandbox", err)
}

// appTranslated is translated for the app, which is made where there is none: only its environment can be missing.
func appTranslated(err error) error {
	err = translated("find the app of the sandboxes", err)
	if !errors.Is(err, providers.ErrNotFound) {
		return err
	}
	return &providers.Error{
		Class: providers.Refused, Message: "Modal has no such environment; ask your operator to check MODAL_ENVIRONMENT",
		Err: providers.AsError(err).Err,
	}
}

// listTranslated is translated for a list, of which only the app can be missing.
func listTranslated(err error) error {
	err = translated("list sandboxes", err)
	if errors.Is(err, providers.ErrNotFound) {
		return remote.Unavailable(
			"Modal does not know the app of the sandboxes; it is looked for anew", providers.AsError(err).Err,
		)
	}
	return err
}
