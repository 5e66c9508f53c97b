package mcp

import (
	"net/http"
	"reflect"

	"github.com/danielgtaylor/huma/v2"

	"sandyard/web/calls"
	"sandyard/web/problem"
)

// rpcRequest is a message of a client. The protocol's own documents, and tools/list, say what params are.
type rpcRequest struct {
	JSONRPC string         `json:"jsonrpc" enum:"2.0"`
	ID      any            `json:"id,omitempty" doc:"A string or number that the session has not used before; absent in notifications"`
	Method  string         `json:"method" doc:"Such as initialize, tools/list or tools/call"`
	Params  map[string]any `json:"params,omitempty"`
}

// rpcAnswer is the event of an answer that ends it.
type rpcAnswer struct {
	JSONRPC string         `json:"jsonrpc" enum:"2.0"`
	ID      any            `json:"id"`
	Result  map[string]any `json:"result,omitempty"`
	Error   map[string]any `json:"error,omitempty"`
}

// Document describes the route.
func (s *Server) Document(version string) *huma.OpenAPI {
	contract := calls.Contract{
		Title: "Agents' tools", Failure: reflect.TypeFor[problem.Problem](),
		Description: "A server of the Model Context Protocol, as streamable HTTP. Use a client of the protocol; tools/list " +
			"describes the tools.",
		Security: map[string]*huma.SecurityScheme{
			"bearer": {Type: "http", Scheme: "bearer", Description: "An API key"},
			"header": {Type: "apiKey", In: "header", Name: "X-API-Key", Description: "An API key"},
		},
	}
	doc := contract.Document(version, []calls.Route{{
		Method: http.MethodPost, Path: Path, ID: "mcp", Summary: "Send one message of JSON-RPC",
		Query: []string{"session", "template", "tools"},
		In:    reflect.TypeFor[rpcRequest](), Out: reflect.TypeFor[rpcAnswer](),
	}})
	answers := doc.Paths[Path].Post.Responses["200"]
	answers.Description = "Server-sent events; the last one is the answer"
	answers.Content = map[string]*huma.MediaType{"text/event-stream": answers.Content["application/json"]}
	return doc
}
