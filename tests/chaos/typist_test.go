//go:build chaos

package chaos

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/coder/websocket"
)

// checkTerminals is what terminals promise.
const checkTerminals = "what is typed arrives once"

// typedFile is where what is typed leaves a line each.
const typedFile = "typed"

// typed is a line that was typed into a terminal.
type typed struct {
	n        int
	answered bool // its output was seen
}

// typist is a user of terminals, which are opened with tickets and joined again.
func (c *client) typist(ctx, load context.Context) error {
	for load.Err() == nil {
		b, err := c.box(ctx, object{"memory_mb": 64, "disk_mb": 16}, typedFile)
		if err != nil {
			return err
		}
		if b == nil {
			continue
		}
		for range 2 + c.rng.IntN(4) {
			if load.Err() == nil {
				c.session(load, b)
			}
		}
		if err := c.look(ctx, b); err != nil {
			return err
		}
		if err := c.remove(ctx, b, ""); err != nil {
			return err
		}
	}
	return nil
}

// session opens the sandbox's terminal and types some lines. Whatever breaks it, the next one joins what runs.
func (c *client) session(ctx context.Context, b *box) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	s, err := c.openTerminal(ctx, b)
	if err != nil {
		_ = pass(ctx, 200*time.Millisecond) // the sandbox is only being made, or is gone
		return
	}
	defer s.conn.CloseNow() //nolint:errcheck // it may be closed
	for range 1 + c.rng.IntN(4) {
		c.book.Lock()
		*c.count++
		n := *c.count
		c.book.Unlock()
		b.typed = append(b.typed, typed{n: n})
		// What is echoed of the line is not what it says.
		if !s.says(ctx, fmt.Sprintf("echo %d >> ~/%s; echo $((%d+1))said\r", n, typedFile, n-1), fmt.Sprintf("%dsaid\r\n", n)) {
			return
		}
		b.typed[len(b.typed)-1].answered = true
	}
	if c.rng.IntN(2) == 0 {
		_ = s.conn.Close(websocket.StatusNormalClosure, "")
	}
}

// screen is an open terminal.
type screen struct {
	conn *websocket.Conn
	seen []byte
}

func (c *client) openTerminal(ctx context.Context, b *box) (*screen, error) {
	status, text, err := c.try(ctx, answerWait, http.MethodPost, "/v1/sandboxes/"+b.id+"/terminal/tickets", "", object{"name": "main"})
	if err != nil || status != http.StatusCreated {
		return nil, fmt.Errorf("no ticket: %d %s %w", status, text, err)
	}
	var ticket struct{ Path string }
	if err := json.Unmarshal(text, &ticket); err != nil {
		return nil, err
	}
	all := c.addresses()
	if len(all) == 0 {
		return nil, fmt.Errorf("no API listens")
	}
	c.turn++
	at := "ws://" + all[c.turn%len(all)] + ticket.Path + "&command=exec+bash+--norc"
	conn, res, err := websocket.Dial(ctx, at, &websocket.DialOptions{HTTPClient: c.http})
	if err != nil {
		if res != nil && res.Body != nil {
			_ = res.Body.Close()
		}
		return nil, err
	}
	conn.SetReadLimit(1 << 20)
	return &screen{conn: conn}, nil
}

// says types a line and waits for what comes of it.
func (s *screen) says(ctx context.Context, line, want string) bool {
	if s.conn.Write(ctx, websocket.MessageBinary, []byte(line)) != nil {
		return false
	}
	for !bytes.Contains(s.seen, []byte(want)) {
		kind, message, err := s.conn.Read(ctx)
		if err != nil {
			return false
		}
		if kind == websocket.MessageBinary {
			s.seen = append(s.seen, message...)
		}
	}
	return true
}

// typedIn looks at what has come of the lines that were typed in a sandbox.
func (t *trial) typedIn(b *box, look *op) {
	seen := map[string]int{}
	for line := range strings.FieldsSeq(look.end.Content) {
		seen[line]++
	}
	for _, one := range b.typed {
		line := strconv.Itoa(one.n)
		if n := seen[line]; n > 1 || n == 0 && one.answered {
			t.find(checkTerminals, "line %s, whose answer was seen: %v, stands %d times in %s", line, one.answered, n, b.id)
		}
		delete(seen, line)
	}
	for line := range seen {
		t.find(checkTerminals, "nobody has typed %q, which stands in %s", line, b.id)
	}
}

// answered is how many lines were typed, and of how many the output was seen.
func answered(clients []*client) (lines, seen int) {
	for _, c := range clients {
		for _, b := range c.boxes {
			for _, one := range b.typed {
				lines++
				if one.answered {
					seen++
				}
			}
		}
	}
	return lines, seen
}
