package kind

import (
	"bytes"
	"fmt"
	"math"
	"path"
	"strconv"
	"time"

	"sandyard/providers"
)

// InvalidError is a request that cannot be carried out as it stands.
type InvalidError struct {
	Field   string
	Message string
}

func (e *InvalidError) Error() string { return e.Field + ": " + e.Message }

// Invalid is the error of a field that is wrong.
func Invalid(field, format string, args ...any) *InvalidError {
	return &InvalidError{Field: field, Message: fmt.Sprintf(format, args...)}
}

// Bounds of what a request may ask for.
const (
	DefaultExecTimeout = 300 * time.Second
	MaxTimeout         = 24 * time.Hour
	maxPath            = 4096
	MaxEnvBytes        = 128 << 10
)

// Seconds turns a request's number of seconds into a duration between least and MaxTimeout; zero means def.
func Seconds(field string, v float64, def, least time.Duration) (time.Duration, error) {
	if v == 0 {
		return def, nil
	}
	if math.IsNaN(v) || v < least.Seconds() || v > MaxTimeout.Seconds() {
		return 0, Invalid(
			field,
			"must be between %s and %s seconds, not %s",
			Plain(least.Seconds()),
			Plain(MaxTimeout.Seconds()),
			Plain(v),
		)
	}
	return time.Duration(v * float64(time.Second)), nil
}

// Plain writes a number without an exponent.
func Plain(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }

// checkPath says what is wrong with a path in a sandbox.
func checkPath(field, path string) error {
	switch {
	case path == "":
		return Invalid(field, "is missing")
	case len(path) > maxPath:
		return Invalid(field, "is %d bytes long; the limit is %d", len(path), maxPath)
	}
	return NoNUL(field, path)
}

// CheckEnv says what is wrong with environment variables.
func CheckEnv(field string, env map[string]string) error {
	size := 0
	for name, value := range env {
		if name == "" || bytes.ContainsAny([]byte(name), "=\x00") {
			return Invalid(field, "%q is not a valid variable name", name)
		}
		if err := NoNUL(field+"."+name, value); err != nil {
			return err
		}
		size += len(name) + len(value)
	}
	if size > MaxEnvBytes {
		return Invalid(field, "is %d bytes in total; the limit is %d", size, MaxEnvBytes)
	}
	return nil
}

// NoNUL refuses text with a NUL byte, which no path, argument or column can hold.
func NoNUL(field, s string) error {
	if bytes.IndexByte([]byte(s), 0) >= 0 {
		return Invalid(field, "must not contain a NUL byte")
	}
	return nil
}

// CheckNotReserved refuses a directory of the kernel's or of the guest's own. A relative one begins in a work
// directory.
func CheckNotReserved(field, dir string) error {
	if dir != "" && (path.IsAbs(dir) && providers.Reserved(dir) || providers.Reserved("/workspace/"+dir)) {
		return Invalid(field, "%.200q is below /proc, /sys, /dev or %s; choose another directory", dir, providers.GuestDir)
	}
	return nil
}
