// Package script makes a process that does a list of system calls and nothing else, of which the last one makes it
// another program. A worker writes the list; the shim makes the process by Start.
//
// A program of Go's that did the same would take longer to start than all the calls take together.
package script

import (
	"encoding/binary"
	"errors"
)

// What an argument of a step is.
const (
	number  = iota
	memory  // the address of these bytes
	strings // the address of an array of addresses of strings, as execve takes it
	program // the address of a struct sock_fprog over these bytes
	kept    // what the last step with Keep returned
)

// Arg is an argument of a system call.
type Arg struct {
	kind   byte
	number uint64
	data   []byte
}

// Number is an argument that is no address.
func Number[T ~int | ~uint | ~int32 | ~uint32 | ~int64 | ~uint64 | ~uintptr](n T) Arg {
	return Arg{kind: number, number: uint64(n)}
}

// String is the address of s, which ends with a zero there.
func String(s string) Arg { return Arg{kind: memory, data: append([]byte(s), 0)} }

// Bytes is the address of b.
func Bytes(b []byte) Arg { return Arg{kind: memory, data: b} }

// Strings is the address of an array of strings.
func Strings(list []string) Arg {
	var data []byte
	for _, s := range list {
		data = append(append(data, s...), 0)
	}
	return Arg{kind: strings, data: data}
}

// Filter is the address of a program that filters system calls, made of an array of struct sock_filter.
func Filter(code []byte) Arg { return Arg{kind: program, data: code} }

// Kept is what the last step that was marked by Keep returned.
func Kept() Arg { return Arg{kind: kept} }

const (
	keep         = 1 << iota // what it returns is kept
	mayLack                  // no such file is as good as done
	mayExist                 // such a file is as good as done
	mayBeUnknown             // an older kernel does not know what it asks for, so there is nothing to do
	onlyIfDone               // left out where the step before was not done
)

// Step is a system call.
type Step struct {
	what  string
	call  uint64
	flags byte
	args  []Arg
}

// Keep keeps what the call returns, for Kept.
func (s *Step) Keep() *Step { s.flags |= keep; return s }

// MayLack lets the call find no such file.
func (s *Step) MayLack() *Step { s.flags |= mayLack; return s }

// MayExist lets the call find that there is such a file already.
func (s *Step) MayExist() *Step { s.flags |= mayExist; return s }

// MayBeUnknown lets the kernel find the call's arguments invalid.
func (s *Step) MayBeUnknown() *Step { s.flags |= mayBeUnknown; return s }

// OnlyIfDone leaves the call out where the step before was not done, for one of these reasons.
func (s *Step) OnlyIfDone() *Step { s.flags |= onlyIfDone; return s }

// Script is what the process does, in this order.
type Script struct{ steps []*Step }

// Do appends a system call; what is it for errors.
func (s *Script) Do(what string, call uintptr, args ...Arg) *Step {
	step := &Step{what: what, call: uint64(call), args: args}
	s.steps = append(s.steps, step)
	return step
}

// Append writes the script down behind b.
func (s *Script) Append(b []byte) []byte {
	b = binary.AppendUvarint(b, uint64(len(s.steps)))
	for _, step := range s.steps {
		b = appendBytes(b, []byte(step.what))
		b = binary.AppendUvarint(b, step.call)
		b = append(b, step.flags, byte(len(step.args)))
		for _, a := range step.args {
			b = append(b, a.kind)
			if a.kind == number {
				b = binary.AppendUvarint(b, a.number)
			} else if a.kind != kept {
				b = appendBytes(b, a.data)
			}
		}
	}
	return b
}

func appendBytes(b, data []byte) []byte {
	return append(binary.AppendUvarint(b, uint64(len(data))), data...)
}

var errTorn = errors.New("the start script is incomplete")
