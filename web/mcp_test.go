package web_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"sandyard/dev/testenv"
	"sandyard/models"
	"sandyard/web"
)

// talk is one conversation of a client of the protocol.
type talk struct {
	t       testing.TB
	session *mcp.ClientSession
}

// withKey sends an API key with every request.
type withKey struct {
	key  string
	next http.RoundTripper
}

func (k withKey) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+k.key)
	return k.next.RoundTrip(r)
}

// talk begins a conversation at the rig's server, whose URL has the query.
func (r *rig) talk(query string) talk { return r.talkAs(r.key, query, nil) }

func (r *rig) talkAs(key, query string, o *mcp.ClientOptions) talk {
	r.t.Helper()
	session, err := r.tryTalk(key, query, o)
	check(r.t, err)
	r.t.Cleanup(func() { session.Close() })
	return talk{r.t, session}
}

func (r *rig) tryTalk(key, query string, o *mcp.ClientOptions) (*mcp.ClientSession, error) {
	client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, o)
	return client.Connect(context.Background(), &mcp.StreamableClientTransport{
		Endpoint: r.url + "/mcp" + query, HTTPClient: &http.Client{Transport: withKey{key, r.client.Transport}}, DisableStandaloneSSE: true, MaxRetries: -1,
	}, nil)
}

// said is what a tool has answered.
type said struct {
	tool   string
	failed bool
	text   string
	fields map[string]any
}

func (k talk) try(ctx context.Context, tool string, args any) (said, error) {
	res, err := k.session.CallTool(ctx, &mcp.CallToolParams{Name: tool, Arguments: args})
	if err != nil {
		return said{}, err
	}
	s := said{tool: tool, failed: res.IsError}
	for _, c := range res.Content {
		if text, ok := c.(*mcp.TextContent); ok {
			s.text += text.Text + "\n"
		}
	}
	raw, err := json.Marshal(res.StructuredContent)
	if err == nil {
		err = json.Unmarshal(raw, &s.fields)
	}
	return s, err
}

func (k talk) call(tool string, args any) said {
	k.t.Helper()
	s, err := k.try(context.Background(), tool, args)
	check(k.t, err)
	return s
}

// ok calls a tool that must not fail.
func (k talk) ok(tool string, args any) said {
	k.t.Helper()
	s := k.call(tool, args)
	if s.failed {
		k.t.Fatalf("%s failed: %s", tool, s.text)
	}
	return s
}

// refused calls a tool that must fail with a code, and a text that has the part.
func (k talk) refused(tool string, args any, code, part string) {
	k.t.Helper()
	s := k.call(tool, args)
	problem, _ := s.fields["error"].(map[string]any)
	if !s.failed || problem["code"] != code || !strings.Contains(s.text, part) {
		k.t.Errorf("%s %v: answered %v %s %v, want %s with %q", tool, args, s.failed, s.text, s.fields, code, part)
	}
}

func (s said) str(name string) string {
	text, _ := s.fields[name].(string)
	return text
}

func TestMCPOffersTheCoreSet(t *testing.T) {
	t.Parallel()
	k := newRig(t).talk("")
	if id := k.session.ID(); !strings.HasPrefix(id, "mcps_") {
		t.Errorf("the session is %q", id)
	}
	list := must(k.session.ListTools(t.Context(), nil))(t)
	var names []string
	readOnly := map[string]bool{}
	for _, tool := range list.Tools {
		names = append(names, tool.Name)
		readOnly[tool.Name] = tool.Annotations.ReadOnlyHint
		schema := string(must(json.Marshal(tool.InputSchema))(t))
		if tool.Description == "" || !strings.Contains(schema, `"additionalProperties":false`) {
			t.Errorf("%s: %q, %s", tool.Name, tool.Description, schema)
		}
		if takes := strings.Contains(schema, `"sandbox"`); takes == slices.Contains([]string{"job_wait"}, tool.Name) {
			t.Errorf("%s takes a sandbox: %v", tool.Name, takes)
		}
	}
	want := "file_edit file_list file_read file_search file_write git_clone http_request job_wait pip_install port_url process_list " +
		"python_exec sandbox_get shell_exec shell_wait" // as the library sorts them
	if got := strings.Join(names, " "); got != want {
		t.Errorf("the tools are %s, want %s", got, want)
	}
	for name, want := range map[string]bool{"file_read": true, "file_write": false, "shell_exec": false, "sandbox_get": true} {
		if readOnly[name] != want {
			t.Errorf("%s: readOnlyHint %v", name, readOnly[name])
		}
	}
}

