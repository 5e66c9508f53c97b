// Package supervisor is the supervisor between the guest and one command. It is a child subreaper, so whatever the
// command starts, however often it forks and detaches, stays below it in the process tree and can be found and killed.
//
// It imports syscall alone, because a small program starts faster. A command waits less than for its own start when a
// supervisor is ready for it, so one that has become free takes another command.
package supervisor

// SocketFD is the supervisor's end of the stream socket pair to the guest.
const SocketFD = 3

// The reports that a supervisor sends, each followed by a 32-bit little-endian value.
const (
	Started byte = 'S' // the process id of the command
	// StartedAlone is Started by a supervisor that may not adopt orphans, on a kernel that gives all to process 1.
	StartedAlone byte = 'A'

	Failed byte = 'F' // the errno for which it could not be started; the last report on it
	Exited byte = 'X' // its wait status
	Free   byte = 'E' // nothing of it is left and the next command may come; the value is 0
)

// ReportSize is the length of a report in bytes.
const ReportSize = 5

// HeadSize is the length of what the guest sends first, together with the descriptors that the command gets: the three
// standard ones, and perhaps a fourth. It is the size of the Spec that follows.
const HeadSize = 4

// Spec is the command to run. No string may hold a NUL byte.
type Spec struct {
	Path string
	Dir  string
	TTY  bool // makes standard input the controlling terminal
	Argv []string
	Env  []string
}

// Encode returns s for the wire: HeadSize bytes of length and the body.
func (s Spec) Encode() []byte {
	b := make([]byte, HeadSize, 4096)
	b = appendString(b, s.Path)
	b = appendString(b, s.Dir)
	b = appendList(b, s.Argv)
	b = appendList(b, s.Env)
	if s.TTY {
		b = append(b, 1)
	} else {
		b = append(b, 0)
	}
	putUint32(b, uint32(len(b)-HeadSize))
	return b
}

// decode reads the body that Encode wrote. The guest is trusted: a broken body is a bug and panics.
func decode(b []byte) Spec {
	var s Spec
	s.Path, b = cutString(b)
	s.Dir, b = cutString(b)
	s.Argv, b = cutList(b)
	s.Env, b = cutList(b)
	s.TTY = b[0] == 1
	return s
}

func appendString(b []byte, s string) []byte {
	return append(appendUint32(b, uint32(len(s))), s...)
}

func cutString(b []byte) (string, []byte) {
	n := Uint32(b)
	return string(b[4 : 4+n]), b[4+n:]
}

func appendList(b []byte, list []string) []byte {
	b = appendUint32(b, uint32(len(list)))
	for _, s := range list {
		b = appendString(b, s)
	}
	return b
}

func cutList(b []byte) ([]string, []byte) {
	list := make([]string, Uint32(b))
	b = b[4:]
	for i := range list {
		list[i], b = cutString(b)
	}
	return list, b
}

func appendUint32(b []byte, v uint32) []byte {
	return append(b, byte(v), byte(v>>8), byte(v>>16), byte(v>>24))
}

func putUint32(b []byte, v uint32) { appendUint32(b[:0], v) }

// Uint32 reads the value of a report, or of a head.
func Uint32(b []byte) uint32 {
	return uint32(b[0]) | uint32(b[1])<<8 | uint32(b[2])<<16 | uint32(b[3])<<24
}
