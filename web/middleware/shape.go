package middleware

import (
	"fmt"

	"sandyard/web/problem"
)

// Bounds of a JSON body, whatever it says: every value costs memory and, where it is wrong, an error.
const (
	maxJSONValues = 20000
	maxJSONDepth  = 64
	maxJSONName   = 16 << 10
)

// checkShape refuses valid JSON with more values, levels or longer names than any request needs, before it is decoded.
func checkShape(body []byte) error {
	values, depth, name := 1, 0, 0
	for i := 0; i < len(body); i++ {
		switch body[i] {
		case '"':
			end := stringEnd(body, i)
			name = end - i
			i = end
		case ':':
			if name > maxJSONName {
				return problem.Invalid("body", fmt.Sprintf("has a name that is longer than %d bytes", maxJSONName))
			}
		case '{', '[':
			depth++
			values++
		case '}', ']':
			depth--
		case ',':
			values++
		}
		if values > maxJSONValues {
			return problem.Invalid("body", fmt.Sprintf("holds more than %d values; send it in several requests", maxJSONValues))
		}
		if depth > maxJSONDepth {
			return problem.Invalid("body", fmt.Sprintf("is nested deeper than %d levels", maxJSONDepth))
		}
	}
	return nil
}

// stringEnd returns where the string that begins at i ends: at its closing quotation mark.
func stringEnd(body []byte, i int) int {
	for i++; i < len(body) && body[i] != '"'; i++ {
		if body[i] == '\\' {
			i++
		}
	}
	return i
}
