package problem

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/gofiber/fiber/v2"

	"sandyard/models"
)

// foreignID recognises the complaint about an id of a path whose form is wrong: nothing has such an id.
var foreignID = regexp.MustCompile(`^path\.(id|grant)$`)

// OfHuma is the problem, or the error that Of makes one of, that huma has found in a request.
func OfHuma(m *huma.ErrorModel) error {
	switch {
	case m.Status == fiber.StatusUnsupportedMediaType:
		return New(m.Status, "unsupported_media_type", "the body must be JSON; send Content-Type: application/json")
	case m.Status >= fiber.StatusInternalServerError:
		return errors.New(m.Detail)
	case len(m.Errors) == 0:
		return New(m.Status, "body_missing", "this request needs a JSON object as its body")
	}
	if slices.ContainsFunc(m.Errors, func(e *huma.ErrorDetail) bool { return foreignID.MatchString(e.Location) }) {
		return models.ErrNotFound
	}
	p := New(fiber.StatusUnprocessableEntity, "invalid_request", "")
	var parts []string
	for _, e := range m.Errors[:min(len(m.Errors), maxErrors)] {
		p.Errors = append(p.Errors, FieldError{e.Location, e.Message})
		parts = append(
			parts,
			strings.TrimSpace(clipped(e.Location, maxErrorLocation)+" "+clipped(e.Message, maxErrorMessage)),
		)
	}
	if more := len(m.Errors) - len(parts); more > 0 {
		parts = append(parts, fmt.Sprintf("and %d more errors", more))
	}
	p.Detail = "the request is not valid: " + strings.Join(parts, "; ")
	return p
}
