package e2e_test

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"sandyard/dev/testenv"
)

// toolUser is a client of the tools, in one conversation.
type toolUser struct {
	t       *testing.T
	session *mcp.ClientSession
}

// keyed sends an API key with every request.
type keyed struct {
	key  string
	next http.RoundTripper
}

func (k keyed) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("X-API-Key", k.key)
	return k.next.RoundTrip(r)
}

func (r *rig) toolUser(session string) toolUser {
	r.t.Helper()
	client := mcp.NewClient(&mcp.Implementation{Name: "agent", Version: "1"}, nil)
	s, err := client.Connect(context.Background(), &mcp.StreamableClientTransport{
		Endpoint: r.url() + "/mcp?session=" + session, HTTPClient: &http.Client{Transport: keyed{r.key, r.http.Transport}}, DisableStandaloneSSE: true,
	}, nil)
	check(r.t, err)
	r.t.Cleanup(func() { s.Close() })
	return toolUser{r.t.(*testing.T), s}
}

// toolRun is what a tool says of a command.
type toolRun struct {
	ExecID    string `json:"exec_id"`
	SandboxID string `json:"sandbox_id"`
	Running   bool   `json:"running"`
	ExitCode  *int   `json:"exit_code"`
	Stdout    string `json:"stdout"`
	Cursor    string `json:"cursor"`
	Content   string `json:"content"`
}

func (a toolUser) call(tool string, args object) (out toolRun) {
	a.t.Helper()
	res, err := a.session.CallTool(context.Background(), &mcp.CallToolParams{Name: tool, Arguments: args})
	check(a.t, err)
	raw, err := json.Marshal(res.StructuredContent)
	check(a.t, err)
	if res.IsError {
		a.t.Fatalf("%s: %s", tool, raw)
	}
	decode(a.t, string(raw), &out)
	return out
}

// TestToolsCommandOutlivesItsWorkerAndItsServer kills the worker and the API process during a call of shell_exec. Another
// client of the conversation, at another API process, has the whole output, once.
func TestToolsCommandOutlivesItsWorkerAndItsServer(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	a := r.toolUser("chat")
	answer := make(chan toolRun, 1)
	go func() {
		answer <- a.call("shell_exec", object{"command": "echo ran >> log; echo begun; until [ -e go ]; do sleep 0.1; done; seq 1 30000; exit 5", "wait": 8})
	}()
	testenv.Eventually(t, "the command runs", func() bool { return r.count("running") == 1 && r.count("succeeded") == 1 })
	r.worker.Kill()
	r.startWorker()
	run := <-answer
	if !run.Running {
		t.Fatalf("the command did not wait: %+v", run)
	}
	got := run.Stdout
	r.api.Kill()
	r.startAPI()
	a = r.toolUser("chat")
	a.call("file_write", object{"file": "go", "content": ""})
	for run.ExitCode == nil {
		run = a.call("shell_wait", object{"exec_id": run.ExecID, "cursor": run.Cursor})
		got += run.Stdout
	}
	for piece := run; piece.Stdout != ""; {
		piece = a.call("shell_wait", object{"exec_id": run.ExecID, "cursor": piece.Cursor})
		got += piece.Stdout
	}
	lines := strings.Split(strings.TrimSpace(got), "\n")
	if len(lines) != 30001 || lines[0] != "begun" || lines[1] != "1" || lines[30000] != "30000" || *run.ExitCode != 5 {
		t.Errorf("%d lines from %q to %q, exit code %d", len(lines), lines[0], lines[len(lines)-1], *run.ExitCode)
	}
	if log := a.call("file_read", object{"file": "log"}); log.Content != "ran\n" || log.SandboxID != run.SandboxID {
		t.Errorf("the command was started as %q", log.Content)
	}
	r.clean()
}

// TestToolsOverStandardIO starts sandyard mcp as a client does.
func TestToolsOverStandardIO(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	connect := func(key string, args ...string) (*mcp.ClientSession, error) {
		cmd := exec.Command(program(t, "sandyard"), append([]string{"mcp"}, args...)...)
		cmd.Env = append(os.Environ(), "SANDYARD_URL="+r.url(), "SANDYARD_API_KEY="+key)
		return mcp.NewClient(&mcp.Implementation{Name: "stdio", Version: "1"}, nil).Connect(t.Context(), &mcp.CommandTransport{Command: cmd}, nil)
	}
	s, err := connect(r.key, "--session", "desk", "--tools", "core,env_set")
	check(t, err)
	a := toolUser{t, s}
	list, err := s.ListTools(t.Context(), nil)
	check(t, err)
	if len(list.Tools) != 16 {
		t.Errorf("%d tools, want the core set and env_set", len(list.Tools))
	}
	large := strings.Repeat("ä\u2028\n", 100_000)
	a.call("file_write", object{"file": "large", "content": large})
	var both sync.WaitGroup // the second call does not wait for the first
	both.Go(func() { a.call("shell_exec", object{"command": "until [ -e go ]; do sleep 0.1; done"}) })
	both.Go(func() { a.call("shell_exec", object{"command": "touch go"}) })
	both.Wait()
	run := a.call("shell_exec", object{"command": "wc -c <large"})
	if run.Stdout != "600000\n" {
		t.Errorf("the file has %q bytes", run.Stdout)
	}
	if same := r.toolUser("desk").call("shell_exec", object{"command": "true"}); same.SandboxID != run.SandboxID {
		t.Error("the named conversation has another sandbox over HTTP")
	}
	check(t, s.Close())
	if _, err := connect("sy_" + strings.Repeat("0", 40)); err == nil || !strings.Contains(err.Error(), "the API key is unknown or revoked") {
		t.Errorf("a wrong key: %v", err)
	}
	if _, err := connect(r.key, "--tools", "nonsense"); err == nil || !strings.Contains(err.Error(), "neither a set of tools nor a tool") {
		t.Errorf("an unknown set: %v", err)
	}
	r.clean()
}
