// Package jobs is the queue's life: it turns requests into durable jobs, hands them to Redis through Asynq, runs them
// on workers against a provider, and lets the scheduler's loops pick up whatever time or a crash left behind.
//
// PostgreSQL decides everything; a message in Redis only says where to look. See ARCHITECTURE.md for the life of a job.
package jobs

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"sandyard/models"
)

// Args are what one kind of job is given. A kind is a file in this package plus a line in kinds.
type Args interface {
	// Kind is the job's name in the API and in the tables.
	Kind() string
	// Validate says what is wrong with the arguments, as an *InvalidError.
	Validate() error
	// run carries the job out on a worker.
	run(ctx context.Context, a *attempt) (result, error)
}

// blobs is implemented by arguments that carry bytes, which are stored beside their JSON.
type blobs interface {
	// takeBlob decodes the bytes and removes them from the arguments.
	takeBlob() ([]byte, error)
	setBlob([]byte)
}

// kinds lists every kind of job. The JSON of a job's arguments is decoded into what make returns.
func kinds() map[string]func() Args {
	return map[string]func() Args{
		models.KindCreate:     func() Args { return &Create{} },
		models.KindBuild:      func() Args { return &Build{} },
		models.KindDelete:     func() Args { return &Delete{} },
		models.KindPause:      func() Args { return &Pause{} },
		models.KindResume:     func() Args { return &Resume{} },
		models.KindTimeout:    func() Args { return &SetTimeout{} },
		"egress":              func() Args { return &SetEgress{} },
		KindEnv:               func() Args { return &SetEnv{} },
		models.KindExec:       func() Args { return &Exec{} },
		models.KindCode:       func() Args { return &Code{} },
		models.KindCodeCreate: func() Args { return &CreateContext{} },
		models.KindCodeDelete: func() Args { return &DeleteContext{} },
		"exec_wait":           func() Args { return &ExecWait{} },
		"exec_stdin":          func() Args { return &ExecStdin{} },
		"exec_signal":         func() Args { return &ExecSignal{} },
		"exec_delete":         func() Args { return &ExecDelete{} },
		kindProcessList:       func() Args { return &ListProcesses{} },
		kindProcessSignal:     func() Args { return &SignalProcess{} },
		"write":               func() Args { return &Write{} },
		"read":                func() Args { return &Read{} },
		"list":                func() Args { return &List{} },
		"stat":                func() Args { return &Stat{} },
		"mkdir":               func() Args { return &MakeDir{} },
		"move":                func() Args { return &Move{} },
		"remove":              func() Args { return &Remove{} },
		"edit":                func() Args { return &Edit{} },
		"glob":                func() Args { return &Glob{} },
		"grep":                func() Args { return &Grep{} },
		"write-many":          func() Args { return &WriteMany{} },
		"read-many":           func() Args { return &ReadMany{} },
		"port":                func() Args { return &Port{} },
	}
}

// SubmittableKinds names the kinds that a generic submission may use on an existing sandbox.
func SubmittableKinds() []string {
	var names []string
	for name := range kinds() {
		if name != models.KindCreate && name != models.KindBuild {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// AllKinds names every kind of job.
func AllKinds() []string {
	names := slices.Collect(maps.Keys(kinds()))
	slices.Sort(names)
	return names
}

// DecodeArgs reads the JSON of a kind's arguments strictly: an unknown kind or field is an *InvalidError.
func DecodeArgs(kind string, raw json.RawMessage) (Args, error) {
	if !slices.Contains(SubmittableKinds(), kind) {
		return nil, invalid("kind", "unknown kind %q; use one of %s", kind, strings.Join(SubmittableKinds(), ", "))
	}
	args := kinds()[kind]()
	if len(raw) == 0 {
		raw = json.RawMessage("{}")
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(args); err != nil {
		return nil, invalid("args", "%v", err)
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, invalid("args", "more than one JSON value")
	}
	return args, nil
}

// InvalidError is a request that cannot be carried out as it stands.
type InvalidError struct {
	Field   string
	Message string
}

func (e *InvalidError) Error() string { return e.Field + ": " + e.Message }

func invalid(field, format string, args ...any) *InvalidError {
	return &InvalidError{Field: field, Message: fmt.Sprintf(format, args...)}
}

// Bounds of what a request may ask for.
const (
	DefaultExecTimeout = 300 * time.Second
	MaxTimeout         = 24 * time.Hour
	maxPath            = 4096
	maxEnv             = 128 << 10
)

// seconds turns a request's number of seconds into a duration between least and MaxTimeout; zero means def.
func seconds(field string, v float64, def, least time.Duration) (time.Duration, error) {
	if v == 0 {
		return def, nil
	}
	if math.IsNaN(v) || v < least.Seconds() || v > MaxTimeout.Seconds() {
		return 0, invalid(field, "must be between %s and %s seconds, not %s", plain(least.Seconds()), plain(MaxTimeout.Seconds()), plain(v))
	}
	return time.Duration(v * float64(time.Second)), nil
}

// plain writes a number without an exponent.
func plain(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }

func checkPath(field, path string) error {
	switch {
	case path == "":
		return invalid(field, "is missing")
	case len(path) > maxPath:
		return invalid(field, "is %d bytes long; the limit is %d", len(path), maxPath)
	}
	return noNUL(field, path)
}

func checkEnv(field string, env map[string]string) error {
	size := 0
	for name, value := range env {
		if name == "" || bytes.ContainsAny([]byte(name), "=\x00") {
			return invalid(field, "%q is not a valid variable name", name)
		}
		if err := noNUL(field+"."+name, value); err != nil {
			return err
		}
		size += len(name) + len(value)
	}
	if size > maxEnv {
		return invalid(field, "is %d bytes in total; the limit is %d", size, maxEnv)
	}
	return nil
}

func noNUL(field, s string) error {
	if bytes.IndexByte([]byte(s), 0) >= 0 {
		return invalid(field, "must not contain a NUL byte")
	}
	return nil
}
