package mcp

import (
	"context"
	"encoding/json"
	"net/url"
	"strings"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"sandyard/jobs/kind"
	"sandyard/toolset"
	"sandyard/web/middleware"
	"sandyard/web/problem"
)

const (
	scheme        = "sandyard://"
	listURI       = scheme + "sandboxes"
	templatesURI  = scheme + "templates"
	filePattern   = scheme + "sandboxes/{id}/files/{+path}"
	outputPattern = scheme + "jobs/{id}/output"
	jsonMedia     = "application/json"
	// maxListed is how many sandboxes the resource has.
	maxListed = 100
)

// addResources adds what clients may read beside calling tools.
func (s *Server) addResources(server *mcp.Server) {
	server.AddResource(
		&mcp.Resource{URI: listURI, Name: "sandboxes", Description: "The live sandboxes", MIMEType: jsonMedia},
		s.reader(func(ctx context.Context, _ *call, _ string) (*mcp.ResourceContents, error) {
			docs, err := s.live(ctx, maxListed)
			return asJSON(docs, err)
		}),
	)
	server.AddResource(
		&mcp.Resource{URI: templatesURI, Name: "templates", Description: "The templates of sandboxes", MIMEType: jsonMedia},
		s.reader(func(ctx context.Context, _ *call, _ string) (*mcp.ResourceContents, error) {
			docs, err := s.templates(ctx)
			return asJSON(docs, err)
		}),
	)
	server.AddResourceTemplate(
		&mcp.ResourceTemplate{URITemplate: filePattern, Name: "file", Description: "A file in a sandbox; path is absolute"},
		s.reader(s.fileResource),
	)
	server.AddResourceTemplate(
		&mcp.ResourceTemplate{URITemplate: outputPattern, Name: "output", Description: "What a job's command has written"},
		s.reader(s.outputResource),
	)
}

// reader is a handler whose errors say what to do.
func (s *Server) reader(
	read func(ctx context.Context, c *call, rest string) (*mcp.ResourceContents, error),
) mcp.ResourceHandler {
	return func(ctx context.Context, req *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
		ctx, c, done := callOf(ctx)
		defer done()
		contents, err := read(ctx, c, strings.TrimPrefix(req.Params.URI, scheme))
		if err != nil {
			p := s.mw.Report(ctx, middleware.RequestOf(ctx), err)
			return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: p.Code + ": " + p.Detail}
		}
		contents.URI = req.Params.URI
		return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{contents}}, nil
	}
}

func asJSON(v any, err error) (*mcp.ResourceContents, error) {
	if err != nil {
		return nil, err
	}
	raw, err := json.Marshal(v)
	return &mcp.ResourceContents{MIMEType: jsonMedia, Text: string(raw)}, err
}

// fileResource reads sandboxes/{id}/files/{path}.
func (s *Server) fileResource(ctx context.Context, c *call, rest string) (*mcp.ResourceContents, error) {
	parts := strings.SplitN(rest, "/", 4)
	path, err := url.PathUnescape(parts[len(parts)-1])
	if len(parts) != 4 || err != nil {
		return nil, problem.Invalid("uri", "must be "+filePattern)
	}
	var res kind.ReadResult
	job, err := s.inSandbox(ctx, c, parts[1], &kind.Read{Path: "/" + strings.TrimPrefix(path, "/")}, &res)
	if err != nil {
		return nil, err
	}
	if len(job.Content) > toolset.MaxDownload {
		return nil, problem.New(
			413,
			"too_large",
			"the file is too large for a resource; read it in pieces with file_download or file_read",
		)
	}
	if utf8.Valid(job.Content) {
		return &mcp.ResourceContents{MIMEType: "text/plain", Text: string(job.Content)}, nil
	}
	return &mcp.ResourceContents{MIMEType: "application/octet-stream", Blob: job.Content}, nil
}

// outputResource reads jobs/{id}/output.
func (s *Server) outputResource(ctx context.Context, c *call, rest string) (*mcp.ResourceContents, error) {
	id := strings.TrimSuffix(strings.TrimPrefix(rest, "jobs/"), "/output")
	job, err := s.execJob(ctx, c, id, "", anyExec)
	if err != nil {
		return nil, err
	}
	box, err := s.c.Store.Sandbox(ctx, job.TenantID, job.SandboxID)
	if err != nil {
		return nil, err
	}
	var out *answer
	if job.State.Terminal() && !inBackground(job) {
		out, err = s.outcome(ctx, job, box, toolset.Cursor{})
	} else {
		out, err = s.execNow(ctx, c, job, toolset.Cursor{}, 0)
	}
	if err != nil {
		return nil, err
	}
	return &mcp.ResourceContents{MIMEType: "text/plain", Text: out.Text}, nil
}
