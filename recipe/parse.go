package recipe

import (
	"encoding/json"
	"fmt"
	"strings"
)

// instruction is one of a Dockerfile.
type instruction struct {
	line int
	name string // in upper case
	rest string
}

func (i instruction) String() string { return i.name + " " + i.rest }

func (i instruction) errorf(format string, args ...any) error {
	return &Error{Line: i.line, Message: fmt.Sprintf(format, args...)}
}

// parse splits a Dockerfile into instructions: comments go, continued lines are joined.
func parse(text string) ([]instruction, error) {
	var list []instruction
	var open *instruction
	for n, line := range strings.Split(strings.ReplaceAll(text, "\r\n", "\n"), "\n") {
		trimmed := strings.TrimSpace(line)
		if strings.HasPrefix(trimmed, "#") || open == nil && trimmed == "" {
			continue
		}
		more := strings.HasSuffix(trimmed, "\\")
		trimmed = strings.TrimSuffix(trimmed, "\\")
		if open == nil {
			name, rest, _ := strings.Cut(trimmed, " ")
			list = append(list, instruction{n + 1, strings.ToUpper(name), strings.TrimSpace(rest)})
			open = &list[len(list)-1]
		} else {
			open.rest = strings.TrimSpace(open.rest + " " + trimmed)
		}
		if !more {
			open = nil
		}
	}
	if len(list) == 0 {
		return nil, &Error{Message: "the Dockerfile is empty"}
	}
	return list, nil
}

// base is the image of the one FROM; what stands before it may only be ARG.
func base(list []instruction) (string, error) {
	args := variables{}
	for _, i := range list {
		switch i.name {
		case "ARG":
			name, value, _ := strings.Cut(i.rest, "=")
			args[name] = args.expand(unquote(value))
		case "FROM":
			words := strings.Fields(args.expand(i.rest))
			switch {
			case len(words) == 3 && strings.EqualFold(words[1], "AS"):
			case len(words) != 1:
				return "", i.errorf("FROM takes one image and no options")
			}
			if words[0] == "scratch" {
				return "", i.errorf("FROM scratch leaves nothing to run in; stand on an image that the workers hold")
			}
			return words[0], nil
		default:
			return "", i.errorf("the first instruction must be FROM, not %s", i.name)
		}
	}
	return "", &Error{Message: "the Dockerfile has no FROM"}
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

// variables are what $NAME and ${NAME} stand for.
type variables map[string]string

// expand replaces $NAME, ${NAME} and ${NAME:-default}; \$ stays a dollar.
func (v variables) expand(s string) string {
	var out strings.Builder
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] == '\\' && i+1 < len(s) && s[i+1] == '$':
			out.WriteByte('$')
			i++
		case s[i] == '$' && i+1 < len(s):
			value, n := v.at(s[i+1:])
			out.WriteString(value)
			i += n
		default:
			out.WriteByte(s[i])
		}
	}
	return out.String()
}

// at reads the variable behind a dollar and says how long its name is.
func (v variables) at(s string) (value string, n int) {
	if s[0] == '{' {
		end := strings.IndexByte(s, '}')
		if end < 0 {
			return "$", 0
		}
		name, def, has := strings.Cut(s[1:end], ":-")
		if has && v[name] == "" {
			return def, end + 1
		}
		return v[name], end + 1
	}
	for n < len(s) && (s[n] == '_' || s[n] >= 'a' && s[n] <= 'z' || s[n] >= 'A' && s[n] <= 'Z' || n > 0 && s[n] >= '0' && s[n] <= '9') {
		n++
	}
	if n == 0 {
		return "$", 0
	}
	return v[s[:n]], n
}
