package jobs_test

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"sandyard/dev/jobsrig"
	"sandyard/jobs"
	"sandyard/jobs/kind"
	"sandyard/models"
	"sandyard/providers"
	"sandyard/providers/fake"
)

func doubled() *kind.Edit {
	return &kind.Edit{Path: "f", Edits: []kind.Replacement{{OldString: "a", NewString: "aa"}}}
}

func TestAnEditWhoseAnswerIsLostIsMadeOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.Worker(4)
	r.Scheduler()
	for before := 1; before < 5; before++ { // so many of the calls that the fake provider makes of an edit are answered
		box, _ := r.Create(jobs.CreateSandbox{})
		r.Wait(r.Submit(box, &kind.Write{Path: "f", Content: "a"}, jobsrig.Options()))
		r.State.Inject(fake.Fault{Op: fake.OpFile, Sandbox: box, Times: before})
		r.State.Inject(fake.Fault{Op: fake.OpFile, Sandbox: box, After: true, Err: providers.Unavailable.Errorf("lost")})
		j := r.Wait(r.Submit(box, doubled(), jobsrig.Options()))
		var res kind.EditResult
		r.Must(json.Unmarshal(j.Result, &res))
		if j.State != models.Succeeded || j.Attempt < 2 || !slices.Equal(res.Replaced, []int{1}) {
			t.Errorf("after %d calls: %s after %d attempts: %+v %+v", before, j.State, j.Attempt, res, j.Error)
		}
		if j := r.Wait(r.Submit(box, &kind.Read{Path: "f"}, jobsrig.Options())); string(j.Content) != "aa" {
			t.Errorf("after %d calls: the file holds %q", before, j.Content)
		}
	}
}

func TestFileToolsKeepTheirBytesForARetry(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.Worker(4)
	r.Scheduler()
	box, _ := r.Create(jobs.CreateSandbox{})
	many := r.Submit(box, &kind.WriteMany{Files: []kind.Write{{Path: "x", Content: "AP8=", Encoding: "base64"}, {Path: "f", Content: "a", Mode: "0600"}}}, jobsrig.Options())
	edited := r.Submit(box, doubled(), jobsrig.Options())
	if j := r.Wait(edited); j.State != models.Succeeded {
		t.Fatalf("%s: %+v", j.State, j.Error)
	}
	again := func(job string) {
		out, err := r.Client.Retry(t.Context(), job, jobsrig.Options())
		r.Must(err)
		if j := r.Wait(out.Jobs[0].ID); j.State != models.Succeeded {
			t.Fatalf("the retry of %s ended %s: %+v", j.Kind, j.State, j.Error)
		}
	}
	again(many)
	again(edited)
	j := r.Wait(r.Submit(box, &kind.ReadMany{Paths: []string{"f", "none", "x"}}, jobsrig.Options()))
	var res kind.ReadManyResult
	r.Must(json.Unmarshal(j.Result, &res))
	if string(j.Content) != "aa\x00\xff" || res.Failed != 1 || len(res.Files) != 3 || res.Files[1].Error == nil || res.Files[1].Error.Code != "file_not_found" {
		t.Errorf("%q, %+v", j.Content, res)
	}
}

// TestManyBytesOfAJobGoWithItsEnd: a retry copied them, and a request of 200 bytes made 16 MiB of rows.
func TestManyBytesOfAJobGoWithItsEnd(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.Worker(4)
	r.Scheduler()
	box, _ := r.Create(jobs.CreateSandbox{})
	write := r.Wait(r.Submit(box, &kind.Write{Path: "f", Content: strings.Repeat("a", 20<<10)}, jobsrig.Options()))
	if write.State != models.Succeeded || write.Input != nil || !write.InputDropped {
		t.Fatalf("the write ended %s with %d bytes, dropped %v: %+v", write.State, len(write.Input), write.InputDropped, write.Error)
	}
	var wrong *kind.InvalidError
	if _, err := r.Client.Retry(t.Context(), write.ID, jobsrig.Options()); !errors.As(err, &wrong) || !strings.Contains(wrong.Message, "submit the write again") {
		t.Errorf("the retry of a job whose bytes are gone: %v", err)
	}
	read := r.Wait(r.Submit(box, &kind.Read{Path: "f"}, jobsrig.Options()))
	out, err := r.Client.Retry(t.Context(), read.ID, jobsrig.Options())
	r.Must(err)
	if j := r.Wait(out.Jobs[0].ID); j.State != models.Succeeded || len(j.Content) != 20<<10 {
		t.Errorf("the retry of a job that came without bytes ended %s: %+v", j.State, j.Error)
	}
}

func TestFileToolsSayWhatIsWrong(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	box, _ := r.Create(jobs.CreateSandbox{})
	for name, args := range map[string]kind.Args{
		"no edit":       &kind.Edit{Path: "f"},
		"empty text":    &kind.Edit{Path: "f", Edits: []kind.Replacement{{NewString: "a"}}},
		"both":          &kind.Edit{Path: "f", Edits: []kind.Replacement{{OldString: "a", Count: 1, ReplaceAll: true}}},
		"no base64":     &kind.Edit{Path: "f", Edits: []kind.Replacement{{OldString: "!", Encoding: "base64"}}},
		"no path":       &kind.Edit{Edits: []kind.Replacement{{OldString: "a"}}},
		"too much":      &kind.Edit{Path: "f", Edits: []kind.Replacement{{OldString: "a", NewString: string(make([]byte, 5<<20))}}},
		"no pattern":    &kind.Glob{},
		"limit":         &kind.Glob{Pattern: "*", Limit: 100_000},
		"no expression": &kind.Grep{},
		"context":       &kind.Grep{Pattern: "a", Context: 21},
		"nothing":       &kind.WriteMany{},
		"mode":          &kind.WriteMany{Files: []kind.Write{{Path: "f", Mode: "rw"}}},
		"bytes":         &kind.WriteMany{Files: []kind.Write{{Path: "f", Content: "!", Encoding: "base64"}}},
		"no paths":      &kind.ReadMany{},
		"too many":      &kind.ReadMany{Paths: make([]string, 1001)},
	} {
		_, err := r.Client.Submit(t.Context(), box, args, jobsrig.Options())
		if invalid := (*kind.InvalidError)(nil); !errors.As(err, &invalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
