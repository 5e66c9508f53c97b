package web_test

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/google/uuid"

	"sandyard/auth"
	"sandyard/models"
	"sandyard/tokens"
	"sandyard/web"
)

// agent is a rig with a worker and a user who has logged in.
type agent struct {
	*rig
	token string
}

const (
	agentBase  = "/agent/sandboxes/sandboxes"
	agentLogin = "/api/v1/auth/login/swagger"
)

func newAgent(t *testing.T, change ...func(*web.Config)) *agent {
	t.Helper()
	r := &agent{rig: newRig(t, change...)}
	r.work()
	r.user("default", "sandbox_test", "TestPass123!")
	r.token = r.call("POST", agentLogin+"?username=sandbox_test&password=TestPass123%21", nil, "Authorization", "").want(t, 200).text("access_token")
	return r
}

func (r *agent) user(tenant, name, password string) {
	r.t.Helper()
	hash := must(auth.HashPassword(password))(r.t)
	must(r.store.CreateUser(r.t.Context(), tenant, name, hash, models.RoleMember))(r.t)
}

func (r *agent) ask(method, path string, body any) answer {
	r.t.Helper()
	return r.call(method, agentBase+path, body, "Authorization", "bearer "+r.token)
}

func (r *agent) create() string {
	r.t.Helper()
	return r.ask("POST", "/create", map[string]any{"user_id": "demo"}).want(r.t, 200).text("data.sandbox_id")
}

// data checks the whole of what the envelope holds.
func (a answer) data(t *testing.T, want string) {
	t.Helper()
	if a.want(t, 200); a.raw != `{"code":200,"msg":"success","data":`+want+`}` {
		t.Errorf("answered %s, want the data %s", a.raw, want)
	}
}

// refusal checks an error in this contract's form.
func (a answer) refusal(t *testing.T, status int, name, part string) {
	t.Helper()
	data, has := a.body["data"]
	if a.status != status || a.get("code") != float64(status) || a.text("error") != name || !strings.Contains(a.text("msg"), part) ||
		data != nil || !has || a.text("request_id") == "" || len(a.body) != 5 {
		t.Errorf("answered %d %s, want %d %s with %q", a.status, a.raw, status, name, part)
	}
}

func TestAgentLogin(t *testing.T) {
	t.Parallel()
	r := newAgent(t)
	login := func(query, kind, body string) answer {
		return r.call("POST", agentLogin+query, body, "Authorization", "", "Content-Type", kind)
	}
	const form = "application/x-www-form-urlencoded"
	right := url.Values{"username": {"sandbox_test"}, "password": {"TestPass123!"}}.Encode()
	for _, a := range []answer{login("", form, right), login("", "application/json", `{"username": "sandbox_test", "password": "TestPass123!"}`)} {
		if a.want(t, 200); a.text("token_type") != "bearer" || a.text("access_token") == "" || len(a.body) != 2 || a.header.Get("Cache-Control") != "no-store" {
			t.Errorf("a login: %s %v", a.raw, a.header)
		}
	}
	login("", form, "username=sandbox_test&password=wrong").refusal(t, 401, "login_failed", "the user name or the password is wrong")
	login("", form, "username=nobody&password=TestPass123!").refusal(t, 401, "login_failed", "the user name or the password is wrong")
	login("", form, "username=sandbox_test").refusal(t, 422, "invalid_request", "are missing")
	login("", form, "username=%zz").refusal(t, 422, "invalid_request", "not a well-formed form")
	login("", "application/json", "{").refusal(t, 422, "invalid_json", "")
	login("", form, "username=sandbox_test&password="+strings.Repeat("x", 5000)).refusal(t, 413, "login_too_large", "4096 bytes")
	for range 10 {
		login("", form, "username=sandbox_test&password=wrong")
	}
	a := login("", form, right)
	if a.refusal(t, 429, "too_many_logins", "try again in"); a.header.Get("Retry-After") == "" {
		t.Errorf("no Retry-After: %v", a.header)
	}
	if strings.Contains(r.log.String(), "TestPass") {
		t.Error("a password is in the log")
	}
}

