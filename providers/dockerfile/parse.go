package dockerfile

import (
	"errors"
	"fmt"
	"strings"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/parser"

	"sandyard/imageref"
)

// instruction is one of a Dockerfile. Of those that have no meaning to a sandbox there is no command.
type instruction struct {
	line    int
	name    string // in upper case
	text    string // all of it on one line, as it was written
	command any    // of BuildKit's package instructions
}

func (i instruction) errorf(format string, args ...any) error {
	return &Error{Line: i.line, Message: brief(fmt.Sprintf(format, args...))}
}

// document is a Dockerfile that has been parsed.
type document struct {
	list   []instruction
	escape rune
}

// parse reads a Dockerfile by BuildKit's parser. What it takes time or memory for, beyond the text's own size, is
// bounded first.
func parse(text string) (document, error) {
	if levels(text)*len(text) > maxNesting {
		return document{}, &Error{
			Message: "the Dockerfile has too many substitutions for its length; send long scripts as files",
		}
	}
	read, err := parser.Parse(strings.NewReader(text))
	if err != nil {
		return document{}, parseError(err)
	}
	d := document{escape: read.EscapeToken}
	for _, node := range read.AST.Children {
		i := instruction{line: node.StartLine, text: strings.TrimSpace(node.Original)}
		i.name = strings.ToUpper(node.Value[:min(len(node.Value), maxInstruction)])
		ignored, err := i.check(node)
		if err != nil {
			return document{}, err
		}
		node.PrevComment = nil // each would be compared with each argument
		if !ignored {
			if i.command, err = instructions.ParseInstruction(node); err != nil {
				return document{}, i.errorf("%v", err)
			}
		}
		d.list = append(d.list, i)
	}
	return d, nil
}

// parseError has the line that the parser stopped at.
func parseError(err error) error {
	found := &Error{Message: brief(err.Error())}
	var at *parser.LocationError
	if errors.As(err, &at) && len(at.Locations) > 0 && len(at.Locations[0]) > 0 {
		found.Line = at.Locations[0][0].Start.Line
	}
	return found
}

// check refuses an instruction that is empty or not supported, and options that are not. Ignored = it has no meaning to
// a sandbox, whose first process is its guest; the template says what starts and listens.
func (i instruction) check(node *parser.Node) (ignored bool, err error) {
	empty := node.Next == nil
	switch i.name {
	case "FROM":
		if len(node.Flags) > 0 {
			return false, i.errorf("FROM takes one image and no options")
		}
	case "RUN":
		if len(node.Flags) > 0 {
			return false, i.errorf("options of RUN, such as --mount, are not supported")
		}
	case "COPY", "ADD":
		for _, flag := range node.Flags {
			if name, _, _ := strings.Cut(flag, "="); name != "--chown" && name != "--chmod" {
				return false, i.errorf("%s is not supported", name)
			}
		}
	case "ENV", "LABEL", "ARG", "WORKDIR", "USER", "VOLUME", "SHELL":
	case "CMD", "ENTRYPOINT", "EXPOSE", "HEALTHCHECK", "STOPSIGNAL", "MAINTAINER":
		ignored = true
	default:
		return false, i.errorf("%s is not supported", i.name)
	}
	if empty {
		return false, i.errorf("%s is empty", i.name)
	}
	return ignored, nil
}

// base is the image of the one FROM, the arguments that stand before it, and the instructions behind it.
func (d document) base() (image string, args pairs, rest []instruction, err error) {
	args = newPairs(nil, newRoom())
	all := newScope(pairs{}, args, pairs{}, d.escape)
	for n, i := range d.list {
		switch c := i.command.(type) {
		case *instructions.ArgCommand:
			err = all.arg(i, c)
		case *instructions.Stage:
			if image, err = all.expand(i, c.BaseName); err == nil {
				err = checkImage(i, image)
			}
			return image, args, d.list[n+1:], err
		default:
			err = i.errorf("the first instruction must be FROM, not %s", i.name)
		}
		if err != nil {
			return "", args, nil, err
		}
	}
	return "", args, nil, &Error{Message: "the Dockerfile has no FROM"}
}

func checkImage(i instruction, image string) error {
	if image == "scratch" {
		return i.errorf("FROM scratch is not supported; use an image that the workers have")
	}
	if _, err := imageref.Parse(image); err != nil {
		return i.errorf("FROM: %v", err)
	}
	return nil
}
