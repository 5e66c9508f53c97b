package jobs

import (
	"slices"

	"sandyard/jobs/kind"
)

// checkRuntime refuses a runtime that the server does not offer: a weaker one than the default is the operator's to
// allow.
func (k Catalog) checkRuntime(field, name string) error {
	switch {
	case name == "" || slices.Contains(k.Runtimes, name):
		return nil
	case len(k.Runtimes) == 0:
		return kind.Invalid(
			field,
			"this server offers no choice of runtimes; leave it out, or ask your operator to set SANDBOX_RUNTIMES",
		)
	default:
		return kind.Invalid(field, "unknown runtime %.80q; this server offers %v", name, k.Runtimes)
	}
}
