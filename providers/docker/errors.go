package docker

import (
	"context"
	"errors"
	"io"
	"net"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/client"

	"sandyard/providers"
)

// translate turns an error of the engine into the contract's. doing completes the sentence "could not …".
func translate(err error, doing string) error {
	if err == nil {
		return nil
	}
	if e := (*providers.Error)(nil); errors.As(err, &e) {
		return e
	}
	return providers.Errorf(classOf(err), "could not %s: %w", doing, err)
}

func classOf(err error) providers.Class {
	var network net.Error
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded),
		client.IsErrConnectionFailed(err), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF),
		errors.As(err, &network), errdefs.IsUnavailable(err):
		return providers.Unavailable
	case errdefs.IsNotFound(err):
		return providers.NotFound
	case errdefs.IsInvalidArgument(err):
		return providers.Invalid
	case errdefs.IsConflict(err):
		return providers.Busy
	case errdefs.IsResourceExhausted(err):
		return providers.Capacity
	case errdefs.IsNotImplemented(err):
		return providers.NotSupported
	default:
		return providers.Internal
	}
}