func TestMCPSetsOfTools(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	named := func(query string) (names []string) {
		t.Helper()
		for _, tool := range must(r.talk(query).session.ListTools(t.Context(), nil))(t).Tools {
			names = append(names, tool.Name)
		}
		return names
	}
	all := named("?tools=all")
	known := "file_read file_write file_delete file_list file_search shell_exec shell_interactive git_clone git_commit git_push git_status python_exec " +
		"pip_install http_request env_get env_set process_list file_edit file_find shell_view shell_write shell_wait shell_kill python_execute " +
		"javascript_execute grep glob workspace_info workspace_health sandbox_create sandbox_list sandbox_get sandbox_pause sandbox_resume " +
		"sandbox_delete sandbox_extend exec_start exec_output exec_stdin exec_signal job_get job_wait job_list job_cancel port_url file_upload " +
		"file_download template_list usage_limits process_signal " +
		"browser_open browser_info browser_screenshot browser_action mcp_list_servers mcp_list_tools mcp_execute"
	if want := strings.Fields(known); len(all) != len(want) || slices.ContainsFunc(want, func(name string) bool { return !slices.Contains(all, name) }) {
		t.Errorf("%d tools, want %d: %v", len(all), len(want), all)
	}
	if some := named("?tools=jobs,file_read,core"); len(some) != 18 || !slices.Contains(some, "job_cancel") || slices.Contains(some, "file_delete") {
		t.Errorf("two sets and a tool: %v", some)
	}
	r.talk("?tools=jobs").refused("file_read", object{"file": "x"}, "unknown_tool", "use one of job_cancel, job_get, job_list, job_wait")
	r.refusesTalk(r.key, "?tools=jobs,nonsense", 422)
}

func TestMCPWorksInTheSessionsSandbox(t *testing.T) {
	t.Parallel()
	r := newInsideRig(t)
	k := r.talk("")
	first := k.ok("shell_exec", object{"command": "fake:stdout out; fake:stderr err; fake:stdout more; fake:exit 3"})
	if first.fields["exit_code"] != 3.0 || first.fields["stdout"] != "outerrmore" || first.fields["stderr"] != "" || first.fields["running"] != false ||
		!strings.Contains(first.text, "exit code 3") || !strings.Contains(first.text, "outerrmore") {
		t.Errorf("shell_exec: %s %v", first.text, first.fields)
	}
	box := first.str("sandbox_id")
	k.ok("file_write", object{"file": "dir/a.txt", "content": "one\ntwo\nthree\n"})
	k.ok("file_edit", object{"file": "dir/a.txt", "old_str": "two", "new_str": "zwei"})
	if s := k.ok("file_read", object{"file": "dir/a.txt", "start_line": 1, "end_line": 2}); s.fields["content"] != "zwei\n" || s.fields["lines"] != 3.0 ||
		s.fields["next_line"] != nil || s.str("sandbox_id") != box {
		t.Errorf("file_read: %s %v", s.text, s.fields)
	}
	if s := k.ok("file_list", object{"path": "dir"}); !strings.Contains(s.text, "/dir/a.txt") || s.fields["total"] != 1.0 {
		t.Errorf("file_list: %s %v", s.text, s.fields)
	}
	if s := k.ok("file_search", object{"file": "dir/a.txt", "regex": "^zw"}); !strings.Contains(s.text, "/dir/a.txt:2:zwei") {
		t.Errorf("file_search: %s %v", s.text, s.fields)
	}
	if s := k.ok("sandbox_get", object{}); s.str("id") != box || s.str("key") != "mcp:"+k.session.ID() || s.str("state") != "running" {
		t.Errorf("sandbox_get: %s %v", s.text, s.fields)
	}
	if s := k.ok("sandbox_get", object{"sandbox": r.box}); s.str("id") != r.box {
		t.Errorf("sandbox_get of another: %v", s.fields)
	}
	if other := r.talk("").ok("sandbox_get", object{}); other.str("id") == box {
		t.Error("two conversations share a sandbox without a name")
	}
}

