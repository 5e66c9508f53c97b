package web_test

import (
	"strings"
	"testing"

	"sandyard/dev/testenv"
)

// TestRunNeedsItsFiles: where a file cannot be written, nothing runs, and the job names the file.
func TestRunNeedsItsFiles(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.work()
	files := []object{{"path": "fine.txt", "content": "1"}, {"path": "../../etc/x", "content": "1"}, {"path": "last.txt"}}
	failed := func(what string, a answer, at string) {
		if a.text(at+"state") != "failed" || a.text(at+"error.code") != "file_not_written" || a.get(at+"result") != nil ||
			!strings.Contains(a.text(at+"error.message"), `"../../etc/x"`) || !strings.Contains(a.text(at+"error.message"), "invalid_path") {
			t.Errorf("%s: %s", what, a.raw)
		}
	}
	for what, body := range map[string]object{
		"a command": {"files": files, "command": "fake:stdout ran"}, "code": {"files": files, "language": "python", "code": "1"},
	} {
		failed(what, r.call("POST", "/v1/run?wait=60s", body).want(t, 200), "job.")
		polled := r.call("POST", "/v1/run?wait=0", body).want(t, 202)
		failed(what+" that is polled", r.call("GET", "/v1/jobs/"+polled.text("job.id")+"?wait=60s", nil).want(t, 200), "")
		sandbox := polled.text("sandbox.id")
		testenv.Eventually(t, "the sandbox is deleted", func() bool {
			return r.call("GET", "/v1/sandboxes/"+sandbox, nil).text("state") == "deleted"
		})
	}
	schedule := r.call("POST", "/v1/schedules", object{"interval_seconds": 3600, "run": object{"files": files, "command": "fake:stdout ran"}}).want(t, 201)
	failed("a schedule's run", r.call("POST", "/v1/schedules/"+schedule.text("id")+"/run?wait=60s", nil), "job.")
}

// TestRunNeedsTheJobOfItsFiles: that job may end in other ways than by a file's error.
func TestRunNeedsTheJobOfItsFiles(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	a := r.call("POST", "/v1/run?wait=0", object{"files": []object{{"path": "a"}}, "command": "fake:stdout ran"}).want(t, 202)
	list, _ := r.call("GET", "/v1/jobs?kind=write_many&sandbox_id="+a.text("sandbox.id"), nil).get("jobs").([]any)
	if len(list) != 1 {
		t.Fatalf("%d jobs write the files", len(list))
	}
	id, _ := list[0].(map[string]any)["id"].(string)
	r.call("POST", "/v1/jobs/"+id+"/cancel", nil).want(t, 200)
	r.work()
	if a = r.call("GET", "/v1/jobs/"+a.text("job.id")+"?wait=60s", nil); a.text("state") != "failed" || a.text("error.code") != "file_not_written" {
		t.Errorf("the command ran without its file: %s", a.raw)
	}
}

// TestRunsFilesAreChecked before anything is made.
func TestRunsFilesAreChecked(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	a := r.call("POST", "/v1/run", object{"files": []object{{"path": "a"}, {"path": ""}}, "command": "x"}).problem(t, 422, "invalid_request")
	if !strings.Contains(a.raw, `"location":"body.files[1].path"`) || r.rows() != "0 sandboxes, 0 jobs" {
		t.Errorf("%s, %s", a.raw, r.rows())
	}
}
