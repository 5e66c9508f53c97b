// Package emulated offers providers.FileTools for every sandbox: its own where it has them, else made of the file
// calls that all have, which takes a round trip per directory and file.
package emulated

import (
	"context"
	"errors"

	"sandyard/guest/protocol"
	"sandyard/providers"
)

// maxFile is the largest file that is searched or edited, in bytes.
const maxFile = 16 << 20

// Tools returns the file tools of a sandbox.
func Tools(sb providers.Sandbox) providers.FileTools {
	if own, ok := sb.(providers.FileTools); ok {
		return own
	}
	return tools{sb}
}

type tools struct {
	files providers.Files
}

// WriteFiles implements providers.FileTools.
func (t tools) WriteFiles(ctx context.Context, files []providers.FileWrite) ([]providers.FileOutcome, error) {
	outcomes := make([]providers.FileOutcome, len(files))
	for i, f := range files {
		info, err := t.files.WriteFile(ctx, f.Path, f.Data, f.Mode)
		if outcomes[i].Err, err = ofFile(err); err != nil {
			return nil, err
		}
		outcomes[i].File = info
	}
	return outcomes, nil
}

// ReadFiles implements providers.FileTools.
func (t tools) ReadFiles(ctx context.Context, paths []string, limit int64) ([]providers.FileOutcome, error) {
	outcomes := make([]providers.FileOutcome, len(paths))
	for i, path := range paths {
		data, err := t.files.ReadFile(ctx, path, limit)
		if outcomes[i].Err, err = ofFile(err); err != nil {
			return nil, err
		}
		outcomes[i].Data = data
		limit -= int64(len(data))
	}
	return outcomes, nil
}

// ofFile tells an error of one file from one of the sandbox, which ends the call.
func ofFile(err error) (file *providers.Error, call error) {
	if err == nil {
		return nil, nil
	}
	known := providers.AsError(err)
	switch known.Class {
	case providers.FileNotFound, providers.NotAFile, providers.NotADir, providers.FileExists, providers.FileDenied,
		providers.InvalidPath, providers.NoSpace, providers.TooLarge, providers.Invalid:
		return known, nil
	}
	return nil, err
}

// translated gives what package match refuses the class of a provider's errors.
func translated(err error) error {
	refused, ok := errors.AsType[*protocol.Error](err)
	if !ok {
		return err
	}
	class, known := map[string]providers.Class{
		protocol.ReasonInvalid: providers.Invalid, protocol.ReasonNoMatch: providers.NoMatch,
		protocol.ReasonAmbiguous: providers.Ambiguous, protocol.ReasonTooLarge: providers.TooLarge,
	}[refused.Reason]
	if !known {
		class = providers.Internal
	}
	return &providers.Error{Class: class, Message: refused.Message}
}
