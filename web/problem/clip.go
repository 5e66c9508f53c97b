package problem

import "strings"

// Bounds of an error document, in bytes as JSON writes them.
const (
	maxErrors        = 20
	maxErrorLocation = 256
	maxErrorMessage  = 1 << 10
	maxErrorDetail   = 16 << 10
)

// Clip bounds a problem document to less than 64 KiB, whatever the request has put into its texts.
func (p *Problem) Clip() {
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

// WrittenSize is how many bytes encoding/json may take for a text.
func WrittenSize(text string) (size int) {
	for _, r := range text {
		size += writtenSize(r)
	}
	return size
}
