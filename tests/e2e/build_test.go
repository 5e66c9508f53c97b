package e2e_test

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"sandyard/dev/testenv"

	"github.com/docker/docker/api/types/filters"
	dockerimage "github.com/docker/docker/api/types/image"
)

// built is what the tests read of a build's answer.
type built struct {
	Job struct {
		job
		Result struct {
			BuildID string `json:"build_id"`
			Image   string
		}
	}
}

// build builds and waits for the end.
func (r *rig) build(template string, body object) built {
	r.t.Helper()
	var b built
	decode(r.t, r.call("POST", "/v1/templates/"+template+"/builds?wait=110s", body).want(r.t, 200).raw, &b)
	return b
}

func TestTemplateIsBuiltAndBuiltAgain(t *testing.T) {
	testenv.Long(t, "it takes many seconds")
	t.Parallel()
	r := newRig(t)
	t.Cleanup(func() { r.engine.removeImages(t) })
	dockerfile := object{
		"dockerfile": "FROM " + image + "\nENV MADE=here\nCOPY hello /srv/\nRUN echo building && tr a-z A-Z </srv/hello >/srv/loud\n" +
			"COPY <<note /srv/note\n$MADE\nnote\n" +
			"RUN <<EOF\n#!/usr/bin/env python3\nopen('/srv/python', 'w').write('by python\\n')\nEOF\nRUN ls /tmp >/srv/left",
		"files": []object{{"path": "hello", "content": "hello\n"}},
	}
	first := r.build("mine", dockerfile)
	if first.Job.State != "succeeded" {
		t.Fatalf("the build: %+v", first.Job.job)
	}
	box := r.created(object{"template": "mine"}).ID
	if got := r.exec(box, `cd /srv && cat hello loud note python left; echo "$MADE"`).Stdout; got != "hello\nHELLO\nhere\nby python\nhere\n" {
		t.Errorf("a sandbox of it says %q", got)
	}
	log := r.follow("/v1/templates/mine/builds/" + first.Job.Result.BuildID + "/log?follow=true")
	if !strings.Contains(log, "Step 2/5 : RUN") || !strings.Contains(log, "\nbuilding\n") || !strings.HasSuffix(log, "[succeeded]") {
		t.Errorf("the log: %q", log)
	}
	if plain := r.call("GET", "/v1/templates/mine/builds/"+first.Job.Result.BuildID+"/log", nil).want(t, 200); !strings.HasPrefix(log, plain.raw) {
		t.Errorf("at once it is %q, followed %q", plain.raw, log)
	}

	failed := r.build("mine", object{"script": "echo cannot go on >&2; exit 3", "from": image})
	if failed.Job.State != "failed" || failed.Job.code() != "build_failed" || !strings.Contains(failed.Job.Error.Message, "exit code 3; its last output: cannot go on") {
		t.Errorf("the failing build: %+v", failed.Job.job)
	}
	if got := r.templateImage("mine"); got != first.Job.Result.Image {
		t.Errorf("after a failed build the image is %q", got)
	}
	r.call("PUT", "/v1/templates/mine", object{
		"image": first.Job.Result.Image, "ready": object{"command": "test -e /srv/second", "timeout_seconds": 5},
	}).want(t, 200)
	silent := r.build("mine", object{"script": "true", "from": image})
	if silent.Job.State != "failed" || silent.Job.code() != "template_not_ready" || r.templateImage("mine") != first.Job.Result.Image {
		t.Errorf("a build whose sandbox does not come up: %+v; image %s", silent.Job.job, r.templateImage("mine"))
	}
	second := r.build("mine", object{"script": "mkdir -p /srv && cp note /srv/second", "from": image, "files": []object{{"path": "note", "content": "2"}}})
	if second.Job.State != "succeeded" || r.templateImage("mine") != second.Job.Result.Image {
		t.Fatalf("the second build: %+v; image %s", second.Job.job, r.templateImage("mine"))
	}
	other := r.created(object{"template": "mine"}).ID
	if got := r.exec(other, "cat /srv/second").Stdout; got != "2" {
		t.Errorf("a new sandbox says %q", got)
	}
	if got := r.exec(box, "cat /srv/hello").Stdout; got != "hello\n" {
		t.Errorf("the old one says %q", got)
	}
	r.remove(box, other)
}

