package mcp

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"sandyard/jobs/kind"
	"sandyard/models"
	"sandyard/toolset"
	"sandyard/web/problem"
)

// hubProgram talks to MCP servers from inside the sandbox, so that its policy holds and programs in it can be servers.
//
//go:embed hub.py
var hubProgram string

// otherServer is a server that the file .mcp.json of a sandbox names.
type otherServer struct {
	Name      string `json:"name"`
	Transport string `json:"transport"` // stdio or http
	Target    string `json:"target"`    // its URL, or its command
}

// otherTool is a tool of such a server.
type otherTool struct {
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	Schema      json.RawMessage `json:"inputSchema,omitempty"`
}

// otherResult is what a tool of such a server has answered.
type otherResult struct {
	Content []struct {
		Type     string          `json:"type"`
		Text     string          `json:"text"`
		Data     []byte          `json:"data"`
		Media    string          `json:"mimeType"`
		Resource json.RawMessage `json:"resource"`
	} `json:"content"`
	Structured json.RawMessage `json:"structuredContent"`
	IsError    bool            `json:"isError"`
}

// hubSaid is what the program writes.
type hubSaid struct {
	Servers []otherServer `json:"servers"`
	Tools   []otherTool   `json:"tools"`
	Result  *otherResult  `json:"result"`
	Error   string        `json:"error"`
	Network bool          `json:"network"` // the error may come from the egress policy
}

type mcpListTools struct {
	Server  string  `json:"server_name" jsonschema:"A server that mcp_list_servers shows"`
	Tool    string  `json:"tool_name,omitempty" jsonschema:"Only this tool, with its whole schema"`
	Timeout float64 `json:"timeout,omitempty" jsonschema:"Seconds for its answer; default 20, at most 3600"`
	in
}

type mcpExecute struct {
	Server    string         `json:"server_name" jsonschema:"A server that mcp_list_servers shows"`
	Tool      string         `json:"tool_name" jsonschema:"A tool that mcp_list_tools shows"`
	Arguments map[string]any `json:"arguments,omitempty" jsonschema:"The tool's arguments"`
	Timeout   float64        `json:"timeout,omitempty" jsonschema:"Seconds for its answer; default 20, at most 3600"`
	in
}

// hubTools are the tools of other MCP servers.
type hubTools struct{ *Server }

func (s *hubTools) mcpListServers(ctx context.Context, c *call, a *sandboxOnly) (*answer, error) {
	return s.hub(ctx, c, a.Sandbox, "servers", a, 0, func(said hubSaid, box string) *answer {
		var text strings.Builder
		for _, one := range said.Servers {
			fmt.Fprintf(&text, "%s\t%s\t%s\n", one.Name, one.Transport, toolset.Clip(one.Target))
		}
		if len(said.Servers) == 0 {
			text.WriteString(".mcp.json names no server.")
		}
		return &answer{
			Text:   toolset.Clip(text.String()),
			Fields: map[string]any{"servers": within(said.Servers), "sandbox_id": box},
		}
	})
}

func (s *hubTools) mcpListTools(ctx context.Context, c *call, a *mcpListTools) (*answer, error) {
	return s.hub(ctx, c, a.Sandbox, "tools", a, a.Timeout, func(said hubSaid, box string) *answer {
		var text strings.Builder
		shown := []otherTool{}
		room := toolset.MaxHead
		for _, one := range said.Tools {
			if a.Tool != "" && a.Tool != one.Name {
				continue
			}
			if room -= len(one.Schema); room < 0 {
				one.Schema = nil
			}
			one.Description = toolset.Clip(one.Description)
			shown = append(shown, one)
			fmt.Fprintf(&text, "%s: %s\n%s\n\n", one.Name, one.Description, one.Schema)
		}
		if len(shown) == 0 {
			text.WriteString("The server has no such tool.")
		}
		kept := within(shown)
		cut := room < 0 || len(kept) < len(shown)
		if cut {
			text.WriteString("[schemas are left out; ask for one tool with tool_name]")
		}
		return &answer{
			Text:   toolset.Clip(text.String()),
			Fields: map[string]any{"tools": kept, "truncated": cut, "sandbox_id": box},
		}
	})
}

