package daytona

import (
	"context"
	"net/http"
	"strings"

	"github.com/coder/websocket"
	"github.com/gofiber/fiber/v2"

	"sandyard/web/middleware"
)

// Markers say which of its streams a command has written what follows to.
const (
	stdoutMark = "\x01\x01\x01"
	stderrMark = "\x02\x02\x02"
)

// logs answers with what a command has written, or, with follow, becomes a WebSocket that sends it as it comes.
func (s *sessions) logs(c *fiber.Ctx) error {
	if c.Query("follow") != "true" || !strings.EqualFold(c.Get(fiber.HeaderUpgrade), "websocket") {
		return s.logsOf(c)
	}
	session, command, err := named(c)
	if err != nil {
		return err
	}
	_, box, err := s.inSession(c, checkCommand, "")
	if err != nil {
		return err // while the answer may still be an error
	}
	r := middleware.RequestOf(c.UserContext())
	headers := []string{"Connection", "Upgrade", "Sec-WebSocket-Version", "Sec-WebSocket-Key", "Sec-WebSocket-Protocol"}
	return s.cross(c, "/follow", headers, func(w http.ResponseWriter, req *http.Request) {
		conn, err := websocket.Accept(w, req, &websocket.AcceptOptions{CompressionMode: websocket.CompressionDisabled})
		if err != nil {
			return // it has answered
		}
		ctx := conn.CloseRead(middleware.With(req.Context(), r))
		if err := s.send(ctx, conn, box.ID, session, command); err != nil && ctx.Err() == nil {
			p := s.report(ctx, err)
			_ = conn.Close(websocket.StatusInternalError, p.Code)
			return
		}
		_ = conn.Close(websocket.StatusNormalClosure, "") // the client may be gone
	})
}

// send sends what a command writes until its end.
func (s *sessions) send(ctx context.Context, conn *websocket.Conn, sandboxID, session, command string) error {
	for out, fault := 0, 0; ; {
		piece, err := s.follow(ctx, sandboxID, session, command, out, fault)
		if err != nil {
			return err
		}
		for mark, data := range map[string][]byte{stdoutMark: piece.stdout, stderrMark: piece.stderr} {
			if len(data) == 0 {
				continue
			}
			if err := conn.Write(ctx, websocket.MessageBinary, append([]byte(mark), data...)); err != nil {
				return err
			}
		}
		if piece.ended && len(piece.stdout)+len(piece.stderr) == 0 {
			return nil
		}
		out, fault = out+len(piece.stdout), fault+len(piece.stderr)
	}
}
