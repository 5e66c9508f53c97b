//go:build e2b

package e2b

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/dynamicpb"

	_ "sandyard/guest/envdpb/filesystem" // E2B's .proto files, by their names
	_ "sandyard/guest/envdpb/process"
)

// envds is the contract of the server in E2B's sandboxes: a document for its files, .proto files for its calls.
func envds() *contract {
	return &contract{
		name: func(r *http.Request) (string, bool) {
			if r.Header.Get("E2b-Sandbox-Port") != "49983" || r.Header.Get("Range") != "" {
				return "", false // a program's; a part of a file, of which the document knows nothing
			}
			return r.URL.Path, false
		},
		rpc: func(r *http.Request) bool {
			return strings.HasPrefix(r.URL.Path, "/process.") || strings.HasPrefix(r.URL.Path, "/filesystem.")
		},
		fault: func(_ string, status int, body map[string]any) error {
			if message, _ := body["message"].(string); message == "" || body["code"] != float64(status) {
				return errors.New("the error lacks a message, or its code is not the status")
			}
			return nil
		},
	}
}

// rpcCall is a call by the Connect protocol that is under way.
type rpcCall struct {
	path   string
	method protoreflect.MethodDescriptor
}

// serveRPC passes a call on. What it says is looked at while it passes: many last as long as a command.
func (k *contract) serveRPC(w http.ResponseWriter, r *http.Request) {
	c, err := findRPC(r.URL.Path)
	if err != nil {
		k.t.Errorf("the client calls what E2B's .proto files lack: %v", err)
		k.proxy.ServeHTTP(w, r)
		return
	}
	m, err := c.messages(r.Header, c.method.Input(), c.method.IsStreamingClient() || c.method.IsStreamingServer())
	if err != nil {
		k.t.Errorf("the request of %s: %v", c.path, err)
	}
	r.Body = &tap{ReadCloser: r.Body, see: m.see, end: func() {
		if err := m.ended(false); err != nil {
			k.t.Errorf("the request of %s is not as E2B's .proto file has it: %v", c.path, err)
		}
	}}
	k.proxy.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), callKey{}, c)))
}

func findRPC(path string) (*rpcCall, error) {
	service, name, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	d, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(service))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	s, ok := d.(protoreflect.ServiceDescriptor)
	if !ok || s.Methods().ByName(protoreflect.Name(name)) == nil {
		return nil, fmt.Errorf("%s is no call", path)
	}
	return &rpcCall{path, s.Methods().ByName(protoreflect.Name(name))}, nil
}

// answeredRPC looks at the answer of a call while it passes.
func (k *contract) answeredRPC(c *rpcCall, res *http.Response) {
	streams := c.method.IsStreamingClient() || c.method.IsStreamingServer()
	var length int
	cut := func() {
		k.t.Errorf("the answer of %s, %d %v, broke off after %d bytes", c.path, res.StatusCode, res.Header, length)
	}
	wrong := func(err error) { k.t.Errorf("not as E2B's .proto file has it: %s is answered %v", c.path, err) }
	if res.StatusCode != http.StatusOK {
		var text bytes.Buffer
		res.Body = &tap{
			ReadCloser: res.Body,
			see:        func(p []byte) { text.Write(p); length += len(p) },
			cut:        cut,
			end: func() {
				if err := refusal(text.Bytes(), res.StatusCode); err != nil {
					wrong(fmt.Errorf("%d %.500q: %w", res.StatusCode, text.Bytes(), err))
				}
			},
		}
		return
	}
	m, err := c.messages(res.Header, c.method.Output(), streams)
	if err != nil {
		wrong(err)
		return
	}
	if streams {
		cut = nil // its sandbox has ended or sleeps
	}
	res.Body = &tap{ReadCloser: res.Body, cut: cut, see: func(p []byte) { m.see(p); length += len(p) }, end: func() {
		if err := m.ended(streams); err != nil {
			wrong(err)
			return
		}
		k.mu.Lock()
		defer k.mu.Unlock()
		k.seen["POST "+c.path]++
	}}
}

