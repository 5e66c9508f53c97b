package kind

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	"sandyard/models"
	"sandyard/providers"
)

// Kind is what holds for all jobs of one kind. A new kind is a row of the table kinds, a type of arguments in this
// package, a function in the worker that carries it out, and a route. Its lane, and whether it runs a user's program,
// stand in package models, where SQL reads them too.
type Kind struct {
	// Args makes arguments that the JSON of a job is decoded into.
	Args func() Args
	// Timeout is how long a job may run, apart from its wait in the queue; 0 = its arguments say it.
	Timeout time.Duration
	// Attempts is how often the platform tries a job on errors that may pass; 0 = usualAttempts. Every kind is safe to
	// try again: a create adopts, a file call overwrites, an exec or a cell attaches to what was started, and an edit is
	// known by its job.
	Attempts int
	// Results are the types of a job's result; none = it has no result.
	Results []reflect.Type
	// Internal: no generic submission may use it.
	Internal bool
	// Outside: it never waits for earlier jobs of its sandbox. It is about the sandbox's time, about what runs in it now,
	// or about a background exec or a code context, which stands outside the order, too.
	Outside bool
	// KeepsPaused: no paused sandbox is resumed for it.
	KeepsPaused bool
	// needs is what its provider has to support.
	needs ability
}

const (
	// usualAttempts take most of a minute: an engine that restarts is back by then.
	usualAttempts = 10
	// deleteAttempts take about eight minutes; then the scheduler begins again.
	deleteAttempts = 20
)

// kinds is the table of all kinds of job.
//
//nolint:gochecknoglobals // a constant, which each submission reads several times
var kinds = sync.OnceValue(table)

func table() map[string]Kind {
	return map[string]Kind{
		models.KindCreate: {Args: args[Create], Internal: true},
		models.KindBuild:  {Args: args[Build], Results: result1[BuildResult](), Internal: true},
		models.KindDelete: {Args: args[Delete], Timeout: DeleteTimeout, Attempts: deleteAttempts, KeepsPaused: true},
		models.KindPause:  {Args: args[Pause], Timeout: fileTimeout, KeepsPaused: true, needs: pausing},
		models.KindResume: {Args: args[Resume], Timeout: fileTimeout, KeepsPaused: true, needs: pausing},
		models.KindTimeout: {
			Args: args[SetTimeout], Timeout: fileTimeout, Results: result1[SetTimeoutResult](), Outside: true, KeepsPaused: true,
		},
		NameEgress: {Args: args[SetEgress], Timeout: fileTimeout, Results: result1[SetEgressResult](), needs: policies},
		NameEnv:    {Args: args[SetEnv], Timeout: fileTimeout, Results: result1[SetEnvResult]()},
		NamePort:   {Args: args[Port], Timeout: fileTimeout, Results: result1[PortResult](), needs: ports},

		models.KindExec: {
			Args:    args[Exec],
			Results: []reflect.Type{reflect.TypeFor[ExecResult](), reflect.TypeFor[BackgroundResult]()}, // of a background exec
		},
		models.KindExecWait:   {Args: args[ExecWait], Results: result1[providers.Exec](), Outside: true, needs: background},
		models.KindExecStdin:  {Args: args[ExecStdin], Timeout: fileTimeout, Outside: true, needs: background},
		models.KindExecSignal: {Args: args[ExecSignal], Timeout: fileTimeout, Outside: true, needs: background},
		models.KindExecDelete: {Args: args[ExecDelete], Timeout: fileTimeout, Outside: true, needs: background},
		models.KindCode:       {Args: args[Code], Results: result1[CodeResult](), needs: code},
		models.KindCodeCreate: {
			// An interpreter gets a minute to start.
			Args: args[CreateContext], Timeout: launchTimeout + fileTimeout, Results: result1[ContextResult](), needs: code,
		},
		models.KindCodeDelete: {Args: args[DeleteContext], Timeout: fileTimeout, Outside: true, needs: code},
		NameProcessList: {
			Args: args[ListProcesses], Timeout: fileTimeout, Results: result1[providers.ProcessList](), Outside: true,
			needs: processes,
		},
		NameProcessSignal: {Args: args[SignalProcess], Timeout: fileTimeout, Outside: true, needs: processes},

		"write":      {Args: args[Write], Timeout: fileTimeout, Results: result1[providers.FileInfo]()},
		"read":       {Args: args[Read], Timeout: fileTimeout, Results: result1[ReadResult]()},
		"list":       {Args: args[List], Timeout: fileTimeout, Results: result1[ListResult]()},
		"stat":       {Args: args[Stat], Timeout: fileTimeout, Results: result1[providers.FileInfo]()},
		"mkdir":      {Args: args[MakeDir], Timeout: fileTimeout, Results: result1[providers.FileInfo]()},
		"move":       {Args: args[Move], Timeout: fileTimeout, Results: result1[providers.FileInfo]()},
		"remove":     {Args: args[Remove], Timeout: fileTimeout},
		"edit":       {Args: args[Edit], Timeout: fileTimeout, Results: result1[EditResult]()},
		"glob":       {Args: args[Glob], Timeout: fileTimeout, Results: result1[GlobResult]()},
		"grep":       {Args: args[Grep], Timeout: fileTimeout, Results: result1[GrepResult]()},
		"write_many": {Args: args[WriteMany], Timeout: fileTimeout, Results: result1[WriteManyResult]()},
		"read_many":  {Args: args[ReadMany], Timeout: fileTimeout, Results: result1[ReadManyResult]()},
	}
}

