package emulated

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"strconv"

	"sandyard/guest/match"
	"sandyard/guest/protocol"
	"sandyard/providers"
)

// intentions is where an edit is noted before it is made, by its name: whoever finds his own note and another content
// than the one he meant to edit has made it already.
const intentions = "/tmp/.sandyard-edit-"

type intention struct {
	Before   [sha256.Size]byte `json:"before"`
	Replaced []int             `json:"replaced"`
}

// Edit implements providers.FileTools.
func (t tools) Edit(ctx context.Context, e providers.Edit) (providers.Edited, error) {
	noted, err := t.noted(ctx, e.Name)
	if err != nil {
		return providers.Edited{}, err
	}
	content, err := t.files.ReadFile(ctx, e.Path, maxFile)
	if err != nil {
		return providers.Edited{}, err
	}
	info, err := t.files.Stat(ctx, e.Path)
	if err != nil {
		return providers.Edited{}, err
	}
	before := sha256.Sum256(content)
	if noted != nil && noted.Before != before {
		return providers.Edited{File: info, Replaced: noted.Replaced}, nil
	}
	edits := make([]protocol.Edit, len(e.Edits))
	for i, r := range e.Edits {
		edits[i] = protocol.Edit(r)
	}
	edited, replaced, err := match.Replace(content, edits, e.Path)
	if err != nil {
		return providers.Edited{}, translated(err)
	}
	if err := t.note(ctx, e.Name, intention{before, replaced}); err != nil {
		return providers.Edited{}, err
	}
	if !bytes.Equal(edited, content) {
		info, err = t.files.WriteFile(ctx, e.Path, edited, permissions(info))
	}
	return providers.Edited{File: info, Replaced: replaced}, err
}

func (t tools) noted(ctx context.Context, name string) (*intention, error) {
	if name == "" {
		return nil, nil
	}
	raw, err := t.files.ReadFile(ctx, intentions+name, 64<<10)
	if errors.Is(err, providers.ErrFileNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var i intention
	if json.Unmarshal(raw, &i) != nil {
		return nil, nil // not ours
	}
	return &i, nil
}

func (t tools) note(ctx context.Context, name string, i intention) error {
	if name == "" {
		return nil
	}
	raw, err := json.Marshal(i)
	if err != nil {
		return err
	}
	_, err = t.files.WriteFile(ctx, intentions+name, raw, 0o600)
	return err
}

func permissions(info providers.FileInfo) uint32 {
	mode, err := strconv.ParseUint(info.Mode, 8, 32)
	if err != nil {
		return 0
	}
	return uint32(mode)
}
