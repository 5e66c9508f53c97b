package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"sandyard/web/middleware"
	"sandyard/web/problem"
)

// tool is one tool, ready for the library.
type tool struct {
	about  *mcp.Tool
	handle mcp.ToolHandler
}

// answer is what a tool returns: text for the model, the same as fields, and pictures.
type answer struct {
	text   string
	fields any // a struct or a map
	images []*mcp.ImageContent

	imageBytes int // of all pictures that were to be shown, as base64
}

// hint is what clients are told of a tool's effects.
type hint int

const (
	reads   hint = iota // it changes nothing
	adds                // it changes something and destroys nothing
	changes             // it may destroy something
)

// in is embedded by the arguments of tools that work in a sandbox.
type in struct {
	Sandbox string `json:"sandbox,omitempty" jsonschema:"The id of another sandbox; default: the session's sandbox"`
}

// define makes a tool whose arguments are a T. Fields without omitempty are required.
func define[T any](s *Server, name, about string, h hint, do func(context.Context, *call, *T) (*answer, error)) tool {
	schema, err := jsonschema.For[T](nil)
	if err != nil {
		panic(fmt.Sprintf("tool %s: %v", name, err)) // of the type, whatever the input
	}
	no, open := false, h != reads
	t := &mcp.Tool{Name: name, Description: about, InputSchema: schema, Annotations: &mcp.ToolAnnotations{
		ReadOnlyHint: h == reads, DestructiveHint: &no, OpenWorldHint: &open,
	}}
	if h == changes {
		yes := true
		t.Annotations.DestructiveHint = &yes
	}
	return tool{t, func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		ctx, c, done := callOf(ctx)
		defer done()
		c.tells(req)
		args := new(T)
		err := readArguments(name, schema, req.Params.Arguments, args)
		var out *answer
		if err == nil {
			out, err = do(ctx, c, args)
		}
		return s.result(ctx, c, out, err), nil
	}}
}

// readArguments decodes the arguments of a tool. The error says what the tool takes.
func readArguments(name string, schema *jsonschema.Schema, given json.RawMessage, into any) error {
	var fields map[string]json.RawMessage
	if string(given) == "null" { // how some clients write that there are none
		given = nil
	}
	if len(given) > 0 && json.Unmarshal(given, &fields) != nil {
		return problem.Invalid("arguments", "must be a JSON object")
	}
	for field := range fields {
		if schema.Properties[field] == nil {
			return problem.Invalid(field, fmt.Sprintf("is not an argument of %s, which takes %s", name, strings.Join(schema.PropertyOrder, ", ")))
		}
	}
	for _, field := range schema.Required {
		if value := string(fields[field]); value == "" || value == "null" {
			return problem.Invalid(field, fmt.Sprintf("is missing; %s requires %s", name, strings.Join(schema.Required, ", ")))
		}
	}
	return middleware.Decode(given, into)
}

// result is what the client gets: errors too are results, for those the model sees.
func (s *Server) result(ctx context.Context, c *call, out *answer, err error) *mcp.CallToolResult {
	res := &mcp.CallToolResult{}
	if c.notice != "" {
		res.Content = append(res.Content, &mcp.TextContent{Text: c.notice})
	}
	var goes *running
	switch {
	case errors.As(err, &goes):
		out = &answer{
			text:   fmt.Sprintf("This takes longer than a call may. Job %s goes on; call job_wait with job_id %s.", goes.job.ID, goes.job.ID),
			fields: map[string]any{"job_id": goes.job.ID, "running": true, "sandbox_id": goes.job.SandboxID},
		}
	case err != nil:
		p := s.mw.Report(ctx, middleware.RequestOf(ctx), err)
		p.Detail = strings.ReplaceAll(p.Detail, "body.", "")
		out = &answer{text: p.Code + ": " + p.Detail, fields: map[string]any{"error": errorOf(p)}}
		res.IsError = true
	}
	res.Content = append(res.Content, &mcp.TextContent{Text: out.text})
	for _, image := range out.images {
		res.Content = append(res.Content, image)
	}
	res.StructuredContent = withNotice(out.fields, c.notice)
	return res
}

// failed is an error as fields.
type failed struct {
	Code       string `json:"code"`
	Message    string `json:"message"`
	RetryAfter int    `json:"retry_after,omitempty"`
	RequestID  string `json:"request_id"`
}

func errorOf(p *problem.Problem) failed { return failed{p.Code, p.Detail, p.RetryAfter, p.RequestID} }

// withNotice adds the notice to fields.
func withNotice(fields any, notice string) any {
	if notice == "" {
		return fields
	}
	all := map[string]any{}
	if raw, err := json.Marshal(fields); err == nil && json.Unmarshal(raw, &all) == nil && all != nil {
		all["notice"] = notice
		return all
	}
	return fields
}

// guard keeps a panic of a handler from ending the process: the library calls handlers outside of net/http's care.
func (s *Server) guard(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (res mcp.Result, err error) {
		defer func() {
			if p := recover(); p != nil {
				found := s.mw.Report(ctx, middleware.RequestOf(ctx), middleware.Panicked(p))
				res, err = nil, &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: found.Code + ": " + found.Detail + ": " + found.RequestID}
			}
		}()
		return next(ctx, method, req)
	}
}

// onlyChosen shows a client the tools that it has asked for. Calls of others are answered with an error that the model
// sees.
func onlyChosen(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		c, ok := ctx.Value(callKey{}).(*call)
		if !ok {
			return next(ctx, method, req)
		}
		if params, calls := req.GetParams().(*mcp.CallToolParamsRaw); calls && !slices.Contains(c.session.tools, params.Name) {
			return unknownTool(params.Name, c.session.tools), nil
		}
		res, err := next(ctx, method, req)
		if list, lists := res.(*mcp.ListToolsResult); lists && err == nil {
			list.Tools = slices.DeleteFunc(list.Tools, func(t *mcp.Tool) bool { return !slices.Contains(c.session.tools, t.Name) })
		}
		return res, err
	}
}

func unknownTool(name string, known []string) *mcp.CallToolResult {
	text := fmt.Sprintf("unknown_tool: there is no tool %q; use one of %s, or ask for others with ?tools= in the server's URL", name, strings.Join(known, ", "))
	return &mcp.CallToolResult{
		IsError: true, Content: []mcp.Content{&mcp.TextContent{Text: text}},
		StructuredContent: map[string]any{"error": failed{Code: "unknown_tool", Message: text}},
	}
}