func TestMCPSessionFindsItsSandboxAgain(t *testing.T) {
	t.Parallel()
	r := newInsideRig(t)
	id := r.talk("?session=chat-7&template=node").ok("sandbox_get", object{}).str("id")
	again := r.talk("?session=chat-7")
	if s := again.ok("sandbox_get", object{}); s.str("id") != id || s.str("template") != "node" || s.str("notice") != "" {
		t.Fatalf("the conversation's second client: %v, want %s", s.fields, id)
	}
	if boxes := must(r.store.Sandboxes(t.Context(), "default", models.SandboxFilter{Key: "mcp:chat-7", Limit: 10}))(t); len(boxes) != 1 {
		t.Errorf("%d sandboxes of one key", len(boxes))
	}
	again.ok("shell_exec", object{"command": "fake:exit 0"})
	r.call("DELETE", "/v1/sandboxes/"+id+"?force=true", nil).want(t, 202)
	s := again.ok("shell_exec", object{"command": "fake:stdout new"})
	if s.str("sandbox_id") == id || s.str("stdout") != "new" || !strings.Contains(s.str("notice"), id) || !strings.Contains(s.text, "This is a new one") {
		t.Errorf("after its end: %s %v", s.text, s.fields)
	}
	if s := again.ok("shell_exec", object{"command": "fake:stdout new"}); s.str("notice") != "" {
		t.Errorf("said again: %v", s.fields)
	}
	r.refusesTalk(r.key, "?session=a%20b", 422)
}

// refusesTalk checks with which status a conversation is refused.
func (r *rig) refusesTalk(key, query string, status int) {
	r.t.Helper()
	r.call("POST", "/mcp"+query, `{"jsonrpc":"2.0","id":1,"method":"ping"}`, "Authorization", "Bearer "+key,
		"Accept", "application/json, text/event-stream").want(r.t, status)
}

// post sends one message of a session as it is.
func (r *rig) post(session, body string) answer {
	r.t.Helper()
	return r.call("POST", "/mcp", body, "Mcp-Session-Id", session, "Accept", "application/json, text/event-stream")
}

