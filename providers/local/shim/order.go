// Package shim is the process that holds one sandbox of the local provider: it starts the sandbox's first process in
// new namespaces, and keeps its standard input and output for whoever comes, so that commands survive the worker.
//
// Main is the shim's program. What the first process does before it becomes the guest is a script that the worker has
// written.
package shim

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"

	"sandyard/providers/local/cgroup"
	"sandyard/providers/local/script"
)

// Names of the files in a sandbox's directory.
const (
	AliveFile  = "alive"      // locked for as long as the shim lives; holds its process id
	SocketFile = "guest.sock" // leads to the guest's standard input and output
	EndFile    = "ended"      // how the guest ended, for the log, behind OutOfMemory where that was why
	RootDir    = "root"       // where the sandbox builds its root, seen by nobody else
)

// Names of the programs in the directory of programs.
const (
	GuestProgram      = "guest"
	SupervisorProgram = "sup"
	Program           = "sandbox-shim"
)

// Ready is what a shim writes to its standard output when the guest runs; anything else is why it does not.
const Ready = "ready\n"

// OutOfMemory begins what is told of the end of a guest that died for lack of memory.
const OutOfMemory = "out of memory: "

// ExitStatus begins what is told of the end of a guest that nobody has killed; the number follows.
const ExitStatus = "guest: exit status "

// Order is all that a shim needs to know. It reads one, as Text writes it, from its standard input.
type Order struct {
	Dir      string // of the sandbox, where the files above are
	Image    string // directory with the tree of the root file system
	Programs string // directory with the guest
	Group    cgroup.Group
	Script   *script.Script // what the first process does; it ends by becoming the guest
}

// order is one that was read.
type order struct {
	dir, image, programs string
	group                cgroup.Group
	calls                *script.Calls
}

// Text writes the order down.
func (o Order) Text() []byte {
	unified := ""
	if o.Group.Unified {
		unified = "2"
	}
	var text []byte
	for _, s := range []string{o.Dir, o.Image, o.Programs, o.Group.Name, unified} {
		text = append(binary.AppendUvarint(text, uint64(len(s))), s...)
	}
	return o.Script.Append(text)
}

// usualOrder is more than most take, in bytes.
const usualOrder = 32 << 10

var errNoOrder = errors.New("the start order on standard input is missing or incomplete; workers start the shim")

func readOrder(r io.Reader) (o order, err error) {
	var all bytes.Buffer
	all.Grow(usualOrder)
	if _, err := all.ReadFrom(r); err != nil {
		return o, err
	}
	text := all.Bytes()
	var unified string
	for _, s := range []*string{&o.dir, &o.image, &o.programs, &o.group.Name, &unified} {
		n, size := binary.Uvarint(text)
		if size <= 0 || n > uint64(len(text)-size) {
			return o, errNoOrder
		}
		*s, text = string(text[size:size+int(n)]), text[size+int(n):]
	}
	o.group.Unified = unified != ""
	o.calls, err = script.Read(text)
	return o, err
}
