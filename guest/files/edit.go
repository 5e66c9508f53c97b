package files

import (
	"bytes"
	"io"
	"io/fs"
	"os"
	"sync"

	"sandyard/guest/match"
	"sandyard/guest/protocol"
	"sandyard/guest/saferoot"
)

// rememberedEdits is how many of the last edits with a name are known again.
const rememberedEdits = 1000

// editor makes edits one after the other and knows the last ones again: whoever did not hear that his edit was made
// asks for it once more, and must not get it twice.
type editor struct {
	mu    sync.Mutex
	made  map[string]Edited // by name
	names []string          // oldest first
}

// Edited is a file after its edits.
type Edited struct {
	Entry
	Replaced []int // by each edit
}

// Edit makes all edits in a file or none, in one step; the file keeps its mode and metadata, but not its other names.
func (t *Tree) Edit(r protocol.EditRequest) (Edited, error) {
	t.editor.mu.Lock()
	defer t.editor.mu.Unlock()
	if edited, made := t.editor.made[r.Name]; made {
		return edited, nil
	}
	edited, err := inRoot(
		t,
		r.Path,
		true,
		func(root *saferoot.Root, p place) (Edited, error) { return editAt(root, p, r) },
	)
	if err == nil {
		t.editor.remember(r.Name, edited)
	}
	return edited, err
}

func (e *editor) remember(name string, edited Edited) {
	if name == "" {
		return
	}
	if e.made == nil {
		e.made = map[string]Edited{}
	}
	if len(e.names) == rememberedEdits {
		delete(e.made, e.names[0])
		e.names = e.names[1:]
	}
	e.made[name], e.names = edited, append(e.names, name)
}

func editAt(root *saferoot.Root, p place, r protocol.EditRequest) (Edited, error) {
	f, err := openRegular(root, p.rel, r.Path, match.MaxEdited)
	if err != nil {
		return Edited{}, err
	}
	defer f.Close()
	before, err := f.Stat()
	if err != nil {
		return Edited{}, err
	}
	content, err := io.ReadAll(io.LimitReader(f, match.MaxEdited+1))
	if err != nil {
		return Edited{}, err
	}
	edited, replaced, err := match.Replace(content, r.Edits, r.Path)
	if err != nil {
		return Edited{}, err
	}
	c := Content{
		Body: bytes.NewReader(edited), Size: int64(len(edited)), Mode: before.Mode().Perm(),
		Metadata: newDescriber().metadataOf(int(f.Fd())),
	}
	entry, err := exchange(
		root,
		p,
		protocol.TempReplace,
		c,
		func() error { return unchanged(root, p, before, int64(len(content))) },
	)
	return Edited{entry, replaced}, err
}

// unchanged refuses to replace what is not any more what was read.
func unchanged(root *saferoot.Root, p place, before fs.FileInfo, size int64) error {
	now, err := root.Lstat(p.rel)
	if err != nil {
		return err
	}
	if !os.SameFile(before, now) || now.Size() != size || !now.ModTime().Equal(before.ModTime()) {
		return protocol.Errorf(protocol.ReasonBusy, "path '%s' was changed while it was edited; read it and try again", p.abs)
	}
	return nil
}
