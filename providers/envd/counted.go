package envd

import (
	"sandyard/providers"
	"sandyard/providers/upload"
)

// explain tells an upload whose source failed from one that the sandbox did not take. A sandbox that has refused one
// knows best: the reading ends with its answer.
func explain(body *upload.Body, err error) error {
	if providers.AsError(err).Class != providers.Unavailable {
		return err
	}
	if failed := body.Failed(); failed != nil {
		return failed
	}
	return err
}
