package providers

import (
	"errors"
	"fmt"
	"time"
)

// Class is what kind of trouble a provider met; it decides whether the platform may try again.
type Class string

// The classes, as they appear in a job's error code.
const (
	NotFound     Class = "sandbox_not_found"
	Lost         Class = "sandbox_lost"
	Paused       Class = "sandbox_paused"
	ImageMissing Class = "image_not_found"
	FileNotFound Class = "file_not_found"
	NotAFile     Class = "not_a_file"
	NotADir      Class = "not_a_directory"
	FileExists   Class = "file_exists"
	FileDenied   Class = "permission_denied"
	InvalidPath  Class = "invalid_path"
	NoSpace      Class = "no_space"
	NoMatch      Class = "text_not_found"
	Ambiguous    Class = "text_ambiguous"
	TooLarge     Class = "too_large"
	BadArchive   Class = "invalid_archive"
	NoCommand    Class = "command_not_found"
	NoDir        Class = "cwd_not_found"
	NoUser       Class = "user_not_available"
	Invalid      Class = "invalid_argument"
	NoExec       Class = "exec_not_found"
	ExecEnded    Class = "exec_ended"
	NoProcess    Class = "process_not_found"
	NoContext    Class = "context_not_started" // the interpreter did not come up
	TooManyExecs Class = "too_many_execs"
	Unavailable  Class = "provider_unavailable" // no answer; the outcome is unknown
	Busy         Class = "sandbox_busy"         // its state is changing
	Capacity     Class = "no_capacity"
	Quota        Class = "provider_quota"       // the account's sandboxes or its money are used up
	Refused      Class = "provider_refused"     // the provider does not take the operator's key, or not for this
	KeyRefused   Class = "provider_key_refused" // the provider does not take the tenant's own key, or not for this
	RateLimited  Class = "rate_limited"         // the provider wants fewer calls; see Error.RetryAfter
	DiskFull     Class = "disk_full"            // of the machine, not of the sandbox, which is NoSpace
	NotReady     Class = "template_not_ready"   // the programs of a new sandbox did not come up
	BuildFailed  Class = "build_failed"
	SetupFailed  Class = "setup_failed"    // what was to prepare a new sandbox
	BuildDisk    Class = "build_disk_full" // the machine's, while it ran: another try could fill it again
	NotSupported Class = "unsupported_operation"
	Internal     Class = "provider_error"
)

// Error is the only error type that leaves a provider.
type Error struct {
	Class   Class
	Message string // for the user: what is wrong and what to do
	Err     error  // for the log
	// RetryAfter is how long the provider wants to be left alone; 0 = it does not say.
	RetryAfter time.Duration
}

// Errorf makes an Error of the class; a %w among args becomes its cause.
func (c Class) Errorf(format string, args ...any) *Error {
	err := fmt.Errorf(format, args...)
	return &Error{Class: c, Message: err.Error(), Err: errors.Unwrap(err)}
}

func (e *Error) Error() string { return string(e.Class) + ": " + e.Message }

func (e *Error) Unwrap() error { return e.Err }

// Is makes errors.Is compare classes, so errors.Is(err, ErrNotFound) works for every not-found.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Class == e.Class
}

// Retryable says whether the platform may run the operation again by itself.
func (e *Error) Retryable() bool {
	switch e.Class {
	case Unavailable, Busy, Capacity, Quota, RateLimited, DiskFull, Internal:
		return true
	default:
		return false
	}
}

// Sentinels for errors.Is.
var (
	ErrNotFound     = &Error{Class: NotFound, Message: "the sandbox does not exist"}
	ErrLost         = &Error{Class: Lost, Message: "the sandbox died"}
	ErrPaused       = &Error{Class: Paused, Message: "the sandbox is paused; resume it first"}
	ErrFileNotFound = &Error{Class: FileNotFound, Message: "no such file"}
	ErrImageMissing = &Error{Class: ImageMissing, Message: "the provider does not have the image"}
	ErrNoExec       = &Error{Class: NoExec, Message: "no such command in the sandbox"}
	ErrTooLarge     = &Error{Class: TooLarge, Message: "the file is too large"}
)

// AsError returns err as an *Error, wrapping what is not one as Internal.
func AsError(err error) *Error {
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	return &Error{Class: Internal, Message: "the provider failed", Err: err}
}

// IsGone says whether what an error is about is not there any more: the sandbox, or the command in it.
func IsGone(err error) bool {
	return errors.Is(err, ErrNotFound) || errors.Is(err, ErrLost) || errors.Is(err, ErrNoExec)
}
