package v1

import (
	"github.com/danielgtaylor/huma/v2"

	"sandyard/jobs/kind"
	"sandyard/web/rest"
)

// The bodies of the file operations: a job's arguments and the fields of any submission.
type (
	// WriteBody is the body of a write.
	WriteBody struct {
		kind.Write
		Submit
	}
	// ReadBody is the body of a read.
	ReadBody struct {
		kind.Read
		Submit
	}
	// ListBody is the body of a list.
	ListBody struct {
		kind.List
		Submit
	}
	// StatBody is the body of a stat.
	StatBody struct {
		kind.Stat
		Submit
	}
	// MakeDirBody is the body of a mkdir.
	MakeDirBody struct {
		kind.MakeDir
		Submit
	}
	// MoveBody is the body of a move.
	MoveBody struct {
		kind.Move
		Submit
	}
	// RemoveBody is the body of a remove.
	RemoveBody struct {
		kind.Remove
		Submit
	}
	// EditBody is the body of an edit.
	EditBody struct {
		kind.Edit
		Submit
	}
	// GlobBody is the body of a glob.
	GlobBody struct {
		kind.Glob
		Submit
	}
	// GrepBody is the body of a grep.
	GrepBody struct {
		kind.Grep
		Submit
	}
	// WriteManyBody is the body of a write of many files.
	WriteManyBody struct {
		kind.WriteMany
		Submit
	}
	// ReadManyBody is the body of a read of many files.
	ReadManyBody struct {
		kind.ReadMany
		Submit
	}
)

func (s *Server) addFiles() {
	op := func(verb, summary string) huma.Operation {
		return rest.Operation(verb+"-file", "POST /v1/sandboxes/{id}/files/"+verb, tagWork, summary)
	}
	work(s.core, op("write", "Write a file, with its parent directories"),
		func(b *WriteBody) (kind.Args, Submit) { return &b.Write, b.Submit })
	work(s.core, op("read", "Read a file; its bytes are in the job's content"),
		func(b *ReadBody) (kind.Args, Submit) { return &b.Read, b.Submit })
	work(s.core, op("list", "List a directory"),
		func(b *ListBody) (kind.Args, Submit) { return &b.List, b.Submit })
	work(s.core, op("stat", "Describe a path"),
		func(b *StatBody) (kind.Args, Submit) { return &b.Stat, b.Submit })
	work(s.core, op("mkdir", "Make a directory with its parents"),
		func(b *MakeDirBody) (kind.Args, Submit) { return &b.MakeDir, b.Submit })
	work(s.core, op("move", "Rename a file or directory"),
		func(b *MoveBody) (kind.Args, Submit) { return &b.Move, b.Submit })
	work(s.core, op("remove", "Delete a file or a whole directory"),
		func(b *RemoveBody) (kind.Args, Submit) { return &b.Remove, b.Submit })
	work(s.core, op("edit", "Replace text in a file atomically: all edits apply, or none"),
		func(b *EditBody) (kind.Args, Submit) { return &b.Edit, b.Submit })
	work(s.core, op("glob", "Find files by a glob pattern"),
		func(b *GlobBody) (kind.Args, Submit) { return &b.Glob, b.Submit })
	work(s.core, op("grep", "Search file contents for a pattern"),
		func(b *GrepBody) (kind.Args, Submit) { return &b.Grep, b.Submit })
	work(s.core, op("write-many", "Write many files; each has its own outcome"),
		func(b *WriteManyBody) (kind.Args, Submit) { return &b.WriteMany, b.Submit })
	work(s.core, op("read-many", "Read many files; each has its own outcome, with its bytes"),
		func(b *ReadManyBody) (kind.Args, Submit) { return &b.ReadMany, b.Submit })
}
