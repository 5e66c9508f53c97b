package v1

import (
	"encoding/base64"
	"encoding/json"
	"maps"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"

	"sandyard/jobs/kind"
	"sandyard/models"
	"sandyard/providers/codecontext"
)

// Job is the document of a job. What is not known yet is absent.
type Job struct {
	ID                string           `json:"id"`
	Kind              string           `json:"kind"`
	State             string           `json:"state" enum:"queued,running,succeeded,failed,timed_out,cancelled,lost,expired" doc:"If a program exits 1, its job has succeeded; failed means that the platform or the sandbox could not run it"`
	SandboxID         string           `json:"sandbox_id"`
	Parallel          bool             `json:"parallel"`
	Priority          int              `json:"priority"`
	Attempt           int              `json:"attempt" doc:"Number of starts"`
	MaxAttempts       int              `json:"max_attempts"`
	Error             *models.JobError `json:"error,omitempty" doc:"Why the job did not succeed"`
	Result            JobResult        `json:"result,omitempty"`
	Stdout            *string          `json:"stdout,omitempty" doc:"Output of an exec's command or a code cell; not in lists"`
	StdoutEncoding    string           `json:"stdout_encoding,omitempty" enum:"utf-8,base64" doc:"base64 if the bytes are not valid UTF-8, or if control characters would double their size in JSON"`
	Stderr            *string          `json:"stderr,omitempty"`
	StderrEncoding    string           `json:"stderr_encoding,omitempty" enum:"utf-8,base64"`
	Content           *string          `json:"content,omitempty" doc:"The bytes that a read returned; not in lists"`
	ContentEncoding   string           `json:"content_encoding,omitempty" enum:"utf-8,base64"`
	OutputOmitted     bool             `json:"output_omitted,omitempty" doc:"The result or the output is too large for this response: get the job by its id"`
	Timings           Timings          `json:"timings"`
	RetryOf           *string          `json:"retry_of,omitempty" doc:"The job that this job retries"`
	CallbackURL       *string          `json:"callback_url,omitempty"`
	QueueDeadline     *time.Time       `json:"queue_deadline,omitempty"`
	CancelRequestedAt *time.Time       `json:"cancel_requested_at,omitempty"`
	OutputDroppedAt   *time.Time       `json:"output_dropped_at,omitempty" doc:"When the server deleted its output and content at the end of their retention time"`
}

// Timings say where a job's time went.
type Timings struct {
	QueuedAt   time.Time  `json:"queued_at"`
	StartedAt  *time.Time `json:"started_at,omitempty"`
	FinishedAt *time.Time `json:"finished_at,omitempty"`
	QueueMS    *int64     `json:"queue_ms,omitempty" doc:"From submission to start"`
	RunMS      *int64     `json:"run_ms,omitempty" doc:"From start to end"`
	ProviderMS *int64     `json:"provider_ms,omitempty" doc:"The provider's part of run_ms"`
}

// JobResult is what a job's kind says of its outcome.
type JobResult json.RawMessage

// MarshalJSON implements json.Marshaler.
func (r JobResult) MarshalJSON() ([]byte, error) { return json.RawMessage(r).MarshalJSON() }

// Schema implements huma.SchemaProvider.
func (JobResult) Schema(r huma.Registry) *huma.Schema {
	kinds := kind.Results()
	all := map[string]*huma.Schema{}
	for _, types := range kinds {
		for _, t := range types {
			all[t.Name()] = r.Schema(t, true, t.Name())
		}
	}
	s := &huma.Schema{Description: "The outcome, in the form of the job's kind"}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		s.AnyOf = append(s.AnyOf, all[name])
	}
	return s
}

