package mcp

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"

	"sandyard/web/middleware"
	"sandyard/web/problem"
)

// message is what this package needs to know of one of JSON-RPC.
type message struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
}

func readMessage(body []byte) (message, error) {
	var m message
	if err := middleware.CheckJSON(body); err != nil {
		return m, err
	}
	if trimmed := bytes.TrimSpace(body); len(trimmed) == 0 || trimmed[0] != '{' {
		return m, problem.Invalid("body", "must be one JSON-RPC message; send several as several requests")
	}
	if err := json.Unmarshal(body, &m); err != nil {
		return m, problem.Invalid("body", "is not a JSON-RPC message: "+err.Error())
	}
	return m, nil
}

// withBody is r with a body that is in memory.
func withBody(r *http.Request, body []byte) *http.Request {
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	return r
}
