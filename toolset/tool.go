// Package toolset has the tools for agents that work in one sandbox: their names, arguments, schemas and answers. What
// they do is up to a Box: a sandbox that is reached by jobs (web/mcp), or the one that the program itself runs in
// (toolset/inside).
package toolset

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// Tool is one tool. Call decodes its arguments.
type Tool struct {
	About *mcp.Tool
	Call  func(ctx context.Context, b Box, arguments json.RawMessage) (*Answer, error)
}

// Answer is what a tool returns: text for the model, the same as fields, and pictures.
type Answer struct {
	Text   string
	Fields any // a struct or a map
	Images []*mcp.ImageContent

	imageBytes int // of all pictures that were to be shown, as base64
}

// Hint is what clients are told of a tool's effects.
type Hint int

// The hints.
const (
	Reads   Hint = iota // it changes nothing
	Adds                // it changes something and destroys nothing
	Changes             // it may destroy something
)

// Error is a tool's error, which the model sees.
type Error struct {
	Code, Text string
}

func (e *Error) Error() string { return e.Code + ": " + e.Text }

// Reject is an error with a code.
func Reject(code, format string, args ...any) error {
	return &Error{code, fmt.Sprintf(format, args...)}
}

// Invalid is the error of an argument.
func Invalid(argument, format string, args ...any) error {
	return Reject("invalid_request", "%s %s", argument, fmt.Sprintf(format, args...))
}

// Describe is a tool as the library lists it, with the schema of arguments that are a T. Fields without omitempty are
// required.
func Describe[T any](name, about string, h Hint) *mcp.Tool {
	schema, err := jsonschema.For[T](nil)
	if err != nil {
		panic(fmt.Sprintf("tool %s: %v", name, err)) // of the type, whatever the input
	}
	destroys, open := h == Changes, h != Reads
	return &mcp.Tool{Name: name, Description: about, InputSchema: schema, Annotations: &mcp.ToolAnnotations{
		ReadOnlyHint: h == Reads, DestructiveHint: &destroys, OpenWorldHint: &open,
	}}
}

func define[T any](name, about string, h Hint, do func(context.Context, Box, *T) (*Answer, error)) Tool {
	t := Tool{About: Describe[T](name, about, h)}
	t.Call = func(ctx context.Context, b Box, given json.RawMessage) (*Answer, error) {
		args := new(T)
		if err := Read(t.About, given, args); err != nil {
			return nil, err
		}
		return do(ctx, b, args)
	}
	return t
}

// Read decodes the arguments of a tool. The error says what the tool takes.
func Read(t *mcp.Tool, given json.RawMessage, into any) error {
	schema, ok := t.InputSchema.(*jsonschema.Schema)
	if !ok {
		return fmt.Errorf("tool %s has no schema", t.Name)
	}
	var fields map[string]json.RawMessage
	if len(given) == 0 || string(given) == "null" { // how some clients write that there are none
		given = json.RawMessage("{}")
	}
	if json.Unmarshal(given, &fields) != nil {
		return Invalid("arguments", "must be a JSON object")
	}
	for field := range fields {
		if schema.Properties[field] == nil {
			return Invalid(
				field,
				"is not an argument of %s, which takes %s",
				t.Name,
				strings.Join(schema.PropertyOrder, ", "),
			)
		}
	}
	for _, field := range schema.Required {
		if value := string(fields[field]); value == "" || value == "null" {
			return Invalid(field, "is missing; %s requires %s", t.Name, strings.Join(schema.Required, ", "))
		}
	}
	err := json.Unmarshal(given, into)
	if mismatch, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return Invalid(mismatch.Field, "must be %s, not a JSON %s", kindOf(mismatch.Type), mismatch.Value)
	}
	return err
}

func kindOf(t reflect.Type) string {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch t.Kind() {
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	case reflect.Int, reflect.Int64:
		return "a whole number"
	case reflect.Float64:
		return "a number"
	default:
		return "of another type"
	}
}

// Result is what the client gets of an answer.
func (a *Answer) Result() *mcp.CallToolResult {
	res := &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: a.Text}}, StructuredContent: a.Fields}
	for _, image := range a.Images {
		res.Content = append(res.Content, image)
	}
	return res
}

// Set is tools under a name.
type Set struct {
	Name  string
	Tools []Tool
}

// Sets are all tools of this package.
func Sets() []Set {
	return []Set{{"files", fileTools()}, {"shell", shellTools()}, {"code", codeTools()}, {"network", networkTools()}}
}