func TestAgentTokens(t *testing.T) {
	t.Parallel()
	r := newAgent(t)
	id := r.create()
	status := func(token string) answer {
		return r.call("GET", agentBase+"/"+id+"/status", nil, "Authorization", token)
	}
	status("Bearer "+r.token).want(t, 200)
	keys := must(r.store.SigningKeys(t.Context(), nil, auth.TokenLife))(t)
	user := must(r.store.UserNamed(t.Context(), "sandbox_test"))(t)
	sign := func(key string, secret []byte, h auth.Holder, at time.Time) string {
		return "Bearer " + must(auth.Sign(key, secret, h, at, auth.TokenLife))(t)
	}
	login, _, err := r.store.LogIn(t.Context(), user.ID, user.PasswordHash)
	check(t, err)
	now, holder := r.store.Now(t.Context()), auth.Holder{User: user.ID, Login: login.ID}
	status(sign(keys[0].ID, keys[0].Secret, holder, now)).want(t, 200)
	unsigned := must(jwt.NewWithClaims(jwt.SigningMethodNone, jwt.MapClaims{"iss": "sandyard", "sub": user.ID, "exp": now.Add(time.Hour).Unix()}).
		SignedString(jwt.UnsafeAllowNoneSignatureType))(t)
	for name, token := range map[string]string{
		"none": "", "no token": "Bearer x", "an API key": "Bearer " + r.key, "another scheme": "Basic eDp4", "unsigned": "Bearer " + unsigned,
		"another secret":         sign(keys[0].ID, auth.NewSecret(), holder, now),
		"an unknown signing key": sign("sig_other", keys[0].Secret, holder, now),
		"expired":                sign(keys[0].ID, keys[0].Secret, holder, now.Add(-auth.TokenLife-time.Minute)),
		"a clock far ahead":      sign(keys[0].ID, keys[0].Secret, holder, now.Add(time.Hour)),
		"an unknown user":        sign(keys[0].ID, keys[0].Secret, auth.Holder{User: "usr_nobody", Login: login.ID}, now),
		"an unknown login":       sign(keys[0].ID, keys[0].Secret, auth.Holder{User: user.ID, Login: "lgn_none"}, now),
		"changed":                "Bearer " + r.token[:len(r.token)-3] + "AAA",
	} {
		a := status(token)
		if a.refusal(t, 401, "token_invalid", "Token 无效"); !strings.Contains(a.text("msg"), "log in") || a.header.Get("WWW-Authenticate") == "" {
			t.Errorf("%s: %s %v", name, a.raw, a.header)
		}
	}
	r.call("GET", "/v1/sandboxes", nil, "Authorization", "Bearer "+r.token).want(t, 200)
	hash := must(auth.HashPassword("another one"))(t)
	must(r.store.ChangeUser(t.Context(), "default", user.ID, models.UserChange{PasswordHash: hash}))(t)
	fresh := newRigOn(t, r.dsn) // another process, which has not seen the user yet
	fresh.call("GET", agentBase+"/"+id+"/status", nil, "Authorization", "Bearer "+r.token).refusal(t, 401, "token_invalid", "")
	must(r.store.RemoveUser(t.Context(), "default", user.ID))(t)
	r.call("POST", agentLogin+"?username=sandbox_test&password=another+one", nil).refusal(t, 401, "login_failed", "")
}