func TestMCPCallSentAgainStartsNothing(t *testing.T) {
	t.Parallel()
	r := newInsideRig(t)
	run := func(id int, command string) string {
		t.Helper()
		a := r.post("mcps_mine", fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"shell_exec","arguments":{"command":%q}}}`, id, command))
		a.want(t, 200)
		var m struct {
			Result struct {
				Fields struct{ ExecID, Stdout string } `json:"structuredContent"`
			}
		}
		for line := range strings.Lines(a.raw) {
			if data, ok := strings.CutPrefix(line, "data: "); ok {
				_ = json.Unmarshal([]byte(strings.ReplaceAll(data, "exec_id", "ExecID")), &m)
			}
		}
		if m.Result.Fields.Stdout != "x" {
			t.Fatalf("answered %s", a.raw)
		}
		return m.Result.Fields.ExecID
	}
	var both sync.WaitGroup // two that make the sandbox at once
	ids := make([]string, 2)
	for i := range ids {
		both.Go(func() { ids[i] = run(7, "fake:stdout x") })
	}
	both.Wait()
	if third := run(7, "fake:stdout x"); ids[0] != ids[1] || third != ids[0] {
		t.Errorf("one call three times ran as %v and %s", ids, third)
	}
	if other := run(8, "fake:stdout x"); other == ids[0] {
		t.Error("another call was taken for the same")
	}
	if reused := run(7, "fake:stdout x; fake:stdout"); reused == ids[0] {
		t.Error("another content was taken for the same")
	}
	if rows := r.rows(); rows != "2 sandboxes, 5 jobs" {
		t.Errorf("written down: %s", rows)
	}
}

func TestMCPRefusesBadInput(t *testing.T) {
	t.Parallel()
	r := newInsideRig(t)
	k := r.talk("")
	k.refused("file_frobnicate", object{}, "unknown_tool", "use one of file_read")
	k.refused("file_read", object{"file": "a", "path": "b"}, "invalid_request", "path is not an argument of file_read, which takes file")
	k.refused("file_read", object{}, "invalid_request", "file is missing")
	k.refused("file_read", object{"file": 7}, "invalid_request", "file must be a string, not a JSON number")
	k.refused("file_read", object{"file": "../../etc/passwd"}, "invalid_path", "")
	k.refused("file_read", object{"file": "not-there"}, "file_not_found", "")
	k.refused("shell_wait", object{"exec_id": "job_" + strings.Repeat("0", 26)}, "exec_not_found", "use the exec_id of an earlier answer")
	k.refused("shell_wait", object{"exec_id": "x", "cursor": "9"}, "invalid_request", "cursor")
	k.refused("job_wait", object{"job_id": "nothing"}, "job_not_found", "")
	k.refused("shell_exec", object{"command": "fake:exit 0", "sandbox": "sb" + strings.Repeat("0", 26)}, "not_found", "there is no such sandbox")
	k.refused("shell_exec", object{"command": "fake:exit 0", "timeout": -1}, "invalid_request", "timeout")
	k.refused("git_clone", object{"url": "--upload-pack=x"}, "invalid_request", "must be an http:// or https:// URL")
	k.refused("pip_install", object{"packages": "--index-url=http://x y"}, "invalid_request", "not the option")
	k.refused("port_url", object{"port": 80}, "invalid_request", "this server has no edge")
	if s := k.ok("shell_exec", object{"command": "fake:stdout still here"}); s.str("stdout") != "still here" {
		t.Errorf("afterwards: %s", s.text)
	}
	for body, code := range map[string]string{
		"": "invalid_json", "[]": "invalid_request", `{"jsonrpc":`: "invalid_json", "{\"jsonrpc\":\"\xff\"}": "invalid_utf8",
		`[{"jsonrpc":"2.0","id":1,"method":"ping"}]`: "invalid_request", `{"id":` + strings.Repeat("[", 100) + strings.Repeat("]", 100) + "}": "invalid_request",
	} {
		if a := r.post("mcps_x", body); a.get("code") != code {
			t.Errorf("%q: answered %d %s, want %s", body, a.status, a.raw, code)
		}
	}
	for _, params := range []string{
		`null`, `[]`, `{}`, `{"name":null}`, `{"name":"file_read"}`, `{"name":"file_read","arguments":null}`, `{"name":"file_read","arguments":[1]}`,
		`{"name":7}`, `{"name":"file_read","arguments":{"file":"a"},"_meta":7}`, `{"name":"file_read","_meta":{"progressToken":{}}}`,
	} {
		for i, method := range []string{"tools/call", "resources/read", "initialize", "tools/list", "completion/complete", "nothing"} {
			a := r.post("mcps_x", fmt.Sprintf(`{"jsonrpc":"2.0","id":"%d%s","method":%q,"params":%s}`, i, strings.ReplaceAll(params, `"`, "'"), method, params))
			if a.status >= 500 {
				t.Errorf("%s %s: answered %d %s", method, params, a.status, a.raw)
			}
		}
	}
	if log := r.log.String(); strings.Contains(log, "panic") || strings.Contains(log, "server session") {
		t.Error("the library wrote to the log, or something panicked")
	}
	r.call("GET", "/mcp", nil).problem(t, 405, "method_not_allowed")
	r.call("DELETE", "/mcp", nil).want(t, 204)
}

