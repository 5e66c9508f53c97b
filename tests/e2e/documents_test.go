package e2e_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestCurlsInDocumentsWork runs every curl of README and of the pages of docs/api as it stands there, a page after the other,
// on a sandbox of the page's own. Each must be answered with a success, and a job whose end is in the answer must have
// succeeded.
func TestCurlsInDocumentsWork(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	pages, err := filepath.Glob("../../docs/api/*.md")
	check(t, err)
	curls := 0
	for _, page := range append([]string{"../../README.md"}, pages...) {
		text, err := os.ReadFile(page)
		check(t, err)
		commands := curlsOf(string(text))
		if len(commands) == 0 {
			continue
		}
		box := r.create(object{})
		last := r.exec(box.ID, "printf hello >data.txt")
		dir := t.TempDir()
		check(t, os.WriteFile(filepath.Join(dir, "data.bin"), []byte("bytes"), 0o600))
		for _, command := range commands {
			curls++
			cmd := exec.Command("bash", "-c", strings.Replace(command, "curl -s", "curl -sS --fail-with-body --max-time 60", 1))
			cmd.Dir = dir
			cmd.Env = append(os.Environ(), "S=http://"+r.address, "H=Authorization: Bearer "+r.key,
				"J=Content-Type: application/json", "ID="+box.ID, "JOB="+last.ID)
			out, err := cmd.CombinedOutput()
			var answer struct{ Job job }
			switch {
			case err != nil:
				t.Errorf("%s: %s\n%v: %s", page, command, err, out)
			case json.Unmarshal(out, &answer) != nil:
				t.Errorf("%s: %s\nthe answer is no JSON: %s", page, command, out)
			case answer.Job.Error != nil:
				t.Errorf("%s: %s\nthe job ended %s: %+v", page, command, answer.Job.State, *answer.Job.Error)
			}
			if strings.Contains(command, "/v1/run") && page == "../../README.md" {
				compareWithReadme(t, string(text), string(out))
			}
		}
	}
	r.clean()
	if curls < 25 {
		t.Errorf("only %d curls were found", curls)
	}
}

// curlsOf are the commands in a page's code blocks that begin with curl, each with the lines that belong to it.
func curlsOf(text string) []string {
	var commands []string
	for i, block := range strings.Split(text, "\n```") {
		if i%2 == 0 {
			continue
		}
		var open string
		for line := range strings.Lines(block) {
			line = strings.TrimSuffix(line, "\n")
			if open == "" && !strings.HasPrefix(line, "curl ") {
				continue
			}
			open += line
			if strings.HasSuffix(line, `\`) || strings.Count(open, "'")%2 == 1 {
				open += "\n"
				continue
			}
			commands, open = append(commands, open), ""
		}
	}
	return commands
}

// compareWithReadme holds the answer that README shows to the real one, field by field; what differs from run to run is left out.
func compareWithReadme(t *testing.T, readme, answer string) {
	t.Helper()
	_, shown, _ := strings.Cut(readme, "The answer, without")
	shown, _, _ = strings.Cut(shown, "## ")
	fields := regexp.MustCompile(`"(kind|state|attempt|exit_code|timed_out|oom_killed|stdout_bytes|stdout|stdout_encoding|stderr)": ?("[^"]*"|[a-z0-9]+)`)
	answered := map[string]string{}
	job, _, _ := strings.Cut(answer, `"sandbox":{`)
	for _, m := range fields.FindAllStringSubmatch(job, -1) {
		answered[m[1]] = m[2]
	}
	found := fields.FindAllStringSubmatch(shown, -1)
	for _, m := range found {
		if answered[m[1]] != m[2] {
			t.Errorf("README shows %s, the server answers %q: %s", m[0], m[1], answered[m[1]])
		}
	}
	if len(found) < 9 {
		t.Errorf("only %d fields of README's answer were found", len(found))
	}
}
