// Package engineerr turns errors of a Docker engine into the provider contract's, in words that users may read.
package engineerr

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/client"

	"sandyard/providers"
)

// Translate turns an error of the engine into the contract's. doing completes the sentence "could not …".
func Translate(err error, doing string) error {
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*providers.Error](err); ok {
		return e
	}
	return &providers.Error{Class: ClassOf(err), Message: "could not " + doing + ": " + wording(err), Err: err}
}

// wording is what users may read of an error. Those of the way to the engine name its address, which is none of theirs.
func wording(err error) string {
	var network net.Error
	switch onTheWay := errors.As(err, &network) || client.IsErrConnectionFailed(err); {
	case errors.Is(err, context.Canceled):
		return "the request was cancelled"
	case errors.Is(err, context.DeadlineExceeded), network != nil && network.Timeout():
		return "the docker engine did not answer in time"
	case errors.Is(err, io.EOF),
		errors.Is(err, io.ErrUnexpectedEOF),
		errors.Is(err, syscall.ECONNRESET),
		errors.Is(err, syscall.EPIPE):
		return "the connection to the docker engine broke"
	case onTheWay:
		return "the docker engine cannot be reached"
	case Unfrozen(err):
		return "its processes could not be frozen in time, as the machine is busy; try again"
	case unloaded(err):
		return "the runtime could not load its first process, as the machine is busy; try again"
	default:
		return err.Error()
	}
}

// Unfrozen tells a pause that runc gave up under cgroup v1, where a busy machine does not stop all processes in time.
// The engine has no class for it.
func Unfrozen(err error) bool { return err != nil && strings.Contains(err.Error(), "unable to freeze") }

// unloaded tells a start for which gVisor did not load the guest, which is the same file each time.
func unloaded(err error) bool {
	return strings.Contains(err.Error(), "failed to load ") && strings.Contains(err.Error(), "bad address")
}

// Unaddressed is an error of a connection without the connection's addresses.
func Unaddressed(err error) error {
	if op, ok := errors.AsType[*net.OpError](err); ok {
		return fmt.Errorf("%s: %w", op.Op, op.Err)
	}
	return err
}

// ClassOf is the class of an error of the engine, or of the way to it.
func ClassOf(err error) providers.Class {
	var network net.Error
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded),
		client.IsErrConnectionFailed(err), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF),
		errors.As(err, &network), errdefs.IsUnavailable(err), unloaded(err):
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
	case Unfrozen(err):
		return providers.Busy
	default:
		return providers.Internal
	}
}