// tap shows what is read of a body, and its end; a body that is not read to its end has none.
type tap struct {
	io.ReadCloser
	see func([]byte)
	end func()
	cut func() // it broke off; nil = it may
}

// Read implements io.Reader.
func (t *tap) Read(p []byte) (int, error) {
	n, err := t.ReadCloser.Read(p)
	t.see(p[:n])
	switch {
	case err == io.EOF && t.end != nil:
		t.end()
		t.end = nil
	case errors.Is(err, io.ErrUnexpectedEOF) && t.cut != nil:
		t.cut()
	}
	return n, err
}

// messages are those of one direction of a call.
type messages struct {
	of      protoreflect.MessageDescriptor
	json    bool
	streams bool   // they have envelopes
	packed  bool   // the body is compressed, without envelopes
	buf     []byte // not looked at yet
	last    bool   // the end of the stream has been seen
	err     error  // the first that was found
}

// messages finds out from the headers how they are written.
func (c *rpcCall) messages(h http.Header, of protoreflect.MessageDescriptor, streams bool) (*messages, error) {
	kind, _, err := mime.ParseMediaType(h.Get("Content-Type"))
	m := &messages{of: of, streams: streams, packed: !streams && h.Get("Content-Encoding") == "gzip"}
	prefix := "application/"
	if streams {
		prefix = "application/connect+"
	}
	switch kind {
	case prefix + "json":
		m.json = true
	case prefix + "proto":
	default:
		err = errors.Join(err, fmt.Errorf("the Content-Type is %q", h.Get("Content-Type")))
	}
	m.err = err
	return m, err
}

// envelope is the length of what precedes a message in a stream: flags, and four bytes of length.
const envelope = 5

// Flags of an envelope.
const (
	packedFlag = 1
	endFlag    = 2
)

func (m *messages) see(p []byte) {
	m.buf = append(m.buf, p...)
	for m.streams && m.err == nil && len(m.buf) >= envelope {
		size := int(binary.BigEndian.Uint32(m.buf[1:envelope]))
		if len(m.buf) < envelope+size {
			return
		}
		flags, text := m.buf[0], m.buf[envelope:envelope+size]
		m.err = m.one(flags, text)
		m.buf = m.buf[envelope+size:]
	}
}

// one looks at an envelope of a stream.
func (m *messages) one(flags byte, text []byte) (err error) {
	switch {
	case m.last:
		return errors.New("a message after the end of the stream")
	case flags&^(packedFlag|endFlag) != 0:
		return fmt.Errorf("an envelope with the flags %#x", flags)
	}
	if flags&packedFlag != 0 {
		if text, err = unpack(text); err != nil {
			return err
		}
	}
	if flags&endFlag == 0 {
		return m.decode(text)
	}
	m.last = true
	var end struct {
		Error    json.RawMessage     `json:"error"`
		Metadata map[string][]string `json:"metadata"`
	}
	if err := strict(text, &end); err != nil || len(end.Error) == 0 {
		return err
	}
	return connectError(end.Error)
}

func unpack(text []byte) ([]byte, error) {
	from, err := gzip.NewReader(bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(from)
}

// ended says what was wrong, once all has passed; wanted = the stream must have said that it ends.
func (m *messages) ended(wanted bool) error {
	switch {
	case m.err != nil:
		return m.err
	case m.streams && len(m.buf) > 0:
		return fmt.Errorf("%d bytes of an envelope that was cut", len(m.buf))
	case m.streams && wanted && !m.last:
		return errors.New("the stream has no end")
	case m.streams:
		return nil
	}
	text := m.buf
	if m.packed {
		var err error
		if text, err = unpack(text); err != nil {
			return err
		}
	}
	return m.decode(text)
}

// decode reads a message. A name or number that the .proto file does not know counts as wrong.
func (m *messages) decode(text []byte) error {
	msg := dynamicpb.NewMessage(m.of)
	if m.json {
		if err := protojson.Unmarshal(text, msg); err != nil {
			return fmt.Errorf("%.500q: %w", text, err)
		}
		return nil
	}
	if err := proto.Unmarshal(text, msg); err != nil {
		return fmt.Errorf("%.500q: %w", text, err)
	}
	return knownAlone(msg)
}

// knownAlone says whether a message or one in it has fields that its .proto file lacks.
func knownAlone(msg protoreflect.Message) (err error) {
	if len(msg.GetUnknown()) > 0 {
		return fmt.Errorf("%s has fields that are unknown: %x", msg.Descriptor().FullName(), msg.GetUnknown())
	}
	msg.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.IsMap() && f.MapValue().Message() != nil:
			v.Map().Range(func(_ protoreflect.MapKey, v protoreflect.Value) bool {
				err = knownAlone(v.Message())
				return err == nil
			})
		case f.IsMap() || f.Message() == nil:
		case f.IsList():
			for i := 0; i < v.List().Len() && err == nil; i++ {
				err = knownAlone(v.List().Get(i).Message())
			}
		default:
			err = knownAlone(v.Message())
		}
		return err == nil
	})
	return err
}

