package files

import (
	"errors"
	"io"
	"os"
)

// Compose writes the sources one behind the other into one file, which replaces what is at destination, and removes
// them. When it fails all of them are still there, and so is what was at destination.
func (t *Tree) Compose(sources []string, destination string) (Entry, error) {
	body := &chain{tree: t, rest: sources}
	e, err := t.Write(destination, Content{Body: body, Size: -1, Mode: 0o644})
	if err = errors.Join(err, body.close()); err != nil {
		return Entry{}, err
	}
	for _, source := range sources {
		if p, err := t.locate(source, true); err == nil && p.abs != e.Path {
			_ = t.Remove(p.abs) // it may have been named twice
		}
	}
	return e, nil
}

// chain reads files one behind the other, with one of them open.
type chain struct {
	tree *Tree
	rest []string
	file *os.File
}

func (c *chain) Read(p []byte) (int, error) {
	for {
		if c.file == nil {
			if len(c.rest) == 0 {
				return 0, io.EOF
			}
			f, err := c.tree.openServed(c.rest[0])
			if err != nil {
				return 0, err
			}
			c.file, c.rest = f, c.rest[1:]
		}
		n, err := c.file.Read(p)
		if n > 0 || !errors.Is(err, io.EOF) {
			return n, err
		}
		if err := c.close(); err != nil {
			return 0, err
		}
	}
}

func (c *chain) close() error {
	if c.file == nil {
		return nil
	}
	err := c.file.Close()
	c.file = nil
	return err
}
