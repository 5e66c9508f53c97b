package middleware

import (
	"bytes"

	"github.com/gofiber/fiber/v2"
)

// checkFraming refuses requests whose end a proxy may see elsewhere than fasthttp does, and ends their connections:
// what follows could be a request that nobody meant to send.
func checkFraming(c *fiber.Ctx) error {
	h := &c.Request().Header
	var lengths, codings, hosts int
	odd := string(h.Protocol()) != "HTTP/1.1" && string(h.Protocol()) != "HTTP/1.0"
	for line := range bytes.Lines(h.RawHeaders()) {
		name, value, _ := bytes.Cut(line, []byte(":"))
		trimmed := bytes.TrimSpace(name)
		if len(trimmed) > 0 && len(trimmed) != len(name) {
			odd = true // a blank before the colon, or a line that goes on with the one before
		}
		switch {
		case bytes.EqualFold(trimmed, []byte("Content-Length")):
			lengths++
		case bytes.EqualFold(trimmed, []byte("Transfer-Encoding")):
			codings++
			odd = odd || !bytes.EqualFold(bytes.TrimSpace(value), []byte("chunked"))
		case bytes.EqualFold(trimmed, []byte("Host")):
			hosts++
		}
	}
	if odd || lengths > 1 || codings > 1 || hosts > 1 || lengths > 0 && codings > 0 {
		c.Context().SetConnectionClose()
		return fiber.ErrBadRequest
	}
	return nil
}
