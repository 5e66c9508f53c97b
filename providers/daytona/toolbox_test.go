package daytona_test

import (
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"

	"sandyard/providers"
	"sandyard/providers/providertest/fixture"
	"sandyard/providers/remote/remotetest"
)

// serveInside is the toolbox. It runs a script as Daytona's older daemons do, by taking the line apart without a shell.
func (v *vendor) serveInside(w http.ResponseWriter, r *http.Request, path string, body []byte) {
	v.mu.Lock()
	inside := v.inside
	v.mu.Unlock()
	if inside != nil {
		inside(w, r)
		return
	}
	_, operation, _ := strings.Cut(path, "/")
	v.mu.Lock()
	v.asked = append(v.asked, operation)
	f := v.faults[operation]
	delete(v.faults, operation)
	v.mu.Unlock()
	switch {
	case f != nil:
		f(w, r)
	case operation == "files/bulk-upload":
		v.upload(w, r)
	case operation == "files/download":
		http.ServeFile(w, r, r.URL.Query().Get("path"))
	case operation == "process/execute":
		v.execute(w, r, body)
	default:
		fail(w, 404, "no such tool")
	}
}

// upload takes one file.
func (v *vendor) upload(w http.ResponseWriter, r *http.Request) {
	if err := r.ParseMultipartForm(1 << 20); err != nil {
		fail(w, 400, err.Error())
		return
	}
	path := r.FormValue("files[0].path")
	from, _, err := r.FormFile("files[0].file")
	if err != nil || !strings.HasPrefix(path, "/tmp/.sandyard-") {
		v.t.Errorf("uploaded to %q, %v", path, err)
		fail(w, 400, "bad form")
		return
	}
	v.change(func() { v.sent = append(v.sent, path) })
	data, err := io.ReadAll(from)
	if err == nil {
		err = os.WriteFile(path, data, 0o600)
	}
	if err != nil {
		fail(w, 500, err.Error())
		return
	}
	remotetest.Tell(w, 200, map[string]any{"files": []any{}})
}

func (v *vendor) execute(w http.ResponseWriter, r *http.Request, body []byte) {
	var ask struct {
		Command string `json:"command"`
		Timeout int    `json:"timeout"`
	}
	if json.Unmarshal(body, &ask) != nil || ask.Timeout < 60 {
		fail(w, 400, "bad command")
		return
	}
	if strings.Contains(scriptOf(v.t, ask.Command), "'/workspace'") { // which nobody makes on this machine
		v.prints(w, "ready\n")
		return
	}
	v.mu.Lock()
	edit := v.edit
	v.mu.Unlock()
	if edit != nil {
		before := scriptOf(v.t, ask.Command)
		encoded := base64.StdEncoding.EncodeToString
		ask.Command = strings.Replace(ask.Command, encoded([]byte(before)), encoded([]byte(edit.Replace(before))), 1)
	}
	words := apart(ask.Command)
	cmd := exec.CommandContext(r.Context(), words[0], words[1:]...)
	out, _ := cmd.CombinedOutput() // how it ends is not looked at
	remotetest.Tell(w, 200, map[string]any{"exitCode": cmd.ProcessState.ExitCode(), "result": string(out)})
}

// apart splits a line at blanks outside of quotes.
func apart(line string) (words []string) {
	for i, part := range strings.Split(line, "'") {
		if i%2 == 1 {
			words = append(words, part)
		} else {
			words = append(words, strings.Fields(part)...)
		}
	}
	return words
}

// scriptOf is the script that a command line holds.
func scriptOf(t *testing.T, line string) string {
	t.Helper()
	_, rest, _ := strings.Cut(line, "printf %s ")
	code, _, _ := strings.Cut(rest, "|")
	text, err := base64.StdEncoding.DecodeString(code)
	if err != nil {
		t.Error(err)
	}
	return string(text)
}

// prints is the answer to a script that has printed text.
func (v *vendor) prints(w http.ResponseWriter, text string) {
	code := base64.StdEncoding.EncodeToString([]byte(text))
	remotetest.Tell(w, 200, map[string]any{"exitCode": 0, "result": "sandyard-begin\n" + code + "\nsandyard-end\n"})
}

// TestNoRoomForOutput: output that is to be read from a file, for which there is no room, is not taken for none.
func TestNoRoomForOutput(t *testing.T) {
	t.Parallel()
	v := newVendor(t)
	box, _ := opened(t, v)
	v.change(func() { v.edit = strings.NewReplacer(") >/tmp/", ") >/none/") })
	_, err := box.(scripts).Script(t.Context(), "", "echo something", 5<<20)
	fixture.WantClass(t, err, providers.NoSpace)
	v.change(func() { v.edit = nil })
	if out, err := box.(scripts).Script(t.Context(), "", "echo something", 5<<20); err != nil || string(out) != "something\n" {
		t.Errorf("with room: %q, %v", out, err)
	}
}
