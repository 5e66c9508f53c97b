// Package keeper is the process that holds one sandbox of the local provider: it makes the namespaces, starts the
// guest in them, and keeps the guest's standard input and output for whoever comes, so that commands survive the worker.
//
// Run is the keeper's program. It starts itself a second time, as the first process of the new namespaces, which
// builds the sandbox's view of the system around itself, gives up all rights and becomes the guest.
package keeper

import (
	"encoding/json"
	"fmt"
	"io"
	"os"

	"sandyard/providers/local/cgroup"
)

// Names of the files in a sandbox's directory.
const (
	AliveFile  = "alive"      // locked for as long as the keeper lives; holds its process id
	SocketFile = "guest.sock" // leads to the guest's standard input and output
	EndFile    = "ended"      // how the guest ended, for the log
	RootDir    = "root"       // where the sandbox builds its root, seen by nobody else
)

// Names of the programs in the directory Plan.Programs.
const (
	GuestProgram      = "guest"
	SupervisorProgram = "sup"
	KeeperProgram     = "keeper"
)

// Plan is all that a keeper needs to know. It reads one, as JSON, from its standard input.
type Plan struct {
	Dir      string // of the sandbox, where the files above are
	Image    string // directory with the tree of the root file system
	Programs string // directory with the guest
	Hostname string
	WorkDir  string
	Argv     []string // of the guest
	Env      []string
	UID, GID int

	WorkDirMB, WorkDirFiles int64
	TempMB, TempFiles       int64
	SharedMB                int64

	Group  cgroup.Group // with the limits in force
	Filter []byte       // the system calls that it may make, as an array of struct sock_filter
}

// readPlan also returns the plan's text.
func readPlan(r io.Reader) (p Plan, text []byte, err error) {
	if text, err = io.ReadAll(r); err == nil {
		err = json.Unmarshal(text, &p)
	}
	if err != nil {
		return p, nil, fmt.Errorf("read the plan: %w", err)
	}
	return p, text, nil
}

// Ready is what a keeper writes to its standard output when the guest runs; anything else is why it does not.
const Ready = "ready\n"

// Main is the keeper's main function. The argument "inside" is for its own use.
func Main(args []string) int {
	run, out := keep, os.Stdout
	if len(args) == 1 && args[0] == "inside" {
		run, out = inside, statusFile()
	}
	if err := run(); err != nil {
		fmt.Fprint(out, err)
		return 1
	}
	return 0
}
