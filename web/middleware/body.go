package middleware

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"
	"github.com/gofiber/fiber/v2"

	"sandyard/duplex"
	"sandyard/web/problem"
)

// firstRoom is what is set aside for a body of which nothing has come yet. More follows as it comes, whatever length
// was announced.
const firstRoom = 32 << 10

// TakeBody reads the body, within bounds and within the budget of all bodies, for the handlers that want it whole.
// Callers without the right to ask must have been refused before.
func (s *Stack) TakeBody(c *fiber.Ctx) error {
	if err := CheckCoding(c); err != nil {
		return err
	}
	r := RequestOf(c.UserContext())
	r.Held = Hold{budget: s.budget, tenant: r.Tenant}
	stream := c.Context().RequestBodyStream()
	if stream == nil {
		return c.Next()
	}
	reserve := func(n int) error { return r.Held.Add(c.UserContext(), n) }
	body, err := readBody(stream, c.Request().Header.ContentLength(), s.MaxBody, reserve)
	if err != nil {
		return err
	}
	c.Request().SetBodyRaw(body)
	return c.Next()
}

// CheckCoding refuses bodies that are compressed.
func CheckCoding(c *fiber.Ctx) error {
	if len(c.Request().Header.ContentEncoding()) > 0 {
		return problem.New(fiber.StatusUnsupportedMediaType, "unsupported_content_encoding",
			"the body must not be compressed; send it without Content-Encoding")
	}
	return nil
}

// readBody reads a body of the announced length, or to its end where that is negative. It reserves what it reads before
// it reads it.
func readBody(from io.Reader, announced, most int, reserve func(int) error) ([]byte, error) {
	if announced > most {
		return nil, fiber.ErrRequestEntityTooLarge
	}
	if announced < 0 {
		return readChunked(from, most, reserve)
	}
	if err := reserve(announced); err != nil {
		return nil, err
	}
	body := make([]byte, 0, min(announced, firstRoom))
	for len(body) < announced {
		if len(body) == cap(body) {
			body = append(make([]byte, 0, min(announced, 2*cap(body))), body...)
		}
		n, err := io.ReadFull(from, body[len(body):cap(body)])
		if body = body[:len(body)+n]; err != nil {
			return nil, Incomplete(err)
		}
	}
	return body, nil
}

// readChunked reads a body of a length that nobody has announced, of at most most bytes.
func readChunked(from io.Reader, most int, reserve func(int) error) ([]byte, error) {
	var body []byte
	for room := firstRoom; ; room *= 2 {
		room = min(room, most+1)
		if err := reserve(room - cap(body)); err != nil {
			return nil, err
		}
		body = append(make([]byte, 0, room), body...)
		n, err := io.ReadFull(from, body[len(body):room])
		body = body[:len(body)+n]
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return body, nil
		case err != nil:
			return nil, Incomplete(err)
		case len(body) > most:
			return nil, fiber.ErrRequestEntityTooLarge
		}
	}
}

// DropBody goes on without the request's body, for handlers that anybody may call and that want none.
func DropBody(c *fiber.Ctx) error {
	LeaveBody(c)
	c.Request().SetBodyRaw([]byte{})
	return c.Next()
}

// Incomplete is the error of a body that did not arrive.
func Incomplete(err error) error {
	if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() {
		return fiber.ErrRequestTimeout
	}
	return fiber.ErrBadRequest
}

// LeaveBody ends the connection of a request whose body nobody has read: what is left of it must not be taken for the
// next request. The client gets the time to read the answer.
func LeaveBody(c *fiber.Ctx) {
	if c.Context().RequestBodyStream() != nil {
		c.Context().SetConnectionClose()
		duplex.LingerAfter(c.Context().Conn())
	}
}

// CheckBody refuses bodies that are no JSON that PostgreSQL can hold, before anything reads them, and takes their
// digest where the request is to be recognised again.
func (s *Stack) CheckBody(c *fiber.Ctx) error {
	body := c.Request().Body()
	if len(body) > 0 {
		if err := CheckJSON(body); err != nil {
			return err
		}
	}
	if c.Get("Idempotency-Key") != "" {
		RequestOf(c.UserContext()).Digest = Digest(c.Method(), c.Path(), body)
	}
	return c.Next()
}

