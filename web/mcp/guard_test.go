package mcp

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/goleak"

	"sandyard/web/middleware"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestPanicOfAHandlerIsAnError(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	stack := middleware.New(middleware.Config{Log: slog.New(slog.NewTextHandler(&log, nil))})
	defer stack.Close()
	s := &Server{mw: stack}
	handle := s.guard(func(context.Context, string, mcp.Request) (mcp.Result, error) { panic("of a tool") })
	ctx := middleware.With(t.Context(), &middleware.Request{ID: "request-1"})
	res, err := handle(ctx, "tools/call", &mcp.CallToolRequest{})
	if res != nil || err == nil || !strings.Contains(err.Error(), "internal_error") || !strings.Contains(err.Error(), "request-1") || strings.Contains(err.Error(), "of a tool") {
		t.Errorf("answered %v, %v", res, err)
	}
	if !strings.Contains(log.String(), "of a tool") {
		t.Errorf("logged %s", log.String())
	}
}