// everyTool names the tools that take a sandbox, each with arguments that are valid.
func (k talk) everyTool() map[string]object {
	k.t.Helper()
	values := object{"url": "http://example.com", "port": 80, "packages": "six", "content_base64": "eA==", "seconds": 60, "pid": 77, "name": "N", "command": "true"}
	all := map[string]object{}
	for _, tool := range must(k.session.ListTools(context.Background(), nil))(k.t).Tools {
		schema := tool.InputSchema.(map[string]any)
		properties, _ := schema["properties"].(map[string]any)
		args := object{}
		required, _ := schema["required"].([]any)
		for name := range properties {
			if value, known := values[name]; known {
				args[name] = value
			} else if slices.Contains(required, any(name)) {
				args[name] = "x"
			}
		}
		if properties["sandbox"] != nil && !slices.Contains(required, any("exec_id")) {
			all[tool.Name] = args
		}
	}
	return all
}

func TestMCPKeepsTenantsApart(t *testing.T) {
	t.Parallel()
	r := newInsideRig(t)
	key := must(r.store.CreateTenant(t.Context(), "other", nil))(t)
	mine, theirs := r.talk("?session=same"), r.talkAs(key, "?session=same", nil)
	exec := mine.ok("shell_exec", object{"command": "fake:stdout secret"})
	if s := theirs.ok("sandbox_get", object{}); s.str("id") == exec.str("sandbox_id") {
		t.Fatal("two tenants share the sandbox of a name")
	}
	all := r.talkAs(key, "?tools=all", nil).everyTool()
	if len(all) < 40 {
		t.Errorf("%d tools take a sandbox", len(all))
	}
	every := r.talkAs(key, "?session=same&tools=all", nil)
	for tool, args := range all {
		args["sandbox"] = exec.str("sandbox_id")
		every.refused(tool, args, "not_found", "there is no such sandbox")
	}
	for tool, more := range map[string]object{
		"exec_output": nil, "shell_view": nil, "shell_kill": nil, "exec_stdin": {"data": "x"}, "exec_signal": {"signal": "SIGTERM"}, "shell_write": {"input": "x"},
	} {
		args := object{"exec_id": exec.str("exec_id")}
		maps.Copy(args, more)
		every.refused(tool, args, "exec_not_found", exec.str("exec_id"))
	}
	for _, tool := range []string{"job_get", "job_wait", "job_cancel"} {
		every.refused(tool, object{"job_id": exec.str("exec_id")}, "job_not_found", exec.str("exec_id"))
	}
	for _, uri := range []string{"sandyard://sandboxes/" + exec.str("sandbox_id") + "/files/etc/passwd", "sandyard://jobs/" + exec.str("exec_id") + "/output"} {
		if res, err := every.session.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: uri}); err == nil || !strings.Contains(err.Error(), "not_found") {
			t.Errorf("%s: %v, %v", uri, res, err)
		}
	}
	for _, bad := range []string{"", "sy_" + strings.Repeat("0", 40)} {
		if _, err := r.tryTalk(bad, "", nil); err == nil {
			t.Errorf("the key %q began a conversation", bad)
		}
	}
	keys := must(r.store.Keys(t.Context(), "other", 1))(t)
	check(t, r.store.RevokeKey(t.Context(), "other", keys[0].ID))
	testenv.Eventually(t, "a revoked key ends an open session", func() bool {
		_, err := theirs.try(t.Context(), "sandbox_get", object{})
		return err != nil && strings.Contains(err.Error(), "Unauthorized")
	})
	mine.ok("sandbox_get", object{})
}

