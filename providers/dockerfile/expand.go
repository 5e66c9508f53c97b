package dockerfile

import (
	"regexp"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/shell"
)

// scope is what $NAME and ${NAME} stand for: what ENV has set, and else ARG.
type scope struct {
	env, args, outer pairs // outer: ARG before FROM
	word, raw        *shell.Lex
	left             int // bytes that texts may still expand to
	nesting          int // what substitutions in each other may still cost
}

func newScope(env, args, outer pairs, escape rune) *scope {
	s := &scope{env: env, args: args, outer: outer, left: maxExpanded, nesting: maxNesting}
	s.word, s.raw = shell.NewLex(escape), shell.NewLex('\\')
	s.raw.SkipProcessQuotes = true
	return s
}

// set adds to the scope's environment or arguments, or to labels.
func (s *scope) set(i instruction, into pairs, name, value string) error {
	if !into.set(name, value) {
		return i.errorf("%s sets more than %d names, or more than %d KiB of names and values in all; "+
			"put longer values in a file", i.name, maxVariables, maxEnv>>10)
	}
	return nil
}

// arg carries out ARG. One without a value takes that of an ARG before FROM.
func (s *scope) arg(i instruction, c *instructions.ArgCommand) error {
	if err := c.Expand(func(text string) (string, error) { return s.expand(i, text) }); err != nil {
		return err
	}
	for _, a := range c.Args {
		value, given := s.outer.of[a.Key]
		if a.Value != nil {
			value, given = *a.Value, true
		}
		if !given {
			continue
		}
		if err := s.set(i, s.args, a.Key, value); err != nil {
			return err
		}
	}
	return nil
}

// modifier finds substitutions whose cost is a product: of patterns, and ${NAME:?text}, whose error may show a secret.
var modifier = regexp.MustCompile(`\$\{([\pL\pN_]+|.)?:?[#%/?]`)

// nested finds what may begin a substitution with another one in it. A brace that begins a line may follow a dollar.
var nested = regexp.MustCompile(`(?m)(\$|^)\{\w*([^\w}]|$)`)

// levels is at least how deep substitutions in a text nest.
func levels(text string) int { return len(nested.FindAllStringIndex(text, -1)) }

// expand replaces variables and takes quotes away.
func (s *scope) expand(i instruction, text string) (string, error) { return s.process(i, text, s.word) }

// expandRaw replaces variables in the content of a file.
func (s *scope) expandRaw(i instruction, text string) (string, error) {
	return s.process(i, text, s.raw)
}

// process bounds what a text reads of variables and what it becomes.
func (s *scope) process(i instruction, text string, lex *shell.Lex) (string, error) {
	if modifier.MatchString(text) {
		return "", i.errorf("a substitution with #, %%, / or ? is not supported; " +
			"use ${NAME}, ${NAME:-default} or ${NAME:+text}")
	}
	deep := levels(text)
	if deep > maxLevels {
		return "", i.errorf("a text of %s has more than %d substitutions", i.name, maxLevels)
	}
	read := &reader{scope: s, left: maxRead}
	out, _, err := lex.ProcessWord(text, read)
	s.nesting -= deep * (len(text) + maxRead - read.left)
	switch {
	case read.left < 0 || len(out) > maxValue:
		return "", i.errorf("a text of %s is longer than %d KiB after variable expansion; "+
			"shorten the variables, or send it as a file", i.name, maxValue>>10)
	case err != nil:
		return "", i.errorf("%v", err)
	}
	if s.nesting < 0 {
		return "", i.errorf("the substitutions of the Dockerfile take too long; nest them less")
	}
	if s.left -= len(out); s.left < 0 {
		return "", i.errorf("the Dockerfile is longer than %d MiB after variable expansion; use long variables less often",
			maxExpanded>>20)
	}
	return out, nil
}

// reader is the scope as one text reads it: until it has read too much.
type reader struct {
	scope *scope
	left  int
}

// Get implements shell.EnvGetter.
func (r *reader) Get(name string) (string, bool) {
	value, set := r.scope.env.of[name]
	if !set {
		value, set = r.scope.args.of[name]
	}
	if r.left -= len(value); r.left < 0 {
		return "", set
	}
	return value, set
}

// Keys implements shell.EnvGetter. No substitution lists names.
func (r *reader) Keys() []string { return nil }
