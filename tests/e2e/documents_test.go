package e2e_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"sandyard/vault"
)

// TestCurlsInDocumentsWork runs every curl of README and of the pages of docs/api as it stands there, a page after the other,
// on a sandbox of the page's own. Each must be answered with a success, and a job whose end is in the answer must have
// succeeded, unless the page shows another answer. An answer that a page shows must be the real one: see differences.
func TestCurlsInDocumentsWork(t *testing.T) {
	t.Parallel()
	r := newRig(t, "SECRETS_KEY", vault.NewKey())
	pages, err := filepath.Glob("../../docs/api/*.md")
	check(t, err)
	curls, answers := 0, 0
	user := object{"name": "reader", "password": "TestPass123!"}
	r.call("POST", "/v1/users", user)
	var login struct {
		Token string `json:"access_token"`
	}
	decode(t, string(r.call("POST", "/v1/login", user).raw), &login)
	for _, page := range append([]string{"../../README.md"}, pages...) {
		text, err := os.ReadFile(page)
		check(t, err)
		shown := curlsOf(t, page, string(text))
		if len(shown) == 0 {
			continue
		}
		box := r.create(object{})
		last := r.exec(box.ID, "printf hello >data.txt")
		var key struct{ Key struct{ ID string } }
		decode(t, string(r.call("POST", "/v1/keys", object{"name": "of " + page}).raw), &key)
		dir := t.TempDir()
		check(t, os.WriteFile(filepath.Join(dir, "data.bin"), []byte("bytes"), 0o600))
		for _, c := range shown {
			curls++
			if c.answer != "" {
				answers++
			}
			c.run(t, dir, "S=http://"+r.address, "H=Authorization: Bearer "+r.key,
				"J=Content-Type: application/json", "ID="+box.ID, "JOB="+last.ID, "K="+key.Key.ID, "T="+login.Token)
		}
	}
	r.clean()
	if curls < 25 || answers < 12 {
		t.Errorf("only %d curls and %d answers were found", curls, answers)
	}
}

// TestCommandsForAgentsWork follows what the server publishes for agents: every page that llms.txt lists is there without
// a key, and the commands of the skill do what it says, in the order in which it has them.
func TestCommandsForAgentsWork(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	keyless := *r.caller
	keyless.key = ""
	list := keyless.call("GET", "/llms.txt", nil).want(t, 200).raw
	links := regexp.MustCompile(`(?m)^- \[[^\]]+\]\(([^)]+)\): \S`).FindAllStringSubmatch(list, -1)
	begins := regexp.MustCompile(`\A# Sandyard\n\n> \S`).MatchString(list)
	if !begins || len(links) < 6 || strings.Count(list, "](") != len(links) {
		t.Errorf("llms.txt has not the form of llmstxt.org, or %d links: %s", len(links), list)
	}
	for _, link := range links {
		keyless.call("GET", link[1], nil).want(t, 200)
	}
	skill := keyless.call("GET", "/skill.md", nil).want(t, 200).raw
	if !regexp.MustCompile(`\A---\nname: sandyard\ndescription: \S`).MatchString(skill) {
		t.Errorf("the skill has not the front matter of a skill: %.200s", skill)
	}
	box := r.create(object{"key": "my-task"})
	dir := t.TempDir()
	env := []string{
		"SANDYARD_URL=http://" + r.address, "SANDYARD_API_KEY=" + r.key, "ID=" + box.ID,
		"PATH=" + filepath.Dir(program(t, "sandyard")) + ":" + os.Getenv("PATH"),
	}
	setting := regexp.MustCompile(`(?m)^export .*$`).FindString(skill)
	curls := curlsOf(t, "skill.md", skill)
	for _, c := range curls {
		c.command = setting + "; " + c.command
		out := c.run(t, dir, env...)
		if strings.Contains(c.command, `"background": true`) {
			var started struct{ Job job }
			decode(t, out, &started)
			env = append(env, "JOB="+started.Job.ID)
		}
	}
	clients := regexp.MustCompile(`(?m)^sandyard .*$`).FindAllString(skill, -1)
	for _, line := range clients {
		cmd := exec.Command("bash", "-c", line)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "http://"+r.address+"/mcp") {
			t.Errorf("%s: %v: %s", line, err, out)
		}
	}
	if len(curls) < 10 || len(clients) != 1 {
		t.Errorf("%d curls and %d commands of the client were found", len(curls), len(clients))
	}
	r.clean()
}

// curl is a command of a page, with the answer that the page shows to it; empty = none.
type curl struct{ page, command, answer string }

// run carries out the command in a directory, with more environment, compares its answer and returns it.
func (c curl) run(t *testing.T, dir string, env ...string) string {
	t.Helper()
	cmd := exec.Command("bash", "-c", strings.Replace(c.command, "curl -s", "curl -sS --fail-with-body --max-time 60", 1))
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	out, err := cmd.Output()
	c.compare(t, string(out), err)
	return string(out)
}

// compare holds what the server sent to what the page shows.
func (c curl) compare(t *testing.T, out string, failed error) {
	t.Helper()
	var answer any
	if err := json.Unmarshal([]byte(out), &answer); err != nil {
		t.Errorf("%s: %s\n%v; the answer is no JSON: %s", c.page, c.command, failed, out)
		return
	}
	if c.answer != "" {
		shown, err := shownAnswer(c.answer)
		check(t, err)
		for _, found := range differences("", shown, answer) {
			t.Errorf("%s: %s\nin the answer that the page shows, %s", c.page, c.command, found)
		}
		if fields, ok := shown.(map[string]any); ok && fields["code"] != nil && fields["status"] != nil {
			if failed == nil {
				t.Errorf("%s: %s\nthe page shows a problem document, the request succeeded", c.page, c.command)
			}
			return
		}
	}
	var accepted struct{ Job job }
	decode(t, out, &accepted)
	if failed != nil || accepted.Job.Error != nil {
		t.Errorf("%s: %s\n%v: %s", c.page, c.command, failed, out)
	}
}

// curlsOf are the commands in a page's code blocks that begin with curl, each with the lines that belong to it. A block of JSON
// is the answer to the last command of the block before it; a page must not show one without that.
func curlsOf(t *testing.T, page, text string) []curl {
	t.Helper()
	var curls []curl
	asked := false // the block before this one ends with a command, in the same section
	for i, block := range strings.Split(text, "\n```") {
		if i%2 == 0 {
			asked = asked && !strings.Contains(block, "\n#")
			continue
		}
		_, block, _ = strings.Cut(block, "\n")
		if strings.HasPrefix(block, "{") || strings.HasPrefix(block, "[") {
			if !asked {
				t.Errorf("%s shows an answer without its request: %.80s", page, block)
				continue
			}
			curls[len(curls)-1].answer, asked = block, false
			continue
		}
		commands := commandsOf(block)
		for _, command := range commands {
			curls = append(curls, curl{page: page, command: command})
		}
		asked = len(commands) > 0
	}
	return curls
}

func commandsOf(block string) []string {
	var commands []string
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
	return commands
}