func TestAgentLife(t *testing.T) {
	t.Parallel()
	r := newAgent(t, func(c *web.Config) { c.Address = tokens.Address{Scheme: "http", Domain: "sandboxes.example"} })
	made := r.ask("POST", "/create", map[string]any{"user_id": "demo", "sandbox_template_id": "python"})
	id := made.want(t, 200).text("data.sandbox_id")
	native := models.IDOf("sb", id)
	if _, err := uuid.Parse(id); err != nil || models.UUIDOf("sb", native) != id {
		t.Errorf("the id %q is no UUID", id)
	}
	made.data(t, fmt.Sprintf(`{"success":true,"sandbox_id":%q,"provider_sandbox_id":%q,"status":"running","mcp_url":null,"vscode_url":null}`, id, native))
	on := func(fields ...any) map[string]any {
		body := map[string]any{"sandbox_id": id}
		for i := 0; i < len(fields); i += 2 {
			body[fields[i].(string)] = fields[i+1]
		}
		return body
	}
	for _, path := range []string{"/run-cmd", "/run-command"} {
		r.ask("POST", path, on("command", "fake:pwd", "background", false)).data(t, `{"success":true,"output":"/home/user","message":"Command executed successfully"}`)
	}
	r.ask("POST", "/run-cmd", on("command", "fake:stderr no; fake:exit 2")).data(t, `{"success":false,"output":"no","message":"Command exited with code 2"}`)
	r.ask("POST", "/run-cmd", on("command", "fake:sleep 1h", "background", true)).data(t, `{"success":true,"output":"","message":"Command started in the background"}`)
	for i, field := range []string{"file_path", "path"} {
		content := strings.Repeat("x", i) // the first one is empty
		r.ask("POST", "/write-file", on(field, "/home/user/test.py", "content", content)).data(t, `{"success":true,"message":"File written to /home/user/test.py"}`)
		r.ask("POST", "/read-file", on(field, "/home/user/test.py")).data(t, fmt.Sprintf(`{"success":true,"content":%q}`, content))
	}
	r.ask("POST", "/schedule-timeout", on("timeout_seconds", 7200)).data(t, `{"success":true,"message":"The sandbox ends in 7200 seconds"}`)
	r.ask("POST", "/timeout", on("timeout", 600)).data(t, `{"success":true,"message":"The sandbox ends in 600 seconds"}`)
	box := r.call("GET", "/v1/sandboxes/"+native, nil).want(t, 200)
	if box.get("timeout_seconds") != 600.0 {
		t.Errorf("as an ordinary sandbox: %s", box.raw)
	}
	r.ask("POST", "/"+id+"/pause?reason=idle", nil).data(t, `{"success":true,"message":"Sandbox paused successfully (reason: idle)"}`)
	r.ask("POST", "/"+id+"/pause", nil).data(t, `{"success":true,"message":"Sandbox paused successfully (reason: manual)"}`)
	r.ask("GET", "/"+id+"/status", nil).data(t, fmt.Sprintf(
		`{"success":true,"sandbox_id":%q,"status":"paused","provider_sandbox_id":%q,"message":"Status retrieved successfully"}`, id, native))
	info := r.ask("GET", "/"+id+"/info", nil).want(t, 200)
	if info.text("data.user_id") != "demo" || info.text("data.template_id") != "python" || info.text("data.created_at") == "" || len(info.get("data").(map[string]any)) != 6 {
		t.Errorf("info: %s", info.raw)
	}
	r.ask("GET", "/"+id+"/urls", nil).data(t, fmt.Sprintf(`{"success":true,"sandbox_id":%q,"mcp_url":null,"vscode_url":null}`, id))
	r.ask("DELETE", "/"+id, nil).data(t, `{"success":true,"message":"Sandbox deleted successfully"}`)
	for _, a := range []answer{
		r.ask("DELETE", "/"+id, nil), r.ask("GET", "/"+id+"/info", nil), r.ask("GET", "/"+id+"/urls", nil), r.ask("POST", "/"+id+"/pause", nil),
		r.ask("POST", "/run-cmd", on("command", "fake:pwd")), r.ask("POST", "/read-file", on("path", "x")), r.ask("POST", "/timeout", on("timeout", 5)),
		r.ask("GET", "/"+uuid.NewString()+"/status", nil), r.ask("GET", "/nothing/status", nil),
	} {
		a.refusal(t, 404, "not_found", "create another one")
	}
}

// TestAgentTools: a template that lists the tools' ports has URLs for them.
func TestAgentTools(t *testing.T) {
	t.Parallel()
	r := newAgent(t, func(c *web.Config) {
		c.Address = tokens.Address{Scheme: "http", Domain: "sandboxes.example"}
		c.Calls.MCPPort, c.Calls.VSCodePort = 6060, 9000
	})
	r.call("POST", "/v1/templates", map[string]any{"name": "vg6mdf4wgu5qoijamwb5", "image": "fake-python", "ports": []int{9000, 6060}}).want(t, 201)
	made := r.ask("POST", "/create", map[string]any{"user_id": "demo", "sandbox_template_id": "vg6mdf4wgu5qoijamwb5"}).want(t, 200)
	native := made.text("data.provider_sandbox_id")
	for field, port := range map[string]string{"mcp_url": "6060", "vscode_url": "9000"} {
		if u := made.text("data." + field); !strings.HasPrefix(u, "http://"+port+"-"+native+".sandboxes.example/") {
			t.Errorf("%s is %q", field, u)
		}
	}
	urls := r.ask("GET", "/"+made.text("data.sandbox_id")+"/urls", nil).want(t, 200)
	if urls.text("data.mcp_url") != made.text("data.mcp_url") || urls.text("data.vscode_url") != made.text("data.vscode_url") {
		t.Errorf("urls: %s", urls.raw)
	}
}

