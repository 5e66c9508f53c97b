package e2b

import (
	"net/http"

	"sandyard/providers"
	"sandyard/providers/remote"
)

func translated(what string, err error) error { return remote.Translated("E2B", what, err, class) }

// class is what a refusal of the API means, and what to tell a user.
func class(r *remote.Refusal, what string) (providers.Class, string) {
	switch s := r.Status; {
	case s == http.StatusUnauthorized:
		return r.Key("E2B", "", "E2B does not take the operator's key; ask your operator to check E2B_API_KEY")
	case s == http.StatusForbidden:
		return r.Key("E2B", what, "E2B does not let the operator's account "+what+
			"; ask your operator to look at the account")
	case s == http.StatusPaymentRequired, s == http.StatusTooManyRequests && full(r):
		return providers.Quota, "the E2B account has as many sandboxes as it may have; " +
			"delete some, or " + r.Plan()
	case s == http.StatusTooManyRequests:
		return providers.RateLimited, "E2B wants fewer calls"
	case r.Missing() && s == http.StatusNotFound:
		return providers.NotFound, providers.ErrNotFound.Message
	case s == http.StatusNotFound:
		return errNotE2B.Class, errNotE2B.Message
	case s == http.StatusConflict:
		return providers.Busy, "the sandbox's state is changing at E2B"
	case s == http.StatusBadRequest && (r.Says("timeout", "greater") || r.Says("instance length")):
		return providers.Invalid, "the E2B account does not let sandboxes live that long; use a shorter timeout"
	case s == http.StatusBadRequest, s == http.StatusRequestEntityTooLarge, s == http.StatusUnprocessableEntity:
		return providers.Invalid, "E2B does not accept the request to " + what + "; check template, environment and timeout"
	case s == http.StatusNotImplemented:
		return providers.NotSupported, "this E2B server cannot " + what
	case (s == http.StatusServiceUnavailable || s == http.StatusGatewayTimeout) && crowded(r):
		return providers.Capacity, "E2B has no room for the sandbox at the moment"
	case s == http.StatusRequestTimeout,
		s == http.StatusBadGateway,
		s == http.StatusServiceUnavailable,
		s == http.StatusGatewayTimeout:
		return providers.Unavailable, "E2B did not " + what + " in time"
	}
	return providers.Internal, "E2B failed to " + what
}

// full says whether it is the account that has enough, and not the moment.
func full(r *remote.Refusal) bool {
	return r.Says("maximum number", "sandboxes") || r.Says("concurrent", "sandboxes") || r.Says("quota")
}

func crowded(r *remote.Refusal) bool {
	switch r.Code {
	case "sandbox_capacity_unavailable", "sandbox_no_compatible_node", "sandbox_placement_timeout":
		return true
	}
	return false
}