// args makes the zero value of a type of arguments.
func args[T any, P interface {
	*T
	Args
}]() Args {
	return P(new(T))
}

func result1[T any]() []reflect.Type { return []reflect.Type{reflect.TypeFor[T]()} }

// Of is the kind of a job with these arguments.
func Of(a Args) Kind { return kinds()[a.Kind()] }

// Results are the types of the result by kind.
func Results() map[string][]reflect.Type {
	all := map[string][]reflect.Type{}
	for name, k := range kinds() {
		all[name] = k.Results
	}
	return all
}

// Submittable names the kinds that a generic submission may use on an existing sandbox.
func Submittable() []string {
	var names []string
	for name, k := range kinds() {
		if !k.Internal {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// Names names every kind of job.
func Names() []string {
	return slices.Sorted(maps.Keys(kinds()))
}

// TimeoutOf is how long a job may run, apart from its wait in the queue.
func TimeoutOf(a Args) (time.Duration, error) {
	if t, ok := a.(timed); ok {
		return t.budget()
	}
	return Of(a).Timeout, nil
}

// AttemptsOf is how often a job is tried on errors that may pass.
func AttemptsOf(a Args) int {
	if n := Of(a).Attempts; n > 0 {
		return n
	}
	return usualAttempts
}

// NewJob makes a job of arguments that are valid, for which they lose their bytes.
func NewJob(tenantID, sandboxID string, a Args) (models.Job, error) {
	j := models.Job{
		ID: models.NewID("job_"), TenantID: tenantID, SandboxID: sandboxID, Kind: a.Kind(), MaxAttempts: AttemptsOf(a),
	}
	if err := a.Validate(); err != nil {
		return j, err
	}
	timeout, err := TimeoutOf(a)
	if err != nil {
		return j, err
	}
	j.TimeoutMS = timeout.Milliseconds()
	if b, ok := a.(Blobs); ok {
		if j.Input, err = b.TakeBlob(); err != nil {
			return j, err
		}
	}
	j.Args, err = json.Marshal(a)
	return j, err
}

// FromJob reads a stored job's arguments.
func FromJob(j models.Job) (Args, error) {
	k, ok := kinds()[renamed(j.Kind)]
	if !ok {
		return nil, fmt.Errorf("this version knows no jobs of kind %q", j.Kind)
	}
	a := k.Args()
	if err := json.Unmarshal(j.Args, a); err != nil {
		return nil, err
	}
	if b, ok := a.(Blobs); ok {
		b.setBlob(j.Input)
	}
	return a, nil
}

// renamed is the name that a kind has now. Processes of the version before write the old ones while they are replaced.
func renamed(kind string) string {
	switch kind {
	case "write-many":
		return "write_many"
	case "read-many":
		return "read_many"
	}
	return kind
}
