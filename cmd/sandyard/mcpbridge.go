package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"
)

const (
	sessionHeader = "Mcp-Session-Id"
	versionHeader = "Mcp-Protocol-Version"
	// messageTimeout is how long one message may take: the server answers calls within half a minute.
	messageTimeout = 2 * time.Minute
	// maxTries is how often a message is sent to a server that cannot be reached or is busy. The server starts nothing twice.
	maxTries = 5
	tryPause = 500 * time.Millisecond
)

// bridge carries the messages of the Model Context Protocol between standard input and output, a line each, and a server's
// streamable HTTP.
type bridge struct {
	url, key string
	http     *http.Client

	mu               sync.Mutex // of all that follows
	out              io.Writer
	session, version string // that the server has named at initialize
}

func newBridge(url, key string, out io.Writer) *bridge {
	return &bridge{url: url, key: key, out: out, http: &http.Client{Timeout: messageTimeout}}
}

// envelope is what the bridge reads of a message.
type envelope struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Result *struct {
		ProtocolVersion string `json:"protocolVersion"`
	} `json:"result"`
	Error json.RawMessage `json:"error"`
}

// carry returns at the end of in. What its messages have begun on the server by then is given up.
func (b *bridge) carry(ctx context.Context, in io.Reader) error {
	ctx, cancel := context.WithCancel(ctx)
	var sent sync.WaitGroup
	defer sent.Wait()
	defer cancel()
	for lines := bufio.NewReader(in); ; {
		line, err := lines.ReadBytes('\n')
		if line = bytes.TrimSpace(line); len(line) > 0 {
			b.accept(ctx, &sent, line)
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil || ctx.Err() != nil {
			return err
		}
	}
}

// accept sends a message. Those behind the first one wait for its answer, which names the session.
func (b *bridge) accept(ctx context.Context, sent *sync.WaitGroup, line []byte) {
	var m envelope
	if err := json.Unmarshal(line, &m); err != nil {
		b.write(failure(json.RawMessage("null"), -32700, "a line of standard input is not JSON: "+err.Error()))
		return
	}
	if m.Method == "initialize" {
		b.send(ctx, m, line)
		return
	}
	sent.Go(func() { b.send(ctx, m, line) })
}

// send sends a message until it is answered.
func (b *bridge) send(ctx context.Context, m envelope, line []byte) {
	for try := 1; ; try++ {
		again, err := b.post(ctx, m, line)
		if err == nil || ctx.Err() != nil {
			return
		}
		if !again || try == maxTries {
			if len(m.ID) > 0 { // a notification has no answer
				b.write(failure(m.ID, -32000, err.Error()))
			}
			return
		}
		pause := time.NewTimer(time.Duration(try) * tryPause)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
		}
	}
}

// post sends a message once and writes down what comes back. Again says whether another try may succeed.
func (b *bridge) post(ctx context.Context, m envelope, line []byte) (again bool, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, b.url, bytes.NewReader(line))
	if err != nil {
		return false, err
	}
	b.mu.Lock()
	for name, value := range map[string]string{sessionHeader: b.session, versionHeader: b.version} {
		if value != "" {
			req.Header.Set(name, value)
		}
	}
	b.mu.Unlock()
	req.Header.Set("Authorization", "Bearer "+b.key)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	res, err := b.http.Do(req)
	if err != nil {
		return true, fmt.Errorf("the server cannot be reached: %w", err)
	}
	defer res.Body.Close()
	if res.StatusCode >= http.StatusMultipleChoices {
		return res.StatusCode == http.StatusTooManyRequests || res.StatusCode == http.StatusServiceUnavailable, refusal(res)
	}
	if m.Method == "initialize" {
		b.mu.Lock()
		b.session = res.Header.Get(sessionHeader)
		b.mu.Unlock()
	}
	if len(m.ID) == 0 {
		return false, nil
	}
	return true, b.read(m, res)
}

// refusal is why a server did not take a message, in its own words where it has some.
func refusal(res *http.Response) error {
	raw, _ := io.ReadAll(io.LimitReader(res.Body, 64<<10))
	var problem struct{ Code, Detail string }
	if json.Unmarshal(raw, &problem) == nil && problem.Detail != "" {
		return fmt.Errorf("%s: %s", problem.Code, problem.Detail)
	}
	return fmt.Errorf("the server answered %s; is --url that of an API?", res.Status)
}

// read writes down the messages of an answer, up to the one that ends it.
func (b *bridge) read(m envelope, res *http.Response) error {
	if strings.HasPrefix(res.Header.Get("Content-Type"), "application/json") {
		raw, err := io.ReadAll(res.Body)
		if err == nil {
			b.take(m, raw)
		}
		return err
	}
	var data []byte
	for lines := bufio.NewReader(res.Body); ; {
		line, err := lines.ReadBytes('\n')
		line = bytes.TrimRight(line, "\r\n")
		if piece, ok := bytes.CutPrefix(line, []byte("data:")); ok {
			data = append(data, bytes.TrimPrefix(piece, []byte(" "))...)
		}
		if len(line) == 0 && len(data) > 0 {
			if b.take(m, data) {
				return nil
			}
			data = nil
		}
		if err != nil {
			return errors.New("the server ended its answer early; send the message again")
		}
	}
}

// take writes down a message of the server, and says whether it answers m.
func (b *bridge) take(m envelope, raw []byte) bool {
	var line bytes.Buffer
	var came envelope
	if json.Compact(&line, raw) != nil || json.Unmarshal(raw, &came) != nil {
		return false
	}
	answers := bytes.Equal(came.ID, m.ID) && came.Method == ""
	if answers && m.Method == "initialize" && came.Result != nil {
		b.mu.Lock()
		b.version = came.Result.ProtocolVersion
		b.mu.Unlock()
	}
	b.write(line.Bytes())
	return answers
}

func (b *bridge) write(line []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	_, _ = b.out.Write(append(line, '\n')) // a client that is gone has closed the input, too
}

// failure is an answer that the server did not give.
func failure(id json.RawMessage, code int, message string) []byte {
	raw, _ := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": id, "error": map[string]any{"code": code, "message": message}}) // it has no other types
	return raw
}
