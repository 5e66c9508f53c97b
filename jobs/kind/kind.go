// Package kind says what jobs of each kind are given: their arguments with their checks, what holds for all jobs of one
// kind (the table kinds), and the form of their results.
//
// The API decodes and checks arguments, the client stores them with a job, and a worker reads them again. How a job is
// carried out stands with the worker.
package kind

import (
	"bytes"
	"encoding/json"
	"io"
	"slices"
	"strings"
	"time"
)

// Args are what one job is given.
type Args interface {
	// Kind is the job's name in the API and in the tables.
	Kind() string
	// Validate says what is wrong with the arguments, as an *InvalidError.
	Validate() error
}

// timed is implemented by arguments that say how long their job may run.
type timed interface {
	budget() (time.Duration, error)
}

// Blobs is implemented by arguments that carry bytes, which are stored beside their JSON.
type Blobs interface {
	// TakeBlob decodes the bytes and removes them from the arguments.
	TakeBlob() ([]byte, error)
	setBlob([]byte)
}

// Decode reads the JSON of a kind's arguments strictly: an unknown kind or field is an *InvalidError.
func Decode(kind string, raw json.RawMessage) (Args, error) {
	kind = renamed(kind)
	if !slices.Contains(Submittable(), kind) {
		return nil, Invalid("kind", "unknown kind %q; use one of %s", kind, strings.Join(Submittable(), ", "))
	}
	args := kinds()[kind].Args()
	if len(raw) == 0 {
		raw = json.RawMessage("{}")
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(args); err != nil {
		return nil, Invalid("args", "%v", err)
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, Invalid("args", "more than one JSON value")
	}
	return args, nil
}
