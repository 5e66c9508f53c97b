package dockerfile

import (
	"encoding/json"
	"fmt"
	"strings"

	"sandyard/imageref"
)

// instruction is one of a Dockerfile.
type instruction struct {
	line int
	name string // in upper case
	rest string
}

func (i instruction) String() string { return i.name + " " + i.rest }

func (i instruction) errorf(format string, args ...any) error {
	return &Error{Line: i.line, Message: brief(fmt.Sprintf(format, args...))}
}

// parse splits a Dockerfile into instructions: comments go, continued lines are joined.
func parse(text string) ([]instruction, error) {
	var list []instruction
	var parts []string // of the last instruction, while it goes on
	n, open := 0, false
	for line := range strings.SplitSeq(text, "\n") {
		n++
		trimmed := strings.TrimSpace(line)
		if strings.HasPrefix(trimmed, "#") || !open && trimmed == "" {
			continue
		}
		more := strings.HasSuffix(trimmed, "\\")
		trimmed = strings.TrimSuffix(trimmed, "\\")
		if !open {
			name, rest, _ := strings.Cut(trimmed, " ")
			list = append(list, instruction{line: n, name: strings.ToUpper(name[:min(len(name), maxInstruction)])})
			trimmed = rest
		}
		if part := strings.TrimSpace(trimmed); part != "" {
			parts = append(parts, part)
		}
		if open = more; !open {
			list[len(list)-1].rest, parts = strings.Join(parts, " "), parts[:0]
		}
	}
	if len(list) == 0 {
		return nil, &Error{Message: "the Dockerfile is empty"}
	}
	if open {
		list[len(list)-1].rest = strings.Join(parts, " ")
	}
	return list, nil
}

// base is the image of the one FROM; what stands before it may only be ARG.
func base(list []instruction) (string, error) {
	args := newPairs(nil, newRoom())
	all := newScope(pairs{}, args)
	for _, i := range list {
		switch i.name {
		case "ARG":
			if err := all.arg(i); err != nil {
				return "", err
			}
		case "FROM":
			text, err := all.expand(i, i.rest)
			if err != nil {
				return "", err
			}
			return image(i, strings.Fields(text))
		default:
			return "", i.errorf("the first instruction must be FROM, not %s", i.name)
		}
	}
	return "", &Error{Message: "the Dockerfile has no FROM"}
}

func image(i instruction, words []string) (string, error) {
	switch {
	case len(words) == 3 && strings.EqualFold(words[1], "AS"):
	case len(words) != 1:
		return "", i.errorf("FROM takes one image and no options")
	}
	if words[0] == "scratch" {
		return "", i.errorf("FROM scratch is not supported; use an image that the workers have")
	}
	if _, err := imageref.Parse(words[0]); err != nil {
		return "", i.errorf("FROM: %v", err)
	}
	return words[0], nil
}

// argv reads the two forms of a command: a JSON list, or a line for the shell.
func (i instruction) argv(shell []string) []string {
	var list []string
	if strings.HasPrefix(i.rest, "[") && json.Unmarshal([]byte(i.rest), &list) == nil {
		return list
	}
	return append(append([]string{}, shell...), i.rest)
}

// words splits at blanks outside quotes, which go; or reads a JSON list.
func (i instruction) words() ([]string, error) {
	var list []string
	if strings.HasPrefix(i.rest, "[") && json.Unmarshal([]byte(i.rest), &list) == nil {
		return list, nil
	}
	var word strings.Builder
	var quote rune
	inside, escaped := false, false
	for _, c := range i.rest {
		switch {
		case escaped:
			word.WriteRune(c)
			escaped = false
		case c == '\\' && quote != '\'':
			escaped, inside = true, true
		case quote != 0 && c == quote:
			quote = 0
		case quote == 0 && (c == '"' || c == '\''):
			quote, inside = c, true
		case quote == 0 && (c == ' ' || c == '\t'):
			if inside {
				list = append(list, word.String())
			}
			word.Reset()
			inside = false
		default:
			word.WriteRune(c)
			inside = true
		}
	}
	if quote != 0 {
		return nil, i.errorf("a quote is not closed")
	}
	if inside {
		list = append(list, word.String())
	}
	return list, nil
}

func unquote(s string) string {
	if len(s) >= 2 && (s[0] == '"' || s[0] == '\'') && s[len(s)-1] == s[0] {
		return s[1 : len(s)-1]
	}
	return s
}
