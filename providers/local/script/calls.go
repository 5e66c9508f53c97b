package script

import (
	"encoding/binary"
	"unsafe"

	"golang.org/x/sys/unix"
)

// maxArgs is how many arguments a system call has at most.
const maxArgs = 6

// call is a step as the process does it: without anything that Go's runtime would have to help with.
type call struct {
	number uintptr
	args   [maxArgs]uintptr
	flags  byte
	kept   byte // which arguments are what was kept, one bit each
}

// Calls are a script that was read, ready to be done.
type Calls struct {
	calls []call
	whats [][]byte
	held  []any // what addresses in calls point to
}

// Read reads what Append has written. The calls point into text, which must not change any more.
func Read(text []byte) (*Calls, error) {
	r := reader{text: text}
	c := &Calls{held: []any{text}}
	n := r.number()
	if n == 0 || n > uint64(len(text)) {
		return nil, errTorn
	}
	c.calls, c.whats = make([]call, n), make([][]byte, n)
	for i := range c.calls {
		c.whats[i] = r.bytes()
		c.read(&c.calls[i], &r)
	}
	if r.torn || len(r.text) > 0 {
		return nil, errTorn
	}
	return c, nil
}

func (c *Calls) read(to *call, r *reader) {
	to.number = uintptr(r.number())
	to.flags = r.byte()
	n := int(r.byte())
	if n > maxArgs {
		r.torn = true
		return
	}
	for i := range n {
		switch r.byte() {
		case number:
			to.args[i] = uintptr(r.number())
		case memory:
			to.args[i] = address(r.bytes())
		case strings:
			to.args[i] = c.list(r.bytes())
		case program:
			to.args[i] = c.filter(r.bytes())
		case kept:
			to.kept |= 1 << i
		default:
			r.torn = true
		}
	}
}

func address(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }

// list makes the array of addresses, which ends with none.
func (c *Calls) list(b []byte) uintptr {
	list := []uintptr{}
	for begin, i := 0, 0; i < len(b); i++ {
		if b[i] == 0 {
			list = append(list, address(b[begin:]))
			begin = i + 1
		}
	}
	list = append(list, 0)
	c.held = append(c.held, list)
	return uintptr(unsafe.Pointer(unsafe.SliceData(list)))
}

func (c *Calls) filter(code []byte) uintptr {
	f := &unix.SockFprog{
		Len:    uint16(len(code) / unix.SizeofSockFilter),
		Filter: (*unix.SockFilter)(unsafe.Pointer(unsafe.SliceData(code))),
	}
	c.held = append(c.held, f)
	return uintptr(unsafe.Pointer(f))
}

// reader takes apart what Append has put together.
type reader struct {
	text []byte
	torn bool
}

func (r *reader) number() uint64 {
	n, size := binary.Uvarint(r.text)
	if size <= 0 {
		r.torn, r.text = true, nil
		return 0
	}
	r.text = r.text[size:]
	return n
}

func (r *reader) byte() byte {
	if len(r.text) == 0 {
		r.torn = true
		return 0
	}
	b := r.text[0]
	r.text = r.text[1:]
	return b
}

func (r *reader) bytes() []byte {
	n := r.number()
	if n > uint64(len(r.text)) {
		r.torn, r.text = true, nil
		return nil
	}
	b := r.text[:n:n]
	r.text = r.text[n:]
	return b
}
