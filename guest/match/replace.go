package match

import (
	"bytes"
	"fmt"
	"strings"

	"sandyard/guest/protocol"
)

const (
	// MaxEdited is the largest file that edits are made in and the largest that may come of them, in bytes.
	MaxEdited = 16 << 20
	// toldLines is how many places of an ambiguous text are named.
	toldLines = 5
)

// Replace makes the edits in content, each in what the one before has left, and says how often each replaced. When one
// of them cannot be made as it was meant none is, and the error says which and why. Content stays as it is.
func Replace(content []byte, edits []protocol.Edit, path string) (edited []byte, replaced []int, err error) {
	for i, e := range edits {
		found := 0
		if len(e.Old) > 0 {
			found = bytes.Count(content, e.Old)
		}
		if err := check(content, e, found, fmt.Sprintf("edit %d of '%s'", i+1, path)); err != nil {
			return nil, nil, err
		}
		if size := len(content) + found*(len(e.New)-len(e.Old)); size > MaxEdited {
			return nil, nil, protocol.Errorf(
				protocol.ReasonTooLarge,
				"edit %d would make '%s' %d bytes large; the limit is %d",
				i+1,
				path,
				size,
				MaxEdited,
			)
		}
		content = bytes.ReplaceAll(content, e.Old, e.New)
		replaced = append(replaced, found)
	}
	return content, replaced, nil
}

func check(content []byte, e protocol.Edit, found int, which string) error {
	want := max(e.Count, 1)
	switch {
	case len(e.Old) == 0:
		return protocol.Errorf(protocol.ReasonInvalid, "%s: the text to replace is empty; write the file instead", which)
	case bytes.Equal(e.Old, e.New):
		return protocol.Errorf(protocol.ReasonInvalid, "%s: the text to replace and its replacement are the same", which)
	case found == 0:
		return protocol.Errorf(
			protocol.ReasonNoMatch,
			"%s: the text to replace does not occur%s; read the file and copy the text exactly",
			which,
			guess(content, e.Old),
		)
	case !e.All && found != want && e.Count == 0:
		return protocol.Errorf(
			protocol.ReasonAmbiguous,
			"%s: the text to replace occurs %d times (%s); include surrounding text to make it unique, or replace all",
			which,
			found,
			lines(content, e.Old),
		)
	case !e.All && found != want:
		return protocol.Errorf(
			protocol.ReasonAmbiguous,
			"%s: the text to replace occurs %d times (%s), not %d",
			which,
			found,
			lines(content, e.Old),
			want,
		)
	}
	return nil
}

// guess says in which way a text that does not occur nearly does.
func guess(content, old []byte) string {
	unix := func(b []byte) []byte { return bytes.ReplaceAll(b, []byte("\r\n"), []byte("\n")) }
	switch trimmed := bytes.TrimSpace(old); {
	case bytes.Contains(unix(content), unix(old)):
		return ", but would if its line ends (LF or CRLF) were the file's"
	case len(trimmed) > 0 && bytes.Contains(content, trimmed):
		return ", but does without the white space around it"
	}
	return ""
}

// lines names the lines on which the first occurrences begin.
func lines(content, old []byte) string {
	var told []string
	for line, at := 1, 0; ; {
		next := bytes.Index(content[at:], old)
		if next < 0 {
			return "line " + strings.Join(told, ", ")
		}
		if len(told) == toldLines {
			return "line " + strings.Join(told, ", ") + " and others"
		}
		line += bytes.Count(content[at:at+next], []byte("\n"))
		told = append(told, fmt.Sprint(line))
		at += next
		line += bytes.Count(old, []byte("\n"))
		at += len(old)
	}
}
