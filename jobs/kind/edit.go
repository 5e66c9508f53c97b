package kind

import (
	"sandyard/providers"
)

// Bounds of one edit.
const (
	maxEdits     = 100
	maxEditBytes = 4 << 20
)

// Edit replaces pieces of one file, all of them or none.
type Edit struct {
	Path  string        `json:"path"`
	Edits []Replacement `json:"edits" minItems:"1" maxItems:"100" doc:"Applied in order, each to the result of the one before. If one fails, the file stays unchanged"`

	pieces [][]byte // old and new of each edit, when they are not written in Edits any more
}

// Replacement is one change of an edit.
type Replacement struct {
	OldString  string `json:"old_string,omitempty" doc:"The text to replace, exactly as in the file"`
	NewString  string `json:"new_string,omitempty" doc:"The replacement; default empty"`
	Encoding   string `json:"encoding,omitempty" enum:"utf-8,base64" doc:"Encoding of both strings; default utf-8"`
	Count      int    `json:"count,omitempty" minimum:"0" doc:"Number of times that old_string must occur; default 1. No match is the error text_not_found, another number text_ambiguous"`
	ReplaceAll bool   `json:"replace_all,omitempty" doc:"Replace all matches (at least one); excludes count"`
}

// EditResult is the file after its edits.
type EditResult struct {
	File     providers.FileInfo `json:"file"`
	Replaced []int              `json:"replaced" doc:"Number of replacements per edit"`
}

// Kind implements Args.
func (e *Edit) Kind() string { return "edit" }

// Validate implements Args.
func (e *Edit) Validate() error {
	if len(e.Edits) == 0 || len(e.Edits) > maxEdits {
		return Invalid("edits", "must have 1 to %d entries, not %d", maxEdits, len(e.Edits))
	}
	pieces, err := e.Bytes()
	if err != nil {
		return err
	}
	size := 0
	for i, r := range e.Edits {
		size += len(pieces[2*i]) + len(pieces[2*i+1])
		switch {
		case len(pieces[2*i]) == 0:
			return Invalid("edits.old_string", "is empty; use write to create or fill a file")
		case r.Count < 0 || r.ReplaceAll && r.Count > 0:
			return Invalid("edits.count", "must be positive, and cannot be combined with replace_all")
		}
	}
	if size > maxEditBytes {
		return Invalid("edits", "hold %d bytes; the limit is %d; write the file instead", size, maxEditBytes)
	}
	return checkPath("path", e.Path)
}

// Bytes are the old and the new text of each edit.
func (e *Edit) Bytes() ([][]byte, error) {
	if e.pieces != nil {
		return e.pieces, nil
	}
	var pieces [][]byte
	for _, r := range e.Edits {
		before, err := decode("edits.old_string", r.OldString, r.Encoding)
		if err != nil {
			return nil, err
		}
		after, err := decode("edits.new_string", r.NewString, r.Encoding)
		if err != nil {
			return nil, err
		}
		pieces = append(pieces, before, after)
	}
	return pieces, nil
}

// TakeBlob implements Blobs.
func (e *Edit) TakeBlob() ([]byte, error) {
	pieces, err := e.Bytes()
	for i := range e.Edits {
		e.Edits[i].OldString, e.Edits[i].NewString, e.Edits[i].Encoding = "", "", ""
	}
	return pack(pieces), err
}

func (e *Edit) setBlob(b []byte) { e.pieces = unpack(b, 2*len(e.Edits)) }
