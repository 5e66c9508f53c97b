package middleware

import (
	"fmt"
	"net/http"

	"sandyard/models"
	"sandyard/web/problem"
)

// keyFailures is how many wrong keys and tokens may come from an address in failureSpan before it is told to stop.
// Right ones are let in all the same: a proxy in front is one address for all.
const keyFailures = 1000

// wrongKey counts a key or token that is none, and answers it.
func (s *Stack) wrongKey(r *Request) error {
	s.security.Note(models.SecurityEvent{Kind: models.KeyRefused, Client: r.Client})
	counted := map[string]int{"keys " + r.Client: keyFailures}
	if wait := s.logins.blocked(counted); wait > 0 {
		return problem.RetryLater(problem.New(
			http.StatusTooManyRequests,
			"too_many_keys",
			fmt.Sprintf(
				"too many unknown or revoked keys came from this address; correct the key and try again in %d s",
				wait,
			),
		), wait)
	}
	s.logins.count(counted)
	return problem.Unauthorized(false)
}

// NotePath counts a path that a sandbox has refused to a request that is no job.
func (s *Stack) NotePath(r *Request) {
	if r.Problem != nil && r.Problem.Code == "invalid_path" {
		s.security.Note(
			models.SecurityEvent{
				TenantID:  r.Tenant,
				Kind:      models.PathRefused,
				Client:    r.Client,
				Actor:     r.Key,
				SandboxID: clip(r.target()),
			},
		)
	}
}
