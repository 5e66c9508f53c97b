package dockerfile

import "strings"

// scope is what $NAME and ${NAME} stand for: what ENV has set, and else ARG.
type scope struct {
	env, args pairs
	left      int // bytes that texts may still expand to
}

func newScope(env, args pairs) *scope { return &scope{env, args, maxExpanded} }

func (s *scope) value(name string) string {
	if value, set := s.env.of[name]; set {
		return value
	}
	return s.args.of[name]
}

// set adds to the scope's environment or arguments, or to labels.
func (s *scope) set(i instruction, into pairs, name, value string) error {
	if !into.set(name, value) {
		return i.errorf("%s sets more than %d names, or more than %d KiB of names and values in all; put longer values in a file",
			i.name, maxVariables, maxEnv>>10)
	}
	return nil
}

// arg carries out ARG.
func (s *scope) arg(i instruction) error {
	name, text, _ := strings.Cut(i.rest, "=")
	value, err := s.expand(i, unquote(text))
	if err != nil {
		return err
	}
	return s.set(i, s.args, name, value)
}

// expand replaces $NAME, ${NAME} and ${NAME:-default}; \$ stays a dollar. It stops where the text becomes too long.
func (s *scope) expand(i instruction, text string) (string, error) {
	var out strings.Builder
	last := strings.LastIndexByte(text, '}')
	for at := 0; at < len(text); at++ {
		switch {
		case text[at] == '\\' && at+1 < len(text) && text[at+1] == '$':
			out.WriteByte('$')
			at++
		case text[at] == '$' && at+1 < len(text):
			value, n := s.at(text[at+1:], at < last)
			if out.Len()+len(value) > maxValue {
				return "", tooLong(i)
			}
			out.WriteString(value)
			at += n
		default:
			out.WriteByte(text[at])
		}
	}
	if out.Len() > maxValue {
		return "", tooLong(i)
	}
	if s.left -= out.Len(); s.left < 0 {
		return "", i.errorf("the Dockerfile is longer than %d MiB after variable expansion; use long variables less often", maxExpanded>>20)
	}
	return out.String(), nil
}

func tooLong(i instruction) error {
	return i.errorf("a text of %s is longer than %d KiB after variable expansion; shorten the variables, or send it as a file", i.name, maxValue>>10)
}

// at reads the variable behind a dollar and says how long its name is. Closed = a brace is closed somewhere behind it.
func (s *scope) at(text string, closed bool) (value string, n int) {
	if text[0] == '{' {
		if !closed {
			return "$", 0
		}
		end := strings.IndexByte(text, '}')
		name, def, has := strings.Cut(text[1:end], ":-")
		if value = s.value(name); has && value == "" {
			value = def
		}
		return value, end + 1
	}
	for n < len(text) && nameByte(text[n], n) {
		n++
	}
	if n == 0 {
		return "$", 0
	}
	return s.value(text[:n]), n
}

func nameByte(c byte, at int) bool {
	return c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || at > 0 && c >= '0' && c <= '9'
}
