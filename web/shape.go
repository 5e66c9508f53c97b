package web

import (
	"fmt"
	"strings"
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
				return invalidAt("body", fmt.Sprintf("has a name that is longer than %d bytes", maxJSONName))
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
			return invalidAt("body", fmt.Sprintf("holds more than %d values; send it in several requests", maxJSONValues))
		}
		if depth > maxJSONDepth {
			return invalidAt("body", fmt.Sprintf("is nested deeper than %d levels", maxJSONDepth))
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

// Bounds of an error document, in bytes as JSON writes them.
const (
	maxErrors        = 20
	maxErrorLocation = 256
	maxErrorMessage  = 1 << 10
	maxErrorDetail   = 16 << 10
)

// clip bounds a problem document to less than 64 KiB, whatever the request has put into its texts.
func (p *Problem) clip() {
	p.Detail = clipped(p.Detail, maxErrorDetail)
	p.Errors = p.Errors[:min(len(p.Errors), maxErrors)]
	for i, e := range p.Errors {
		p.Errors[i] = FieldError{clipped(e.Location, maxErrorLocation), clipped(e.Message, maxErrorMessage)}
	}
}

// clipped cuts text that takes more than most bytes in JSON.
func clipped(text string, most int) string {
	const mark = " …"
	taken, keep := 0, 0
	for i, r := range text {
		if taken+len(mark) <= most {
			keep = i
		}
		if taken += writtenSize(r); taken > most {
			return strings.ToValidUTF8(text[:keep], "\uFFFD") + mark
		}
	}
	return text
}

// writtenSize is how many bytes encoding/json may take for a character.
func writtenSize(r rune) int {
	if r < ' ' || strings.ContainsRune("\"\\<>&\u007f\u2028\u2029\uFFFD", r) {
		return 6
	}
	return len(string(r))
}

// writtenText is how many bytes encoding/json may take for a text.
func writtenText(text string) (size int) {
	for _, r := range text {
		size += writtenSize(r)
	}
	return size
}
