package providers

import "context"

// Watcher is a sandbox whose directories can be watched.
type Watcher interface {
	// Watch tells what happens to the entries of a directory, and below them if recursive, until ctx ends, tell fails or
	// the watching cannot go on. The first event is FileReady: from then on nothing is missed. Where events were lost the
	// end is ErrTooLarge. A tell that takes its time holds the events up.
	Watch(ctx context.Context, path string, recursive bool, tell func(FileEvent) error) error
}

// FileEvent is one change.
type FileEvent struct {
	Op   FileOp `json:"op" enum:"create,write,remove,rename,chmod"`
	Name string `json:"name" doc:"Relative to the watched directory; . is the directory itself"`
}

// FileOp is what happened to an entry. One that is renamed is FileRenamed under its old name and FileCreated under its new one.
type FileOp string

// The operations.
const (
	FileReady   FileOp = "ready" // nothing happened, but the watch stands
	FileCreated FileOp = "create"
	FileWritten FileOp = "write"
	FileRemoved FileOp = "remove"
	FileRenamed FileOp = "rename"
	FileChmod   FileOp = "chmod"
)