func (s *hubTools) mcpExecute(ctx context.Context, c *call, a *mcpExecute) (*answer, error) {
	return s.hub(ctx, c, a.Sandbox, "call", a, a.Timeout, func(said hubSaid, box string) *answer {
		if said.Result == nil {
			said.Result = &otherResult{}
		}
		return said.Result.answer(box)
	})
}

// within is as many of the entries as an answer may have.
func within[T any](all []T) []T {
	size := 0
	for i, one := range all {
		raw, err := json.Marshal(one)
		if size += len(raw); err != nil || size > 2*toolset.MaxHead {
			return all[:i]
		}
	}
	return all
}

// answer shows texts within the room of an answer, and pictures.
func (r *otherResult) answer(sandboxID string) *answer {
	out := &answer{}
	var text strings.Builder
	if r.IsError {
		text.WriteString("The tool reports an error.\n")
	}
	for _, part := range r.Content {
		switch {
		case part.Type == "text":
			text.WriteString(part.Text + "\n")
		case part.Type == "image" && out.AddImage(part.Data, part.Media):
		case part.Type == "resource":
			text.WriteString(toolset.Clip(string(part.Resource)) + "\n")
		default:
			fmt.Fprintf(&text, "[%s of %d bytes is not shown]\n", part.Type, len(part.Data))
		}
	}
	fields := map[string]any{"is_error": r.IsError, "text": toolset.Clip(text.String()), "sandbox_id": sandboxID}
	if n := len(r.Structured); n > 0 && n <= toolset.MaxHead {
		fields["structured"] = r.Structured
	}
	if text.Len() == 0 {
		text.Write(r.Structured)
	}
	out.Text, out.Fields = toolset.Clip(text.String()), fields
	return out
}

// hub runs the program, as a command's job. One that takes longer than a call may goes on as any command does.
func (s *hubTools) hub(
	ctx context.Context, c *call, sandboxID, do string, args any, timeout float64, shown func(hubSaid, string) *answer,
) (*answer, error) {
	box, err := s.sandbox(ctx, c, sandboxID)
	if err == nil && (timeout < 0 || timeout > toolset.CommandTimeout.Seconds()) {
		err = invalid("timeout", "must be between 1 and 3600")
	}
	if err != nil {
		return nil, err
	}
	if timeout == 0 {
		timeout = patience.Seconds()
	}
	asked, err := asking(args, map[string]any{"do": do, "timeout": timeout})
	if err != nil {
		return nil, err
	}
	job, box, err := s.carry(ctx, c, box.ID, &kind.Exec{
		Argv: []string{"python3", "-I", "-c", hubProgram}, Stdin: string(asked),
		TimeoutSeconds: timeout + 10, MaxOutputBytes: toolset.KeptOutput,
	}, patience)
	if goes, ok := errors.AsType[*running](err); ok {
		return s.partOf(ctx, goes.job, toolset.Cursor{}).Answer(), nil
	}
	if err != nil {
		return nil, err
	}
	return s.hubEnded(ctx, job, box, shown)
}

// hubEnded is the answer about a program that has ended.
func (s *hubTools) hubEnded(
	ctx context.Context, job models.Job, box models.Sandbox, shown func(hubSaid, string) *answer,
) (*answer, error) {
	if job.State != models.Succeeded {
		return nil, s.failure(job, box)
	}
	if err := s.mw.Output(ctx, &job, models.OutputStdout, models.OutputStderr, models.OutputResult); err != nil {
		return nil, err
	}
	var said hubSaid
	if err := json.Unmarshal(job.Stdout, &said); err != nil {
		said.Error = fmt.Sprintf("the answer has the wrong form: %v: %s", err, toolset.Clip(toolset.Valid(job.Stderr)))
	}
	if said.Error != "" {
		detail := toolset.Clip(said.Error)
		if said.Network {
			detail += policyHint(box)
		}
		return nil, problem.New(http.StatusUnprocessableEntity, "mcp_failed", detail)
	}
	return shown(said, box.ID), nil
}
