package kind

import (
	"strings"
	"time"

	"sandyard/models"
)

// BackgroundResult is what the job that started a background exec says of it.
type BackgroundResult struct {
	ExecID string `json:"exec_id" doc:"The id of this job, which names the exec"`
	Pid    int    `json:"pid" doc:"Inside the sandbox"`
}

// ExecRef names a background exec.
type ExecRef struct {
	ExecID string `json:"exec_id" doc:"The id of the job that started the exec; for a terminal, term_ and its name"`
}

// Name is the command's name in the sandbox. Other names than those of jobs and terminals are none of the users'
// business.
func (r ExecRef) Name() (string, error) {
	if !strings.HasPrefix(r.ExecID, "job_") && !strings.HasPrefix(r.ExecID, "term_") || len(r.ExecID) > 64 ||
		strings.ContainsAny(r.ExecID, "/?#%\x00") {
		return "", Invalid("exec_id", "%q is not an exec; use the id of the job that started it", r.ExecID)
	}
	return r.ExecID, nil
}

// ExecWait waits for the end of a background exec. It keeps no slot of a worker, and counts as activity of the sandbox.
type ExecWait struct {
	ExecRef
	TimeoutSeconds float64 `json:"timeout_seconds,omitempty" doc:"How long to wait for the exec's end; the exec continues afterwards; default 300, at most 86400"`
}

// Kind implements Args.
func (*ExecWait) Kind() string { return models.KindExecWait }

// Validate implements Args.
func (x *ExecWait) Validate() error {
	_, err := x.Name()
	return err
}

func (x *ExecWait) budget() (time.Duration, error) {
	return Seconds("timeout_seconds", x.TimeoutSeconds, DefaultExecTimeout, 100*time.Millisecond)
}

// ExecStdin writes to the standard input of a background exec that was started with stdin_open.
type ExecStdin struct {
	ExecRef
	Data     string `json:"data,omitempty" doc:"Appended to earlier input"`
	Encoding string `json:"encoding,omitempty" enum:"utf-8,base64" doc:"Encoding of data in this request; default utf-8"`
	EOF      bool   `json:"eof,omitempty" doc:"Close the input after data"`

	blob []byte
}

// Kind implements Args.
func (*ExecStdin) Kind() string { return models.KindExecStdin }

// Validate implements Args.
func (x *ExecStdin) Validate() error {
	if x.Data == "" && len(x.blob) == 0 && !x.EOF {
		return Invalid("data", "is missing; give data, eof or both")
	}
	_, err := x.Name()
	return err
}

// TakeBlob implements Blobs.
func (x *ExecStdin) TakeBlob() ([]byte, error) {
	b, err := decode("data", x.Data, x.Encoding)
	x.Data, x.Encoding = "", ""
	return b, err
}

func (x *ExecStdin) setBlob(b []byte) { x.blob = b }

// Input is what a stored job writes.
func (x *ExecStdin) Input() []byte { return x.blob }

// ExecSignal sends a signal to the process group of an exec.
type ExecSignal struct {
	ExecRef
	Signal string `json:"signal" doc:"Such as SIGINT, SIGTERM or SIGUSR1; the prefix SIG is optional"`
}

// Kind implements Args.
func (*ExecSignal) Kind() string { return models.KindExecSignal }

// Validate implements Args.
func (x *ExecSignal) Validate() error {
	if err := checkSignal(x.Signal); err != nil {
		return err
	}
	_, err := x.Name()
	return err
}

// ExecDelete kills an exec with its whole process tree, if it still runs, and drops its output.
type ExecDelete struct {
	ExecRef
}

// Kind implements Args.
func (*ExecDelete) Kind() string { return models.KindExecDelete }

// Validate implements Args.
func (x *ExecDelete) Validate() error {
	_, err := x.Name()
	return err
}
