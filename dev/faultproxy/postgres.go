package faultproxy

import (
	"bytes"
	"encoding/binary"
	"strings"
)

// pgSplitter knows PostgreSQL's protocol 3 as a client speaks it
// (https://www.postgresql.org/docs/current/protocol-message-formats.html). A call ends where the server must answer
// before the client goes on: with a simple query or a Sync.
type pgSplitter struct {
	begun    bool              // the startup message has passed
	prepared map[string]string // statement name → text
	texts    []string          // of the call so far
}

func (s *pgSplitter) next(b []byte) (int, *Call) {
	if !s.begun {
		return s.startup(b)
	}
	if len(b) < 5 {
		return 0, nil
	}
	n := 1 + int(binary.BigEndian.Uint32(b[1:]))
	if len(b) < n {
		return 0, nil
	}
	return n, s.message(b[0], b[5:n])
}

// startup is a message without a type. Requests for encryption and cancels come before or instead of the real one.
func (s *pgSplitter) startup(b []byte) (int, *Call) {
	if len(b) < 8 {
		return 0, nil
	}
	n := int(binary.BigEndian.Uint32(b))
	if len(b) < n {
		return 0, nil
	}
	const versions = 4 << 16 // what is above are the codes of special requests
	s.begun, s.prepared = binary.BigEndian.Uint32(b[4:]) < versions, map[string]string{}
	return n, &Call{Text: "connect"}
}

func (s *pgSplitter) message(kind byte, body []byte) *Call {
	switch kind {
	case 'Q':
		s.texts = append(s.texts, word(body, 0))
		return s.call()
	case 'P':
		s.prepared[word(body, 0)] = word(body, 1)
		s.texts = append(s.texts, "prepare "+word(body, 1))
	case 'B':
		s.texts = append(s.texts, s.prepared[word(body, 1)])
	case 'S', 'X', 'p':
		return s.call()
	}
	return nil
}

func (s *pgSplitter) call() *Call {
	c := &Call{Text: strings.Join(s.texts, "; ")}
	s.texts = nil
	return c
}

// word is the i-th of the strings, each closed by a zero, at the head of body.
func word(body []byte, i int) string {
	parts := bytes.SplitN(body, []byte{0}, i+2)
	if i >= len(parts) {
		return ""
	}
	return string(parts[i])
}
