package web_test

import (
	"testing"

	"sandyard/models"
)

// TestParallelCreatesRun: "parallel" means nothing to the job that starts a sandbox, whichever way it is submitted.
func TestParallelCreatesRun(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.work()
	ended := func(what string, a answer) {
		if a.get("job.parallel") != false || !models.JobState(a.text("job.state")).Terminal() {
			t.Errorf("%s: %s", what, a.raw)
		}
	}
	ended("a create", r.call("POST", "/v1/sandboxes?wait=60s", object{"parallel": true}))
	ended("a create with a key", r.call("POST", "/v1/sandboxes?wait=60s", object{"parallel": true, "key": "k"}))
	ended("a build", r.call("POST", "/v1/templates/mine/builds?wait=60s", object{"script": "true", "from": "fake", "parallel": true}))
	ended("a run", r.call("POST", "/v1/run?wait=60s", object{"command": "true", "parallel": true, "files": []object{{"path": "a"}}}))
	for what, action := range map[string]object{
		"a scheduled create": {"create": object{}}, "a scheduled run": {"run": object{"command": "true"}},
	} {
		action["interval_seconds"], action["parallel"] = 3600, true
		id := r.call("POST", "/v1/schedules", action).want(t, 201).text("id")
		ended(what, r.call("POST", "/v1/schedules/"+id+"/run?wait=60s", object{}))
	}
}

// TestParallelJobsOfANewSandboxRun, although they are submitted before it runs.
func TestParallelJobsOfANewSandboxRun(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	id := r.sandbox(object{"parallel": true})
	job := r.call("POST", "/v1/jobs", object{"sandbox_id": id, "kind": "exec", "args": object{"command": "fake:exit 0"}, "parallel": true}).want(t, 202).text("job.id")
	r.work()
	if a := r.call("GET", "/v1/jobs/"+job+"?wait=60s", nil).want(t, 200); a.text("state") != "succeeded" {
		t.Errorf("the exec has not run: %s", a.raw)
	}
	if a := r.call("POST", "/v1/jobs/"+job+"/retry?wait=60s", nil).want(t, 200); a.text("job.state") != "succeeded" {
		t.Errorf("its retry has not run: %s", a.raw)
	}
}
