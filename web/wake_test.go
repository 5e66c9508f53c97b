package web_test

import "testing"

// TestFilesWakeASandbox reads, writes and archives in a paused sandbox that may be resumed, and in one that may not.
func TestFilesWakeASandbox(t *testing.T) {
	t.Parallel()
	r := newInsideRig(t)
	pause := func() { r.call("POST", "/v1/sandboxes/"+r.box+"/pause?wait=60s", object{}).want(t, 200) }
	pause()
	r.call("GET", r.path("/files/raw", "path=f"), nil).problem(t, 409, "sandbox_paused")
	r.call("PUT", r.path("/files/raw", "path=f"), []byte("x")).problem(t, 409, "sandbox_paused")

	r.box = r.call("POST", "/v1/sandboxes?wait=60s", object{"auto_resume": true}).want(t, 200).text("sandbox.id")
	pause()
	r.call("PUT", r.path("/files/raw", "path=d/f"), []byte("written")).want(t, 200)
	pause()
	if got := r.call("GET", r.path("/files/raw", "path=d/f"), nil).want(t, 200); got.raw != "written" {
		t.Errorf("it holds %q", got.raw)
	}
	pause()
	r.call("GET", r.path("/files/tree", "path=d"), nil).want(t, 200)
	if state := r.call("GET", "/v1/sandboxes/"+r.box, nil).text("state"); state != "running" {
		t.Errorf("afterwards it is %s", state)
	}
	if n := len(r.call("GET", "/v1/jobs?kind=resume&sandbox_id="+r.box, nil).want(t, 200).get("jobs").([]any)); n != 3 {
		t.Errorf("there were %d resumes", n)
	}
}
