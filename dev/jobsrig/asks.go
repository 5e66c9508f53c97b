package jobsrig

import (
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5"

	"sandyard/jobs"
	"sandyard/jobs/kind"
	"sandyard/models"
	"sandyard/providers/codecontext"
)

// Background starts a command that goes on and returns the exec's id.
func (r *Rig) Background(box, script string) string {
	r.T.Helper()
	o := Options()
	o.Parallel = true
	j := r.Wait(r.Submit(box, &kind.Exec{Command: script, Background: true, StdinOpen: true}, o))
	var res kind.BackgroundResult
	if j.State == models.Succeeded {
		r.Must(json.Unmarshal(j.Result, &res))
	}
	if res.ExecID != j.ID || res.Pid == 0 {
		r.T.Fatalf("the start of %q: %s %+v %s", script, j.State, j.Error, j.Result)
	}
	return res.ExecID
}

// Ref names an exec in arguments.
func Ref(exec string) kind.ExecRef { return kind.ExecRef{ExecID: exec} }

// Cell submits code and returns its job.
func (r *Rig) Cell(box, code string, change ...func(*kind.Code, *jobs.Options)) string {
	r.T.Helper()
	c, o := &kind.Code{Language: codecontext.Python, Code: code}, Options()
	for _, f := range change {
		f(c, &o)
	}
	return r.Submit(box, c, o)
}

// CodeResult is the result of a job that ran code.
func (r *Rig) CodeResult(j models.Job) (res kind.CodeResult) {
	r.T.Helper()
	r.Must(json.Unmarshal(j.Result, &res))
	return res
}

// Content reads a file of a sandbox.
func (r *Rig) Content(box, path string) string {
	r.T.Helper()
	o := Options()
	o.Parallel = true
	return string(r.Wait(r.Submit(box, &kind.Read{Path: path}, o)).Content)
}

// Lived sums the seconds between an event that begins a state of a sandbox and the next that ends it.
func (r *Rig) Lived(box, state string) float64 {
	r.T.Helper()
	list, err := r.Store.Events(r.T.Context(), Tenant, models.EventFilter{Sandbox: box, Limit: 1000})
	r.Must(err)
	var sum float64
	var since time.Time
	for i := len(list) - 1; i >= 0; i-- { // the newest comes first
		var detail struct{ From string }
		r.Must(json.Unmarshal(list[i].Detail, &detail))
		if detail.From == state && list[i].Event != "sandbox.adopted" {
			sum += list[i].At.Sub(since).Seconds()
		}
		if list[i].Event == "sandbox."+state {
			since = list[i].At
		}
	}
	return sum
}

// Unfolded counts rows that the scheduler has still to add to the hours.
func (r *Rig) Unfolded() (n int) {
	r.T.Helper()
	conn, err := pgx.Connect(r.T.Context(), r.DSN)
	r.Must(err)
	defer conn.Close(r.T.Context())
	r.Must(
		conn.QueryRow(r.T.Context(), "SELECT (SELECT count(*) FROM usage_facts) + (SELECT count(*) FROM usage_spans)").
			Scan(&n),
	)
	return n
}
