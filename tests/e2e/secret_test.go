package e2e_test

import (
	"os/exec"
	"strings"
	"testing"

	"sandyard/vault"
)

// TestSecrets: a command, a background command and a cell get a secret as a variable. Its value is in no row, log or answer.
func TestSecrets(t *testing.T) {
	t.Parallel()
	const value = "hunter2-a6f1c0de"
	r := newRig(t, "SECRETS_KEY", vault.NewKey())
	put := r.call("PUT", "/v1/secrets/github", object{"value": value}).want(t, 200)
	list := r.call("GET", "/v1/secrets", nil).want(t, 200)
	box := r.create(object{})
	uses := object{"secrets": object{"TOKEN": "github"}}
	length := func(j job, stdout string) {
		t.Helper()
		if j.State != "succeeded" || !strings.HasPrefix(stdout, "16") {
			t.Errorf("%s %q %+v", j.State, stdout, j.Error)
		}
	}
	ran := r.exec(box.ID, "printf %s ${#TOKEN}", uses)
	length(ran, ran.Stdout)
	plain := r.exec(box.ID, "printf %s ${TOKEN-none}")
	if plain.Stdout != "none" {
		t.Errorf("the next command has it, too: %q", plain.Stdout)
	}
	cell := r.end(r.submit("/v1/sandboxes/"+box.ID+"/code", object{
		"language": "python", "code": "import os; print(len(os.environ['TOKEN']))", "secrets": object{"TOKEN": "github"},
	}).Job)
	length(cell, cell.Stdout)
	back := r.exec(box.ID, "printf %s ${#TOKEN} >length", object{"background": true}, uses)
	r.end(r.submit("/v1/sandboxes/"+box.ID+"/execs/"+back.ID+"/wait", object{}).Job)
	length(back, string(r.exec(box.ID, "cat length").Stdout))
	once := r.end(r.submit("/v1/run", object{"command": "printf %s ${#TOKEN}", "secrets": object{"TOKEN": "github"}}).Job)
	length(once, once.Stdout)
	r.call("POST", "/v1/sandboxes/"+box.ID+"/exec", object{"command": "true", "secrets": object{"TOKEN": "other"}}).problem(t, 422, "invalid_request")

	dump, err := exec.Command("pg_dump", "--inserts", "--dbname", r.settings["DATABASE_URL"]).Output()
	check(t, err)
	if !strings.Contains(string(dump), "github") {
		t.Error("the dump does not have the secret's name: what does it show?")
	}
	places := map[string]string{"the database": string(dump), "the answer to PUT": string(put.raw), "the list": string(list.raw)}
	r.each(func(p *process) { places["the log of "+p.Name] = p.Stderr.String() })
	for place, text := range places {
		if strings.Contains(text, value) {
			t.Errorf("the value is in %s", place)
		}
	}
	r.call("DELETE", "/v1/secrets/github", nil).want(t, 204)
	r.call("DELETE", "/v1/secrets/github", nil).problem(t, 404, "not_found")
	r.clean()
}
