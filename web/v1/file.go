package v1

import (
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"sandyard/jobs"
	"sandyard/web/rest"
)

// The bodies of the file operations: a job's arguments and the fields of any submission.
type (
	// WriteBody is the body of a write.
	WriteBody struct {
		jobs.Write
		Submit
	}
	// ReadBody is the body of a read.
	ReadBody struct {
		jobs.Read
		Submit
	}
	// ListBody is the body of a list.
	ListBody struct {
		jobs.List
		Submit
	}
	// StatBody is the body of a stat.
	StatBody struct {
		jobs.Stat
		Submit
	}
	// MakeDirBody is the body of a mkdir.
	MakeDirBody struct {
		jobs.MakeDir
		Submit
	}
	// MoveBody is the body of a move.
	MoveBody struct {
		jobs.Move
		Submit
	}
	// RemoveBody is the body of a remove.
	RemoveBody struct {
		jobs.Remove
		Submit
	}
	// EditBody is the body of an edit.
	EditBody struct {
		jobs.Edit
		Submit
	}
	// GlobBody is the body of a glob.
	GlobBody struct {
		jobs.Glob
		Submit
	}
	// GrepBody is the body of a grep.
	GrepBody struct {
		jobs.Grep
		Submit
	}
	// WriteManyBody is the body of a write of many files.
	WriteManyBody struct {
		jobs.WriteMany
		Submit
	}
	// ReadManyBody is the body of a read of many files.
	ReadManyBody struct {
		jobs.ReadMany
		Submit
	}
)

func (s *Server) addFiles() {
	op := func(verb, summary string) huma.Operation {
		return rest.Operation(verb+"-file", http.MethodPost, "/v1/sandboxes/{id}/files/"+verb, tagWork, summary)
	}
	work(s, op("write", "Write a file, with its parent directories"),
		func(b *WriteBody) (jobs.Args, Submit) { return &b.Write, b.Submit })
	work(s, op("read", "Read a file; its bytes are in the job's content"),
		func(b *ReadBody) (jobs.Args, Submit) { return &b.Read, b.Submit })
	work(s, op("list", "List a directory"),
		func(b *ListBody) (jobs.Args, Submit) { return &b.List, b.Submit })
	work(s, op("stat", "Describe a path"),
		func(b *StatBody) (jobs.Args, Submit) { return &b.Stat, b.Submit })
	work(s, op("mkdir", "Make a directory with its parents"),
		func(b *MakeDirBody) (jobs.Args, Submit) { return &b.MakeDir, b.Submit })
	work(s, op("move", "Rename a file or directory"),
		func(b *MoveBody) (jobs.Args, Submit) { return &b.Move, b.Submit })
	work(s, op("remove", "Delete a file or a whole directory"),
		func(b *RemoveBody) (jobs.Args, Submit) { return &b.Remove, b.Submit })
	work(s, op("edit", "Replace text in a file atomically: all edits apply, or none"),
		func(b *EditBody) (jobs.Args, Submit) { return &b.Edit, b.Submit })
	work(s, op("glob", "Find files by a glob pattern"),
		func(b *GlobBody) (jobs.Args, Submit) { return &b.Glob, b.Submit })
	work(s, op("grep", "Search file contents for a pattern"),
		func(b *GrepBody) (jobs.Args, Submit) { return &b.Grep, b.Submit })
	work(s, op("write-many", "Write many files; each has its own outcome"),
		func(b *WriteManyBody) (jobs.Args, Submit) { return &b.WriteMany, b.Submit })
	work(s, op("read-many", "Read many files; each has its own outcome, with its bytes"),
		func(b *ReadManyBody) (jobs.Args, Submit) { return &b.ReadMany, b.Submit })
}
