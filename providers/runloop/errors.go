package runloop

import (
	"errors"
	"net/http"

	"sandyard/providers"
	"sandyard/providers/remote"
)

const vendorName = "Runloop"

func translated(what string, err error) error { return remote.Translated(vendorName, what, err, class) }

// listTranslated is translated for a list, which is nowhere but at Runloop's API.
func listTranslated(err error) error {
	if r, ok := errors.AsType[*remote.Refusal](err); ok && r.Status == http.StatusNotFound {
		return &providers.Error{Class: errNotRunloop.Class, Message: errNotRunloop.Message, Err: r}
	}
	return translated("list sandboxes", err)
}

// class is what a refusal of the API means, and what to tell a user. Runloop's documents say nothing of the bodies.
func class(r *remote.Refusal, what string) (providers.Class, string) {
	switch s := r.Status; {
	case s == http.StatusUnauthorized:
		return r.Key(vendorName, "", "Runloop does not take the operator's key; ask your operator to check RUNLOOP_API_KEY")
	case s == http.StatusPaymentRequired, (s == http.StatusTooManyRequests || s == http.StatusForbidden) && full(r):
		return providers.Quota, "the Runloop account has as much as it may have; delete some sandboxes, or " + r.Plan()
	case s == http.StatusForbidden:
		return r.Key(vendorName, what, "Runloop does not let the operator's account "+what+
			"; ask your operator to look at the account")
	case s == http.StatusTooManyRequests:
		return providers.RateLimited, "Runloop wants fewer calls"
	case r.Absent():
		return providers.NotFound, providers.ErrNotFound.Message
	case s == http.StatusNotFound, s == http.StatusGone:
		return errNotRunloop.Class, errNotRunloop.Message
	case s == http.StatusConflict, s == http.StatusLocked, s == http.StatusTooEarly:
		return providers.Busy, "the sandbox's state is changing at Runloop"
	case s == http.StatusBadRequest, s == http.StatusRequestEntityTooLarge, s == http.StatusUnprocessableEntity:
		return providers.Invalid, "Runloop does not accept the request to " + what +
			"; check template, environment and resources"
	case s == http.StatusNotImplemented:
		return providers.NotSupported, "this Runloop server cannot " + what
	case s == http.StatusServiceUnavailable && r.Says("capacity"):
		return providers.Capacity, "Runloop has no room for the sandbox at the moment"
	case s == http.StatusRequestTimeout, s == http.StatusBadGateway, s == http.StatusServiceUnavailable,
		s == http.StatusGatewayTimeout:
		return providers.Unavailable, "Runloop did not " + what + " in time"
	}
	return providers.Internal, "Runloop failed to " + what
}

// createClass is class for a create, of which only the template can be missing.
func createClass(r *remote.Refusal, what string) (providers.Class, string) {
	named := r.Says("blueprint") || r.Says("snapshot")
	if r.Absent() || named && (r.Status == http.StatusBadRequest || r.Status == http.StatusUnprocessableEntity) {
		return providers.ImageMissing, "Runloop has no such blueprint or snapshot"
	}
	return class(r, what)
}

// changeClass is class for a change, which Runloop refuses as wrong where the devbox is in another state.
func changeClass(r *remote.Refusal, what string) (providers.Class, string) {
	if r.Status == http.StatusBadRequest || r.Status == http.StatusUnprocessableEntity {
		return providers.Busy, "the sandbox's state is changing at Runloop"
	}
	return class(r, what)
}

// full says whether it is the account that has enough, and not the moment.
func full(r *remote.Refusal) bool {
	return (r.Says("limit") || r.Says("quota") || r.Says("maximum")) && !r.Says("rate")
}

// failed is why a devbox stands in the status of a failure.
func failed(d described) error {
	e := &providers.Error{
		Class: providers.Internal, Message: "the sandbox failed at Runloop",
		Err: &remote.Refusal{Code: d.Status, Message: d.Reason}, // for the log
	}
	switch d.Reason {
	case "out_of_memory":
		e.Message = "the sandbox ended at Runloop for lack of memory; request more"
	case "out_of_disk":
		e.Message = "the sandbox ended at Runloop for lack of disk; request more"
	case "execution_failed":
		e.Message = "the sandbox could not be started at Runloop, or its start commands failed"
	case "health_check_failed":
		e.Message = "the sandbox failed Runloop's health checks; it may need more resources"
	}
	return e
}

// refused is what a refusal of a call inside a devbox means by itself; nil = the devbox is to be asked after.
func refused(r *remote.Refusal) error {
	e := &providers.Error{Err: r, RetryAfter: r.RetryAfter}
	switch {
	case r.Says("no space left"), r.Says("disk", "full"), r.Status == http.StatusInsufficientStorage:
		e.Class, e.Message = providers.NoSpace, "the sandbox's disk is full"
	case r.Status == http.StatusUnauthorized, r.Status == http.StatusForbidden:
		e.Class, e.Message = r.Key(vendorName, "", "Runloop does not let the operator's key into the sandbox; "+
			"ask your operator to check RUNLOOP_API_KEY")
	case r.Status == http.StatusTooManyRequests:
		e.Class, e.Message = providers.RateLimited, "Runloop wants fewer calls to the sandbox"
	case r.Status == http.StatusRequestEntityTooLarge:
		e.Class, e.Message = providers.TooLarge, providers.ErrTooLarge.Message
	case r.Status == http.StatusNotImplemented:
		e.Class, e.Message = providers.NotSupported, "this Runloop server does not support that"
	default:
		return nil
	}
	return e
}
