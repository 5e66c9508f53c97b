package jobs

import (
	"slices"

	"sandyard/providers"
)

// checkRuntime refuses a runtime that the server does not offer: a weaker one than the default is the operator's to
// allow.
func (k Catalog) checkRuntime(field, name string) error {
	switch {
	case name == "" || slices.Contains(k.Runtimes, name):
		return nil
	case len(k.Runtimes) == 0:
		return invalid(field, "this server offers no choice of runtimes, so leave it out; its operator can name some in SANDBOX_RUNTIMES")
	default:
		return invalid(field, "unknown runtime %.80q; this server offers %v", name, k.Runtimes)
	}
}

// offers refuses a template's runtime that this worker's configuration does not name: it may have named it once.
func (w *Worker) offers(runtime string) error {
	if runtime == "" || slices.Contains(w.runtimes, runtime) {
		return nil
	}
	return providers.Errorf(providers.Invalid, "the template names the runtime %.80q, which SANDBOX_RUNTIMES of this worker does not; give the template "+
		"another one or none", runtime)
}
