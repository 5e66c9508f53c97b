// Package match is what file tools do with names and bytes, apart from any file system: patterns of paths, lines that
// match, pieces that are replaced. All of it is linear in its input, whoever wrote the pattern.
package match

import (
	"path"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"sandyard/guest/protocol"
)

const (
	maxPattern      = 4 << 10 // bytes
	maxAlternatives = 64      // that the braces of one pattern stand for
)

// Pattern selects paths. "*" and "?" stand for any text and any character of one name, "[a-z]" and "[!a-z]" for
// characters, "{a,b}" for alternatives, "**" as a whole name for any number of directories; a backslash takes the
// meaning from what follows it.
type Pattern struct {
	ways [][]segment
}

// segment is one name of a pattern.
type segment struct {
	any    bool // "**"
	hidden bool // it begins with a dot, so that it selects names that do
	re     *regexp.Regexp
}

// State is how far a path has come in a pattern: where it stands in which of the alternatives.
type State []position

type position struct{ way, next int }

// Compile reads a pattern whose paths are relative.
func Compile(glob string) (*Pattern, error) {
	switch {
	case glob == "":
		return nil, badPattern(glob, "it is empty")
	case len(glob) > maxPattern:
		return nil, protocol.Errorf(protocol.ReasonInvalid, "the pattern is longer than %d bytes", maxPattern)
	}
	alternatives, err := expand(glob)
	if err != nil {
		return nil, err
	}
	p := &Pattern{}
	for _, a := range alternatives {
		way, err := segments(a)
		if err != nil {
			return nil, err
		}
		p.ways = append(p.ways, way)
	}
	return p, nil
}

func badPattern(glob, why string) error {
	return protocol.Errorf(protocol.ReasonInvalid, "the pattern '%.100s' cannot be read: %s", glob, why)
}

// Split takes the directories off a pattern's beginning that it names without a choice.
func Split(glob string) (base, rest string) {
	rest = glob
	if strings.HasPrefix(rest, "/") {
		base, rest = "/", strings.TrimLeft(rest, "/")
	}
	for {
		name, after, more := strings.Cut(rest, "/")
		if !more || strings.ContainsAny(name, `*?[{\`) || after == "" {
			return base, rest
		}
		base, rest = path.Join(base, name), strings.TrimLeft(after, "/")
		if base == "." {
			base = ""
		}
	}
}

// expand writes a pattern with braces as several without.
func expand(glob string) ([]string, error) {
	open, end, commas := braces(glob)
	switch {
	case open < 0:
		return []string{glob}, nil
	case end < 0:
		return nil, badPattern(glob, "a brace is not closed")
	}
	var all []string
	from := open + 1
	for _, to := range append(commas, end) {
		some, err := expand(glob[:open] + glob[from:to] + glob[end+1:])
		if err != nil {
			return nil, err
		}
		if all = append(all, some...); len(all) > maxAlternatives {
			return nil, badPattern(glob, "its braces expand to too many alternatives")
		}
		from = to + 1
	}
	return all, nil
}

// braces finds the first pair of braces and the commas in it that belong to it.
func braces(glob string) (open, end int, commas []int) {
	open, depth := -1, 0
	for i := 0; i < len(glob); i++ {
		switch glob[i] {
		case '\\':
			i++
		case '{':
			if depth++; depth == 1 {
				open = i
			}
		case ',':
			if depth == 1 {
				commas = append(commas, i)
			}
		case '}':
			if depth == 0 {
				continue
			}
			if depth--; depth == 0 {
				return open, i, commas
			}
		}
	}
	return open, -1, nil
}

func segments(glob string) ([]segment, error) {
	var way []segment
	for name := range strings.SplitSeq(glob, "/") {
		switch name {
		case "", ".":
			continue
		case "..":
			return nil, badPattern(glob, "'..' is allowed only at its beginning")
		case "**":
			if n := len(way); n == 0 || !way[n-1].any { // several in a row mean one, and cost as many times as much
				way = append(way, segment{any: true})
			}
			continue
		}
		re, err := nameExpression(name)
		if err != nil {
			return nil, badPattern(glob, err.Error())
		}
		way = append(way, segment{hidden: name[0] == '.' || strings.HasPrefix(name, `\.`), re: re})
	}
	if n := len(way); n == 0 {
		return nil, badPattern(glob, "it matches nothing")
	} else if way[n-1].any { // all that is below, not the directory itself
		way = append(way, segment{re: regexp.MustCompile("")})
	}
	return way, nil
}

// nameExpression translates the pattern of one name.
func nameExpression(name string) (*regexp.Regexp, error) {
	var out strings.Builder
	out.WriteString("(?s)^(?:")
	for rest := name; rest != ""; {
		c, size := utf8.DecodeRuneInString(rest)
		literal := rest[:size]
		rest = rest[size:]
		switch c {
		case '*':
			out.WriteString(".*")
			continue
		case '?':
			out.WriteByte('.')
			continue
		case '[':
			expression, after := class(rest)
			out.WriteString(expression)
			rest = after
			continue
		case '\\':
			if _, size := utf8.DecodeRuneInString(rest); size > 0 {
				literal, rest = rest[:size], rest[size:]
			}
		}
		out.WriteString(regexp.QuoteMeta(literal))
	}
	out.WriteString(")$")
	return regexp.Compile(out.String())
}

// class translates what follows a bracket; a bracket that nothing closes stands for itself.
func class(rest string) (expression, after string) {
	body := rest
	not := ""
	if strings.HasPrefix(body, "!") || strings.HasPrefix(body, "^") {
		not, body = "^", body[1:]
	}
	end := strings.IndexByte(body[min(1, len(body)):], ']') + 1
	if end < 1 || body == "" {
		return `\[`, rest
	}
	members := strings.NewReplacer(`\`, `\\`, `[`, `\[`, `]`, `\]`, `^`, `\^`, `&`, `\&`, `~`, `\~`).Replace(body[:end])
	return "[" + not + members + "]", body[end+1:]
}

// Start is the state of the directory that paths are relative to.
func (p *Pattern) Start() State {
	var s State
	for way := range p.ways {
		s = append(s, position{way, 0})
	}
	return s
}

// Step adds a name to a path: whether the path is selected now, and with which state what lies below it goes on; an
// empty one selects nothing there. Names that begin with a dot are only selected by name, unless hidden is set.
func (p *Pattern) Step(s State, name string, hidden bool) (selected bool, below State) {
	dotted := strings.HasPrefix(name, ".") && !hidden
	add := func(at position) {
		if at.next == len(p.ways[at.way]) {
			selected = true
		} else if !slices.Contains(below, at) {
			below = append(below, at)
		}
	}
	for _, at := range s {
		way := p.ways[at.way]
		for next := at.next; next < len(way); next++ {
			if way[next].any {
				if !dotted {
					add(position{at.way, next})
				}
				continue // it may also stand for no directory
			}
			if (!dotted || way[next].hidden) && way[next].re.MatchString(name) {
				add(position{at.way, next + 1})
			}
			break
		}
	}
	return selected, below
}

// Selects says whether a relative path is selected, for those that have the whole path.
func (p *Pattern) Selects(relative string, hidden bool) bool {
	selected, s := false, p.Start()
	for name := range strings.SplitSeq(relative, "/") {
		if selected, s = p.Step(s, name, hidden); len(s) == 0 && !selected {
			return false
		}
	}
	return selected
}