// Digest recognises a request that is sent again under its Idempotency-Key.
func Digest(method, path string, body []byte) []byte {
	h := sha256.New()
	fmt.Fprintf(h, "%s %s\n", method, path)
	h.Write(body)
	return h.Sum(nil)
}

// CheckJSON refuses what is no JSON that PostgreSQL can hold.
func CheckJSON(body []byte) error {
	if !utf8.Valid(body) {
		return problem.New(fiber.StatusBadRequest, "invalid_utf8",
			"the body is not UTF-8; send binary bytes as base64, with the field's encoding set to base64")
	}
	if !json.Valid(body) {
		return syntaxProblem(body)
	}
	if err := checkShape(body); err != nil {
		return err
	}
	if !bytes.Contains(body, []byte(`\u0000`)) {
		return nil
	}
	var v any
	if err := json.Unmarshal(body, &v); err != nil {
		return nil // a number out of range, which the decoder reports
	}
	if at := findNUL(v, "body"); at != "" {
		return problem.Invalid(at, "must not contain a NUL character")
	}
	return nil
}

// syntaxProblem says where the JSON breaks off or goes wrong.
func syntaxProblem(body []byte) error {
	d := json.NewDecoder(bytes.NewReader(body))
	var err error
	var v json.RawMessage
	if err = d.Decode(&v); err == nil {
		return problem.New(fiber.StatusBadRequest, "invalid_json",
			fmt.Sprintf("the body holds more than one JSON value; the first ends at byte %d; send one value", d.InputOffset()))
	}
	at := int64(len(body))
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
		at = syntax.Offset
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		err = errors.New("the body ends in the middle of a JSON value; send the complete body")
	}
	before := body[:min(at, int64(len(body)))]
	line := 1 + bytes.Count(before, []byte("\n"))
	return problem.New(fiber.StatusBadRequest, "invalid_json",
		fmt.Sprintf("the body is not JSON: %v (line %d, byte %d)", err, line, at))
}

// findNUL returns where the first string with a NUL stands. The fields that carry bytes may have them.
func findNUL(v any, at string) string {
	switch v := v.(type) {
	case string:
		if strings.Contains(v, "\x00") {
			return at
		}
	case []any:
		for i, x := range v {
			if found := findNUL(x, at+"["+strconv.Itoa(i)+"]"); found != "" {
				return found
			}
		}
	case map[string]any:
		for name, x := range v {
			if strings.Contains(name, "\x00") {
				return at
			}
			_, text := x.(string)
			if text && (name == "content" || name == "stdin" || name == "old_string" || name == "new_string") {
				continue
			}
			if found := findNUL(x, at+"."+name); found != "" {
				return found
			}
		}
	}
	return ""
}

// JSONFormat reads and writes bodies. Its errors speak of the request, not of Go.
func JSONFormat() huma.Format {
	return huma.Format{Marshal: huma.DefaultJSONFormat.Marshal, Unmarshal: func(data []byte, v any) error {
		err := json.Unmarshal(data, v)
		var mismatch *json.UnmarshalTypeError
		if !errors.As(err, &mismatch) {
			return err
		}
		return errors.New(strings.TrimSpace(fieldOf(mismatch) + " " + mismatch.Value + " is out of range"))
	}}
}

// fieldOf drops the names of embedded Go types, which are the only ones in upper case.
func fieldOf(e *json.UnmarshalTypeError) string {
	field := e.Field
	for field != "" && unicode.IsUpper(rune(field[0])) {
		_, field, _ = strings.Cut(field, ".")
	}
	return field
}

// maxLogin is how many bytes the body of a login may have: anybody may send one.
const maxLogin = 4 << 10

// LoginBody lets requests pass whose body could be that of a login.
func LoginBody(c *fiber.Ctx) error {
	if n := c.Request().Header.ContentLength(); c.Context().RequestBodyStream() != nil && (n < 0 || n > maxLogin) {
		return problem.New(http.StatusRequestEntityTooLarge, "login_too_large",
			"the body of a login may have 4096 bytes and a Content-Length; send only what a login needs")
	}
	return nil
}
