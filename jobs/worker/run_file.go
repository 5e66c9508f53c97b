package worker

import (
	"cmp"
	"context"
	"errors"

	"sandyard/jobs/kind"
	"sandyard/models"
	"sandyard/providers"
	"sandyard/providers/emulated"
)

func runWriteMany(ctx context.Context, a *attempt, w *kind.WriteMany) (result, error) {
	pieces, err := w.Bytes()
	if err != nil {
		return result{}, err
	}
	files := make([]providers.FileWrite, len(w.Files))
	for i, f := range w.Files {
		mode, err := kind.ParseMode(f.Mode)
		if err != nil {
			return result{}, err
		}
		files[i] = providers.FileWrite{Path: f.Path, Data: pieces[i], Mode: mode}
	}
	return a.tools(ctx, func(t providers.FileTools) (any, error) {
		outcomes, err := t.WriteFiles(ctx, files)
		if err != nil {
			return nil, err
		}
		var res kind.WriteManyResult
		for i, o := range outcomes {
			written := kind.WrittenFile{Path: files[i].Path, Error: fileError(o.Err)}
			if o.Err == nil {
				written.File = &o.File
			} else {
				res.Failed++
			}
			res.Files = append(res.Files, written)
		}
		return res, nil
	})
}

// runReadMany leaves the bytes of the files to the job's content, one file behind the other.
func runReadMany(ctx context.Context, a *attempt, r *kind.ReadMany) (result, error) {
	sb, err := a.open(ctx)
	if err != nil {
		return result{}, err
	}
	outcomes, err := emulated.Tools(sb).ReadFiles(ctx, r.Paths, kind.MaxRead)
	if err != nil {
		return result{}, err
	}
	var res kind.ReadManyResult
	var content []byte
	for i, o := range outcomes {
		read := kind.ReadFile{Path: r.Paths[i], Size: len(o.Data), Error: fileError(o.Err)}
		if o.Err != nil {
			res.Failed++
		}
		res.Files, content = append(res.Files, read), append(content, o.Data...)
	}
	return result{value: res, content: content}, nil
}

func fileError(err *providers.Error) *models.JobError {
	if err == nil {
		return nil
	}
	return &models.JobError{Code: string(err.Class), Message: err.Message, Retryable: err.Retryable()}
}

// runEdit names the edit after its job, so that another attempt does not make it twice.
func runEdit(ctx context.Context, a *attempt, e *kind.Edit) (result, error) {
	pieces, err := e.Bytes()
	if err != nil {
		return result{}, err
	}
	wish := providers.Edit{Name: a.job.ID, Path: e.Path}
	for i, r := range e.Edits {
		wish.Edits = append(
			wish.Edits,
			providers.Replacement{Old: pieces[2*i], New: pieces[2*i+1], Count: r.Count, All: r.ReplaceAll},
		)
	}
	return a.tools(ctx, func(t providers.FileTools) (any, error) {
		edited, err := t.Edit(ctx, wish)
		return kind.EditResult(edited), err
	})
}

func runWrite(ctx context.Context, a *attempt, w *kind.Write) (result, error) {
	mode, err := kind.ParseMode(w.Mode)
	if err != nil {
		return result{}, err
	}
	return a.file(ctx, func(f providers.Files) (any, error) { return f.WriteFile(ctx, w.Path, w.Bytes(), mode) })
}

func runRead(ctx context.Context, a *attempt, r *kind.Read) (result, error) {
	sb, err := a.open(ctx)
	if err != nil {
		return result{}, err
	}
	b, err := sb.ReadFile(ctx, r.Path, kind.MaxRead)
	return result{value: kind.ReadResult{Path: r.Path, Size: len(b)}, content: b}, err
}

func runList(ctx context.Context, a *attempt, l *kind.List) (result, error) {
	return a.file(ctx, func(f providers.Files) (any, error) {
		entries, err := f.ListDir(ctx, cmp.Or(l.Path, "."), max(1, l.Depth))
		if entries == nil {
			entries = []providers.FileInfo{}
		}
		return kind.ListResult{Entries: entries}, err
	})
}

func runStat(ctx context.Context, a *attempt, s *kind.Stat) (result, error) {
	return a.file(ctx, func(f providers.Files) (any, error) { return f.Stat(ctx, s.Path) })
}

func runMakeDir(ctx context.Context, a *attempt, m *kind.MakeDir) (result, error) {
	return a.file(ctx, func(f providers.Files) (any, error) { return f.MakeDir(ctx, m.Path) })
}

func runMove(ctx context.Context, a *attempt, m *kind.Move) (result, error) {
	return a.file(ctx, func(f providers.Files) (any, error) {
		info, err := f.Move(ctx, m.From, m.To)
		if a.mayHaveDone(err) {
			if there, lost := f.Stat(ctx, m.To); lost == nil {
				return there, nil
			}
		}
		return info, err
	})
}

// mayHaveDone says whether a file is only missing because an earlier attempt, which was not answered, took it away.
func (a *attempt) mayHaveDone(err error) bool {
	return a.job.Attempt > 1 && errors.Is(err, providers.ErrFileNotFound)
}

func runRemove(ctx context.Context, a *attempt, r *kind.Remove) (result, error) {
	return a.file(ctx, func(f providers.Files) (any, error) {
		err := f.Remove(ctx, r.Path)
		if a.mayHaveDone(err) {
			return nil, nil
		}
		return nil, err
	})
}

// tools runs f with the sandbox's file tools; what f returns becomes the job's result.
func (a *attempt) tools(ctx context.Context, f func(providers.FileTools) (any, error)) (result, error) {
	sb, err := a.open(ctx)
	if err != nil {
		return result{}, err
	}
	v, err := f(emulated.Tools(sb))
	return result{value: v}, err
}

func runGlob(ctx context.Context, a *attempt, g *kind.Glob) (result, error) {
	return a.tools(ctx, func(t providers.FileTools) (any, error) {
		found, err := t.Glob(ctx, g.Query())
		if found.Entries == nil {
			found.Entries = []providers.FileInfo{}
		}
		return kind.GlobResult(found), err
	})
}

func runGrep(ctx context.Context, a *attempt, g *kind.Grep) (result, error) {
	return a.tools(ctx, func(t providers.FileTools) (any, error) {
		found, err := t.Grep(ctx, g.Query())
		if found.Matches == nil {
			found.Matches = []providers.Match{}
		}
		return kind.GrepResult(found), err
	})
}
