package middleware

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"strings"

	"sandyard/web/problem"
)

// Decode reads a body into a struct. Fields with the tag required:"true" must be there and not be null; fields that the
// struct does not have are ignored. The error says of each field what is wrong.
func Decode(body []byte, into any) error {
	if len(body) == 0 {
		body = []byte("{}")
	}
	if err := CheckJSON(body); err != nil {
		return err
	}
	var given map[string]json.RawMessage
	if err := json.Unmarshal(body, &given); err != nil || given == nil {
		return problem.Invalid("body", "must be a JSON object")
	}
	if err := missing(given, reflect.TypeOf(into).Elem()); err != nil {
		return err
	}
	err := json.Unmarshal(body, into)
	if mismatch, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return problem.Invalid(
			"body."+mismatch.Field,
			fmt.Sprintf("must be %s, not a JSON %s", kindOf(mismatch.Type), mismatch.Value),
		)
	}
	return err
}

func missing(given map[string]json.RawMessage, t reflect.Type) error {
	var wrong []problem.FieldError
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if value := string(given[name]); f.Tag.Get("required") == "true" && (value == "" || value == "null") {
			wrong = append(wrong, problem.FieldError{Location: "body." + name, Message: "is missing"})
		}
	}
	if len(wrong) == 0 {
		return nil
	}
	names := make([]string, len(wrong))
	for i, w := range wrong {
		names[i] = w.Location
	}
	p := problem.New(
		http.StatusUnprocessableEntity,
		"invalid_request",
		"the request lacks "+strings.Join(names, ", ")+"; add what is missing",
	)
	p.Errors = wrong
	return p
}

// kindOf says in JSON's words what a field takes.
func kindOf(t reflect.Type) string {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch t.Kind() {
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	case reflect.Int, reflect.Int64, reflect.Uint16:
		return "a whole number"
	case reflect.Float64:
		return "a number"
	default:
		return "of another type"
	}
}