func connectError(text []byte) error {
	var e struct {
		Code    string            `json:"code"`
		Message string            `json:"message"`
		Details []json.RawMessage `json:"details"`
	}
	if err := strict(text, &e); err != nil {
		return err
	}
	var code connect.Code
	if code.UnmarshalText([]byte(e.Code)) != nil || strings.HasPrefix(e.Code, "code_") || e.Message == "" {
		return fmt.Errorf("%s is no error of the Connect protocol", text)
	}
	return nil
}

// refusal looks at an answer that is no success: an error of the protocol, or one of the door before it.
func refusal(text []byte, status int) error {
	var doc map[string]any
	if err := json.Unmarshal(text, &doc); err != nil {
		return err
	}
	if _, is := doc["code"].(string); is {
		return connectError(text)
	}
	return envds().fault("", status, doc)
}

func strict(text []byte, to any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	return d.Decode(to)
}

// TestEnvdsContractIsHeldTo: what differs a little from E2B's .proto files is found.
func TestEnvdsContractIsHeldTo(t *testing.T) {
	t.Parallel()
	stream := func(parts ...string) (text string) {
		for _, p := range parts {
			head := binary.BigEndian.AppendUint32([]byte{p[0] - '0'}, uint32(len(p)-1))
			text += string(head) + p[1:]
		}
		return text
	}
	start, list := "/process.Process/Start", "/process.Process/List"
	for _, c := range []struct {
		path, kind, body string
		good             bool
	}{
		{list, "application/json", `{"processes":[{"pid":3}]}`, true},
		{list, "application/json", `{"processes":[{"pid":3,"ppid":1}]}`, false},
		{list, "application/json", `{"processes":[{"pid":"x"}]}`, false},
		{list, "application/connect+json", `{}`, false},
		{list, "application/proto", "\x0a\x02\x10\x03", true},
		{list, "application/proto", "\x0a\x02\x50\x03", false},
		{list, "application/proto", "\x52\x02\x10\x03", false},
		{start, "application/connect+json", stream(`0{"event":{"start":{"pid":3}}}`, `2{}`), true},
		{start, "application/connect+json", stream(`0{"event":{"start":{"pid":3}}}`), false},
		{start, "application/connect+json", stream(`0{"event":{"began":{"pid":3}}}`, `2{}`), false},
		{start, "application/connect+json", stream(`0{}`, `2{"error":{"code":"not_found","message":"x"}}`), true},
		{start, "application/connect+json", stream(`0{}`, `2{"error":{"code":"gone","message":"x"}}`), false},
		{start, "application/connect+json", stream(`2{}`, `0{}`), false},
		{start, "application/connect+json", stream(`0{}`, `2{}`)[:8], false},
		{start, "application/json", `{}`, false},
	} {
		found, err := findRPC(c.path)
		check(t, err)
		m, err := found.messages(http.Header{"Content-Type": {c.kind}}, found.method.Output(), found.method.IsStreamingServer())
		if err == nil {
			for _, b := range []byte(c.body) { // in the smallest pieces
				m.see([]byte{b})
			}
			err = m.ended(found.method.IsStreamingServer())
		}
		if (err == nil) != c.good {
			t.Errorf("%s %s %q: %v", c.path, c.kind, c.body, err)
		}
	}
}