func TestMCPBoundsRequests(t *testing.T) {
	t.Parallel()
	r := newInsideRig(t, func(c *web.Config) { c.MaxBody, c.TenantStreams = 64<<10, 2 })
	large := `{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":"` + strings.Repeat("x", 80<<10) + `"}}`
	testenv.Eventually(t, "a body over the limit is refused", func() bool { return r.post("mcps_x", large).get("code") == "body_too_large" })
	var open sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	for n := range 2 {
		open.Go(func() { r.sleep(ctx, fmt.Sprint("mcps_", n)) })
		testenv.Eventually(t, "the command runs", func() bool { return r.counted("exec", models.Running) == n+1 })
	}
	if a := r.post("mcps_y", `{"jsonrpc":"2.0","id":1,"method":"ping"}`); a.status != 429 || a.get("limit") != "tenant_streams" {
		t.Errorf("one request more than the tenant may have: %d %s", a.status, a.raw)
	}
	cancel()
	open.Wait()
	testenv.Eventually(t, "the commands are killed", func() bool { return r.counted("exec", models.Running) == 0 })
}

// sleep calls a tool that takes an hour, again while the tenant may open no more streams: one that was answered a moment ago may
// still count.
func (r *rig) sleep(ctx context.Context, session string) {
	const body = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"shell_exec","arguments":{"command":"fake:sleep 1h"}}}`
	for ctx.Err() == nil {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.url+"/mcp", strings.NewReader(body))
		if err != nil {
			r.t.Error(err)
			return
		}
		for name, value := range map[string]string{
			"Authorization": "Bearer " + r.key, "Mcp-Session-Id": session, "Accept": "application/json, text/event-stream", "Content-Type": "application/json",
		} {
			req.Header.Set(name, value)
		}
		res, err := r.client.Do(req)
		if err != nil {
			return // the call was given up
		}
		_, _ = io.Copy(io.Discard, res.Body)
		res.Body.Close()
		if res.StatusCode != http.StatusTooManyRequests {
			return
		}
	}
}

// counted is how many jobs there are of a kind in a state.
func (r *rig) counted(kind string, state models.JobState) int {
	r.t.Helper()
	return len(must(r.store.Jobs(context.Background(), "default", models.JobFilter{Kind: kind, State: state, Limit: 100}))(r.t))
}

// TestMCPActsForItsCaller: what tools submit is in the audit log under who asked, and within that user's limits. Looks are not.
func TestMCPActsForItsCaller(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.work()
	user := r.addUser(t, "ada", models.RoleMember)
	r.call("PATCH", "/v1/users/"+user.ID, map[string]any{"max_sandboxes": 1}).want(t, 200)
	login := r.login(t, "ada", "TestPass123!").want(t, 200)
	k := r.talkAs(login.text("access_token"), "?tools=all", nil)
	must(k.session.ListTools(t.Context(), nil))(t)
	k.ok("file_write", map[string]any{"file": "a", "content": "x"})
	k.refused("sandbox_create", map[string]any{}, "limit_reached", "user_max_sandboxes")
	k.ok("job_list", map[string]any{})
	job := r.call("POST", "/v1/sandboxes", map[string]any{}).want(t, 202).text("job.id")
	if s := k.call("job_cancel", map[string]any{"job_id": job}); s.text == "" {
		t.Error("a cancel says nothing")
	}
	var seen []string
	testenv.Eventually(t, "the entries", func() bool {
		seen = nil
		for _, e := range r.entries("actor=" + user.ID + "&action=" + "POST%20/mcp") {
			seen = append(seen, told(e))
		}
		return len(seen) == 3 && !strings.Contains(strings.Join(seen, ""), "unknown")
	})
	for i, want := range []string{job + " done", " done 202", " done 202"} { // the cancel, the file, the sandbox
		if !strings.Contains(seen[i], want) {
			t.Errorf("entry %d is %q of %q, want %q", i, seen[i], seen, want)
		}
	}
}
