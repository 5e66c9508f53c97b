package models

import (
	"slices"
)

// Scopes of a key.
const (
	ScopeSandboxes = "sandboxes" // the tenant's work: also what the four after it open
	ScopeJobs      = "jobs"      // to read, cancel and retry jobs
	ScopeFiles     = "files"     // files of sandboxes
	ScopeTemplates = "templates" // templates and their builds
	ScopeWebhooks  = "webhooks"  // the webhook secret
	ScopeAdmin     = "admin"     // the tenant's keys, users and secrets
	ScopeOperator  = "operator"  // the operators' pages, tenants, and what an admin may do
)

// Scopes are all that there are.
func Scopes() []string {
	return []string{ScopeSandboxes, ScopeJobs, ScopeFiles, ScopeTemplates, ScopeWebhooks, ScopeAdmin, ScopeOperator}
}

// Opens says whether scopes open what needs one.
func Opens(scopes []string, scope string) bool {
	if slices.Contains(scopes, scope) {
		return true
	}
	switch scope {
	case ScopeJobs, ScopeFiles, ScopeTemplates, ScopeWebhooks:
		return slices.Contains(scopes, ScopeSandboxes)
	case ScopeAdmin:
		return slices.Contains(scopes, ScopeOperator)
	}
	return false
}