// jobSummary is a job's document without its bytes, as lists have it.
func (s *core) jobSummary(j models.Job) Job {
	doc := Job{
		ID: j.ID, Kind: j.Kind, State: string(j.State), SandboxID: j.SandboxID, Parallel: j.Parallel, Priority: j.Priority,
		Attempt: j.Attempt, MaxAttempts: j.MaxAttempts, Error: j.Error, RetryOf: j.RetryOf, CallbackURL: j.CallbackURL,
		OutputOmitted: j.Unread > 0, QueueDeadline: j.QueueDeadline, CancelRequestedAt: j.CancelRequestedAt,
		OutputDroppedAt: j.OutputDroppedAt,
		Timings: Timings{
			QueuedAt: j.QueuedAt, StartedAt: j.StartedAt, FinishedAt: j.FinishedAt, ProviderMS: j.ProviderMS,
		},
	}
	if len(j.Result) > 0 && string(j.Result) != "null" {
		doc.Result = JobResult(j.Result)
	}
	if j.Kind == models.KindCode && doc.Result != nil {
		doc.Result = withShown(doc.Result, nil)
	}
	if j.Kind == "port" && doc.Result != nil {
		doc.Result = s.withToken(doc.Result, j.SandboxID)
	}
	if j.StartedAt != nil {
		doc.Timings.QueueMS = milliseconds(j.QueuedAt, *j.StartedAt)
		if j.FinishedAt != nil {
			doc.Timings.RunMS = milliseconds(*j.StartedAt, *j.FinishedAt)
		}
	}
	return doc
}

func (s *core) jobDoc(j models.Job) Job {
	doc := s.jobSummary(j)
	if doc.Result == nil || j.Unread > 0 {
		return doc
	}
	switch j.Kind {
	case models.KindExec:
		if started := (kind.BackgroundResult{}); json.Unmarshal(j.Result, &started) == nil && started.ExecID != "" {
			return doc // its output is read from the exec
		}
		doc.Stdout, doc.StdoutEncoding = encode(j.Stdout)
		doc.Stderr, doc.StderrEncoding = encode(j.Stderr)
	case models.KindCode:
		doc.Stdout, doc.StdoutEncoding = encode(j.Stdout)
		doc.Stderr, doc.StderrEncoding = encode(j.Stderr)
		doc.Result = withShown(doc.Result, j.Content)
	case "read":
		doc.Content, doc.ContentEncoding = encode(j.Content)
	case "read_many":
		doc.Result = withContent(doc.Result, j.Content)
	}
	return doc
}

// withShown puts what a cell has shown into its result.
func withShown(stored JobResult, shown []byte) JobResult {
	var res kind.CodeResult
	if json.Unmarshal(stored, &res) != nil || len(shown) > 0 && json.Unmarshal(shown, &res.Results) != nil {
		return stored
	}
	if res.Results == nil {
		res.Results = []codecontext.Result{}
	}
	raw, err := json.Marshal(res)
	if err != nil {
		return stored
	}
	return raw
}

// withContent puts the bytes that a read of many files has read into its result.
func withContent(stored JobResult, content []byte) JobResult {
	var read kind.ReadManyResult
	if json.Unmarshal(stored, &read) != nil {
		return stored
	}
	read.SplitContent(content, encode)
	raw, err := json.Marshal(read)
	if err != nil {
		return stored
	}
	return raw
}

// encode writes bytes as text where they are text that JSON does not make much longer, and exactly in any case.
func encode(b []byte) (*string, string) {
	text, encoding := "", "utf-8"
	if utf8.Valid(b) && !swells(b) {
		text = string(b)
	} else {
		text, encoding = base64.StdEncoding.EncodeToString(b), "base64"
	}
	return &text, encoding
}

// swells says whether JSON's escapes more than double a long text.
func swells(b []byte) bool {
	const long = 4 << 10
	if len(b) < long {
		return false
	}
	extra := 0
	for _, c := range b {
		switch {
		case c == '\n', c == '\t', c == '\r', c == '"', c == '\\':
			extra++
		case c < ' ', c == '<', c == '>', c == '&':
			extra += len(`u0001`)
		}
	}
	return extra > len(b)
}

func milliseconds(from, to time.Time) *int64 {
	return new(to.Sub(from).Milliseconds())
}