// TestTemplateOfAnImageThatStands: the build tries the image and gives it to the template as it is. One that no engine holds is
// not fetched, and changes nothing.
func TestTemplateOfAnImageThatStands(t *testing.T) {
	t.Parallel()
	r := newRig(t, "SANDBOX_PULL", "true")
	b := r.build("mine", object{"image": image})
	if b.Job.State != "succeeded" || b.Job.Result.Image != image || r.templateImage("mine") != image {
		t.Fatalf("the build: %+v; the template's image %s", b.Job, r.templateImage("mine"))
	}
	box := r.created(object{"template": "mine"}).ID
	if got := r.exec(box, "python3 -c 'print(6*7)'").Stdout; got != "42\n" {
		t.Errorf("a sandbox of it says %q", got)
	}
	missing := r.build("mine", object{"image": "127.0.0.1:1/none:none"})
	if missing.Job.State != "failed" || missing.Job.code() != "image_not_found" || r.templateImage("mine") != image {
		t.Errorf("an image that is not there: %+v; the template's image %s", missing.Job.job, r.templateImage("mine"))
	}
	r.remove(box)
}

// TestTemplatesBaseAndNode: sandboxes of the other small templates that come with Sandyard start and run.
func TestTemplatesBaseAndNode(t *testing.T) {
	t.Parallel()
	r := newRig(t, "SANDBOX_TEMPLATES", "python="+image+",base=sandyard/base:default,node=sandyard/node:default")
	for template, program := range map[string]string{
		"base": `echo "$((6 * 7)) $(id -u)"`, "node": `node -e 'console.log(6 * 7, process.getuid())'`,
	} {
		t.Run(template, func(t *testing.T) {
			if _, err := r.engine.api.ImageInspect(t.Context(), "sandyard/"+template+":default"); err != nil {
				t.Skipf("skipped: no image of template %s; TEMPLATE=%[1]s images/build.sh makes it: %v", template, err)
			}
			box := r.created(object{"template": template}).ID
			if got := r.exec(box, program).Stdout; got != "42 1000\n" {
				t.Errorf("a sandbox of %s says %q", template, got)
			}
			r.remove(box)
		})
	}
}

func (r *rig) templateImage(name string) string {
	r.t.Helper()
	var doc struct{ Image string }
	decode(r.t, r.call("GET", "/v1/templates/"+name, nil).want(r.t, 200).raw, &doc)
	return doc.Image
}

// follow reads a stream of events to its end: the pieces of the log, and the last state in brackets.
func (r *rig) follow(path string) string {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), http.MethodGet, r.url()+path, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+r.key)
	answer, err := r.http.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer answer.Body.Close()
	var all strings.Builder
	for lines := bufio.NewScanner(answer.Body); lines.Scan(); {
		data, is := strings.CutPrefix(lines.Text(), "data: ")
		var end struct{ State string }
		var text string
		switch {
		case !is:
		case json.Unmarshal([]byte(data), &text) == nil:
			all.WriteString(text)
		case json.Unmarshal([]byte(data), &end) == nil:
			all.WriteString("[" + end.State + "]")
		}
	}
	return all.String()
}

// removeImages removes what the fleet has built.
func (e *engine) removeImages(t testing.TB) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	found, err := e.api.ImageList(ctx, dockerimage.ListOptions{Filters: filters.NewArgs(filters.Arg("label", "sandyard.fleet="+e.fleet))})
	if err != nil {
		t.Errorf("list images: %v", err)
	}
	for _, i := range found {
		if _, err := e.api.ImageRemove(ctx, i.ID, dockerimage.RemoveOptions{Force: true}); err != nil {
			t.Errorf("remove image: %v", err)
		}
	}
}
