package web

import (
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"sandyard/jobs"
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
)

func (s *Server) addFiles() {
	op := func(verb, summary string) huma.Operation {
		return operation(verb+"-file", http.MethodPost, "/v1/sandboxes/{id}/files/"+verb, tagWork, summary)
	}
	work(s, op("write", "Write a file, with its parent directories"),
		func(b *WriteBody) (jobs.Args, Submit) { return &b.Write, b.Submit })
	work(s, op("read", "Read a file: its bytes are the job's content"),
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
}
