package dev

import "errors"

var (
	// ErrNotInstalled is returned when a server's program is not on this machine; the message names the Debian package.
	ErrNotInstalled = errors.New("not installed")

	// ErrInUse is returned when a server is already running in the directory.
	ErrInUse = errors.New("directory is in use by another instance")
)