func TestAgentRefusals(t *testing.T) {
	t.Parallel()
	r := newAgent(t)
	create := func(body any) answer { return r.ask("POST", "/create", body) }
	create(map[string]any{}).refusal(t, 422, "invalid_request", "body.user_id")
	create(map[string]any{"user_id": "a", "sandbox_template_id": "nothing"}).refusal(t, 422, "invalid_request", "sandbox_template_id")
	create(`{"user_id": 1}`).refusal(t, 422, "invalid_request", "must be a string")
	create("{").refusal(t, 422, "invalid_json", "")
	if rows := r.rows(); rows != "0 sandboxes, 0 jobs" {
		t.Errorf("refused requests left %s", rows)
	}
	id := r.create()
	ask := func(path string, fields map[string]any) answer {
		fields["sandbox_id"] = id
		return r.ask("POST", path, fields)
	}
	ask("/read-file", map[string]any{}).refusal(t, 422, "invalid_request", "file_path")
	ask("/read-file", map[string]any{"path": "nothing"}).refusal(t, 404, "file_not_found", "")
	ask("/write-file", map[string]any{"file_path": "/etc/passwd", "content": "x"}).refusal(t, 422, "invalid_path", "")
	ask("/timeout", map[string]any{}).refusal(t, 422, "invalid_request", "timeout_seconds")
	ask("/timeout", map[string]any{"timeout_seconds": 90000}).refusal(t, 422, "invalid_request", "86400")
	ask("/expose-port", map[string]any{"port": "80"}).refusal(t, 422, "invalid_request", "a whole number")
	// One id for many calls is no idempotency key, and one that is missing is made.
	given := uuid.NewString()
	seen := map[string]bool{}
	for range 2 {
		a := r.call("POST", agentBase+"/create", map[string]any{"user_id": "a"}, "Authorization", "Bearer "+r.token, "X-Request-ID", given).want(t, 200)
		if a.header.Get("X-Request-Id") != given {
			t.Errorf("the request's id became %q", a.header.Get("X-Request-Id"))
		}
		seen[a.text("data.sandbox_id")] = true
	}
	if len(seen) != 2 || create(map[string]any{"user_id": "a"}).header.Get("X-Request-Id") == "" {
		t.Errorf("two creates with one X-Request-ID made %d sandboxes", len(seen))
	}
	// Another tenant's user finds nothing of it; a user who names another one as user_id only labels a sandbox.
	r.sql("INSERT INTO tenants (id, name, webhook_secret) VALUES ('other', 'other', 'whsec_AAAA')")
	r.user("other", "stranger", "TestPass123!")
	token := r.call("POST", agentLogin+"?username=stranger&password=TestPass123%21", nil).want(t, 200).text("access_token")
	foreign := &agent{r.rig, token}
	for _, a := range []answer{
		foreign.ask("GET", "/"+id+"/status", nil), foreign.ask("DELETE", "/"+id, nil),
		foreign.ask("POST", "/run-cmd", map[string]any{"sandbox_id": id, "command": "fake:pwd"}),
	} {
		a.refusal(t, 404, "not_found", "")
	}
	theirs := foreign.ask("POST", "/create", map[string]any{"user_id": "sandbox_test"}).want(t, 200).text("data.sandbox_id")
	r.ask("GET", "/"+theirs+"/info", nil).refusal(t, 404, "not_found", "")
	r.ask("GET", "/"+id+"/status", nil).want(t, 200)
}

// TestAgentDocument: the published document has every route of the contract.
func TestAgentDocument(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	raw := r.call("GET", "/openapi/agent-api.json", nil, "Authorization", "").want(t, 200).raw
	var document struct {
		Paths map[string]map[string]json.RawMessage
	}
	check(t, json.Unmarshal([]byte(raw), &document))
	n := 0
	for path, item := range document.Paths {
		for method := range item {
			if n++; path == agentLogin {
				continue
			}
			r.call(strings.ToUpper(method), strings.ReplaceAll(path, "{id}", uuid.NewString()), nil, "Authorization", "").refusal(t, 401, "token_invalid", "Token 无效")
		}
	}
	if n != 14 {
		t.Errorf("the document has %d operations, want 14", n)
	}
}
