package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"sandyard/toolset"
	"sandyard/web/middleware"
	"sandyard/web/problem"
)

// tool is one tool, ready for the library.
type tool struct {
	about  *mcp.Tool
	handle mcp.ToolHandler
}

// answer is what a tool returns.
type answer = toolset.Answer

// in is embedded by the arguments of tools that work in a sandbox.
type in struct {
	Sandbox string `json:"sandbox,omitempty" jsonschema:"The id of another sandbox; default: the session's sandbox"`
}

// define makes a tool that is not the business of one sandbox alone, whose arguments are a T.
func define[T any](
	s *Server,
	name, about string,
	h toolset.Hint,
	do func(context.Context, *call, *T) (*answer, error),
) tool {
	t := toolset.Describe[T](name, about, h)
	return s.handled(t, func(ctx context.Context, c *call, given json.RawMessage) (*answer, error) {
		args := new(T)
		if err := toolset.Read(t, given, args); err != nil {
			return nil, err
		}
		return do(ctx, c, args)
	})
}

// inside makes a tool of one that works in a sandbox: of the session, or the one that the call names.
func (s *Server) inside(t toolset.Tool) tool {
	about := toolset.Describe[in]("", "", toolset.Reads)
	named := about.InputSchema.(*jsonschema.Schema)    //nolint:forcetypeassert // it makes one
	schema := t.About.InputSchema.(*jsonschema.Schema) //nolint:forcetypeassert // likewise
	if schema.Properties == nil {
		schema.Properties = map[string]*jsonschema.Schema{}
	}
	maps.Copy(schema.Properties, named.Properties)
	schema.PropertyOrder = append(schema.PropertyOrder, named.PropertyOrder...)
	return s.handled(t.About, func(ctx context.Context, c *call, given json.RawMessage) (*answer, error) {
		box := &inside{s: s, c: c}
		if err := readSandbox(given, &box.named); err != nil {
			return nil, err
		}
		return t.Call(ctx, box, given)
	})
}

// readSandbox reads the one argument that the tools of package toolset do not have. What is wrong with the others they
// say.
func readSandbox(given json.RawMessage, into *string) error {
	var fields map[string]json.RawMessage
	if json.Unmarshal(given, &fields) != nil || len(fields["sandbox"]) == 0 {
		return nil
	}
	if json.Unmarshal(fields["sandbox"], into) != nil {
		return invalid("sandbox", "must be a string")
	}
	return nil
}

func (s *Server) handled(about *mcp.Tool, do func(context.Context, *call, json.RawMessage) (*answer, error)) tool {
	return tool{about, func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		ctx, c, done := callOf(ctx)
		defer done()
		c.tells(req)
		out, err := do(ctx, c, req.Params.Arguments)
		return s.result(ctx, c, out, err), nil
	}}
}

// result is what the client gets: errors too are results, for those the model sees.
func (s *Server) result(ctx context.Context, c *call, out *answer, err error) *mcp.CallToolResult {
	failed, goes := false, (*running)(nil)
	switch {
	case errors.As(err, &goes):
		out = &answer{
			Text: fmt.Sprintf(
				"This takes longer than a call may. Job %s goes on; call job_wait with job_id %s.",
				goes.job.ID,
				goes.job.ID,
			),
			Fields: map[string]any{"job_id": goes.job.ID, "running": true, "sandbox_id": goes.job.SandboxID},
		}
	case err != nil:
		if own, ok := errors.AsType[*toolset.Error](err); ok {
			err = problem.New(http.StatusUnprocessableEntity, own.Code, own.Text)
		}
		p := s.mw.Report(ctx, middleware.RequestOf(ctx), err)
		p.Detail = strings.ReplaceAll(p.Detail, "body.", "")
		out = &answer{Text: p.Code + ": " + p.Detail, Fields: map[string]any{"error": errorOf(p)}}
		failed = true
	}
	res := out.Result()
	res.IsError = failed
	if c.notice != "" {
		res.Content = append([]mcp.Content{&mcp.TextContent{Text: c.notice}}, res.Content...)
	}
	res.StructuredContent = withNotice(out.Fields, c.notice)
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
				res, err = nil, &jsonrpc.Error{
					Code:    jsonrpc.CodeInternalError,
					Message: found.Code + ": " + found.Detail + ": " + found.RequestID,
				}
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
		if params, calls := req.GetParams().(*mcp.CallToolParamsRaw); calls &&
			!slices.Contains(c.session.tools, params.Name) {
			return unknownTool(params.Name, c.session.tools), nil
		}
		res, err := next(ctx, method, req)
		if list, lists := res.(*mcp.ListToolsResult); lists && err == nil {
			list.Tools = slices.DeleteFunc(
				list.Tools,
				func(t *mcp.Tool) bool { return !slices.Contains(c.session.tools, t.Name) },
			)
		}
		return res, err
	}
}

func unknownTool(name string, known []string) *mcp.CallToolResult {
	text := fmt.Sprintf(
		"unknown_tool: there is no tool %q; use one of %s, or ask for others with ?tools= in the server's URL",
		name,
		strings.Join(known, ", "),
	)
	return &mcp.CallToolResult{
		IsError: true, Content: []mcp.Content{&mcp.TextContent{Text: text}},
		StructuredContent: map[string]any{"error": failed{Code: "unknown_tool", Message: text}},
	}
}
