package providers

import (
	"fmt"
	"io/fs"
	"time"
)

// Octal is a mode as FileInfo has it.
func Octal(mode uint32) string { return fmt.Sprintf("%04o", fs.FileMode(mode).Perm()) }

// Possible is the nearest time that JSON can tell.
func Possible(t time.Time) time.Time {
	first, last := time.Time{}, time.Date(9999, time.December, 31, 23, 59, 59, 0, time.UTC)
	switch {
	case t.Before(first):
		return first
	case t.After(last):
		return last
	}
	return t.UTC()
}
