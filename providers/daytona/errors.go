package daytona

import (
	"errors"
	"net/http"
	"strings"

	"sandyard/providers"
	"sandyard/providers/remote"
)

const vendorName = "Daytona"

func translated(what string, err error) error { return remote.Translated(vendorName, what, err, class) }

// listTranslated is translated for a list, which is nowhere but at Daytona's API.
func listTranslated(err error) error {
	if r, ok := errors.AsType[*remote.Refusal](err); ok && r.Status == http.StatusNotFound {
		return &providers.Error{Class: errNotDaytona.Class, Message: errNotDaytona.Message, Err: r}
	}
	return translated("list sandboxes", err)
}

func quotaMessage(r *remote.Refusal) string {
	return "the Daytona account has as much as it may have; delete some sandboxes, or " + r.Plan()
}

// class is what a refusal of the API means, and what to tell a user.
func class(r *remote.Refusal, what string) (providers.Class, string) {
	switch s := r.Status; {
	case s == http.StatusUnauthorized:
		return r.Key(vendorName, "", "Daytona does not take the operator's key; ask your operator to check DAYTONA_API_KEY")
	case s == http.StatusPaymentRequired, (s == http.StatusBadRequest || s == http.StatusForbidden) && full(r.Message),
		s == http.StatusTooManyRequests && full(r.Message):
		return providers.Quota, quotaMessage(r)
	case s == http.StatusForbidden && r.Says("exceeds maximum"):
		return providers.Invalid, "the Daytona account does not let a sandbox have so much; request fewer resources"
	case s == http.StatusForbidden:
		return r.Key(vendorName, what, "Daytona does not let the operator's account "+what+
			"; ask your operator to look at the account")
	case s == http.StatusTooManyRequests:
		return providers.RateLimited, "Daytona wants fewer calls"
	case r.Missing():
		return providers.NotFound, providers.ErrNotFound.Message
	case s == http.StatusNotFound, s == http.StatusGone:
		return errNotDaytona.Class, errNotDaytona.Message
	case s == http.StatusConflict, s == http.StatusLocked, s == http.StatusTooEarly,
		s == http.StatusBadRequest && changing(r):
		return providers.Busy, "the sandbox's state is changing at Daytona"
	case s == http.StatusBadRequest && crowded(r.Message):
		return providers.Capacity, "Daytona has no room for the sandbox at the moment"
	case s == http.StatusBadRequest, s == http.StatusRequestEntityTooLarge, s == http.StatusUnprocessableEntity:
		return providers.Invalid, "Daytona does not accept the request to " + what +
			"; check template, environment, resources and timeout"
	case s == http.StatusNotImplemented:
		return providers.NotSupported, "this Daytona server cannot " + what
	case s == http.StatusServiceUnavailable && crowded(r.Message):
		return providers.Capacity, "Daytona has no room for the sandbox at the moment"
	case s == http.StatusRequestTimeout, s == http.StatusBadGateway, s == http.StatusServiceUnavailable,
		s == http.StatusGatewayTimeout:
		return providers.Unavailable, "Daytona did not " + what + " in time"
	}
	return providers.Internal, "Daytona failed to " + what
}

// createClass is class for a create, of which other things may be missing than the sandbox.
func createClass(r *remote.Refusal, what string) (providers.Class, string) {
	switch s := r.Status; {
	case (r.Missing() || s == http.StatusBadRequest || s == http.StatusUnprocessableEntity) &&
		(r.Says("region") || r.Says("target")):
		return providers.Invalid, "Daytona has no such region; ask your operator to check DAYTONA_TARGET"
	case r.Missing(), s == http.StatusBadRequest && unknownImage(r.Message):
		return providers.ImageMissing, "Daytona has no such snapshot or image"
	}
	return class(r, what)
}

// failed is why a sandbox, made with the key in a tenant's secret or the operator's, stands in a state of failure.
func failed(d described, secret string) error {
	why := &remote.Refusal{Code: d.State, Message: d.Reason, Secret: secret} // for the log
	e := &providers.Error{Class: providers.Internal, Message: "the sandbox failed at Daytona", Err: why}
	switch {
	case full(d.Reason):
		e.Class, e.Message = providers.Quota, quotaMessage(why)
	case crowded(d.Reason):
		e.Class, e.Message = providers.Capacity, "Daytona has no room for the sandbox at the moment"
	case unknownImage(d.Reason):
		e.Class, e.Message = providers.ImageMissing, "Daytona has no such snapshot or image, or may not pull it"
	case d.State == "build_failed":
		e.Class, e.Message = providers.Invalid, "Daytona cannot make a sandbox from the image"
	}
	return e
}

func says(text string, words ...string) bool { return (&remote.Refusal{Message: text}).Says(words...) }

// full says whether it is the account that has enough, and not the moment.
func full(text string) bool {
	return says(text, "limit exceeded") && !says(text, "rate limit") || says(text, "quota") ||
		says(text, "maximum number", "sandboxes")
}

// crowded says whether Daytona has no machine for a sandbox.
func crowded(text string) bool {
	return says(text, "no available runner") || says(text, "no runner") || says(text, "capacity")
}

func unknownImage(text string) bool {
	names := says(text, "snapshot") || says(text, "image") || says(text, "manifest") || says(text, "template")
	lacks := says(text, "not found") || says(text, "unknown") || says(text, "no such") || says(text, "does not exist") ||
		says(text, "pull")
	return names && lacks
}

func changing(r *remote.Refusal) bool {
	return r.Says("state change in progress") || r.Says("not started") || r.Says("not in valid state") ||
		r.Says("not in a valid state") || r.Says("is not stopped")
}

// refused is what a refusal of the toolbox means by itself; nil = the sandbox is to be asked after.
func refused(r *remote.Refusal) error {
	e := &providers.Error{Err: r, RetryAfter: r.RetryAfter}
	switch {
	case r.Says("no space left"), r.Says("disk", "full"), r.Status == http.StatusInsufficientStorage:
		e.Class, e.Message = providers.NoSpace, "the sandbox's disk is full"
	case r.Code == "FILE_NOT_FOUND":
		e.Class, e.Message = providers.FileNotFound, providers.ErrFileNotFound.Message
	case r.Code == "FILE_ACCESS_DENIED", r.Status == http.StatusForbidden && strings.HasPrefix(r.Code, "FILE_"):
		e.Class, e.Message = providers.FileDenied, "the sandbox does not permit that"
	case r.Code == "INVALID_FILE_PATH":
		e.Class, e.Message = providers.InvalidPath, "the sandbox does not accept the path"
	case r.Status == http.StatusUnauthorized, r.Status == http.StatusForbidden:
		e.Class, e.Message = r.Key(vendorName, "", "Daytona does not let the operator's key into the sandbox; "+
			"ask your operator to check DAYTONA_API_KEY")
	case r.Status == http.StatusTooManyRequests:
		e.Class, e.Message = providers.RateLimited, "Daytona wants fewer calls to the sandbox"
	case r.Status == http.StatusRequestEntityTooLarge:
		e.Class, e.Message = providers.TooLarge, providers.ErrTooLarge.Message
	case r.Status == http.StatusNotImplemented:
		e.Class, e.Message = providers.NotSupported, "the sandbox's toolbox does not support that"
	default:
		return nil
	}
	return e
}
