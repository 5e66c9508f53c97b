package web_test

import (
	"encoding/base64"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"

	"sandyard/auth"
	"sandyard/dev/abbench"
	"sandyard/models"
)

// BenchmarkCalls compares a command through each contract that knows no jobs, and through a tool of an agent, with the /v1 call that waits for it. The
// provider takes no time, so nothing hides what a contract adds.
func BenchmarkCalls(b *testing.B) {
	r := newRig(b)
	r.work()
	box := r.sandbox(map[string]any{})
	r.call("POST", "/v1/sandboxes/"+box+"/exec?wait=60s", map[string]any{"command": "fake:stdout x"}).want(b, 200)
	check(b, second(r.store.CreateUser(b.Context(), "default", "bench", must(auth.HashPassword("TestPass123!"))(b), models.RoleMember)))
	token := r.call("POST", agentLogin+"?username=bench&password=TestPass123%21", nil).want(b, 200).text("access_token")
	client := &fasthttp.Client{}
	defer client.CloseIdleConnections()
	var calls atomic.Int64
	command := func(path, auth, body string) abbench.Way {
		return abbench.Timed(func() error {
			req, res := fasthttp.AcquireRequest(), fasthttp.AcquireResponse()
			defer fasthttp.ReleaseRequest(req)
			defer fasthttp.ReleaseResponse(res)
			req.SetRequestURI(r.url + path)
			req.Header.SetMethod(fiber.MethodPost)
			req.Header.SetContentType(fiber.MIMEApplicationJSON)
			req.Header.Set(fiber.HeaderAuthorization, auth)
			req.Header.Set(fiber.HeaderAccept, "application/json, text/event-stream")
			req.Header.Set("Mcp-Session-Id", "mcps_bench")
			req.SetBodyString(strings.Replace(body, "CALL", fmt.Sprint(calls.Add(1)), 1))
			if err := client.Do(req, res); err != nil {
				return err
			}
			if res.StatusCode() != fiber.StatusOK || !strings.Contains(string(res.Body()), `"x"`) {
				return fmt.Errorf("status %d: %s", res.StatusCode(), res.Body())
			}
			return nil
		})
	}
	body := fmt.Sprintf(`{"sandbox_id":%q,"command":"fake:stdout x"}`, box)
	own := command("/v1/sandboxes/"+box+"/exec?wait=60s", "Bearer "+r.key, `{"command":"fake:stdout x","parallel":true}`)
	for name, way := range map[string]abbench.Way{
		"sandbox server": command("/sandboxes/run-command", "Basic "+base64.StdEncoding.EncodeToString([]byte("any:"+r.key)), body),
		"agents' tools": command("/mcp", "Bearer "+r.key, `{"jsonrpc":"2.0","id":CALL,"method":"tools/call","params":{"name":"shell_exec","arguments":`+
			`{"command":"fake:stdout x"}}}`),
		"agent API": command(agentBase+"/run-cmd", "Bearer "+token, body),
	} {
		b.Run(name+", run a command", func(b *testing.B) {
			b.Run("vs /v1 exec", func(b *testing.B) {
				abbench.Latency(b, abbench.Turns{Rounds: 40, Ours: 10, Base: 10}, way, own)
			})
		})
	}
}

func second[T any](_ T, err error) error { return err }
