// Package filter is the list of system calls that a program in a sandbox may make, as a program for the kernel. It is
// compiled here, without the C library that engines use for it.
package filter

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// instruction is one step of a filter.
type instruction = unix.SockFilter

// Places in the kernel's struct seccomp_data. Both halves of an argument are read apart: low first, as all machines
// with a table here have it.
const (
	offNumber = 0
	offArch   = 4
	offArgs   = 16
)

// foreign is where the numbers of another call table begin on x86-64: x32's, with which a filter could be passed by.
const foreign = 0x40000000

// Compile makes the filter for this machine, as the bytes of an array of the kernel's struct sock_filter. A call
// without a rule fails with EPERM.
func Compile() ([]byte, error) {
	program, err := program()
	if err != nil {
		return nil, err
	}
	var text []byte
	for _, i := range program {
		text = binary.NativeEndian.AppendUint16(text, i.Code)
		text = append(text, i.Jt, i.Jf)
		text = binary.NativeEndian.AppendUint32(text, i.K)
	}
	return text, nil
}

func program() ([]instruction, error) {
	m, err := thisMachine()
	if err != nil {
		return nil, err
	}
	program := []instruction{
		load(offArch), jump(unix.BPF_JEQ, m.audit, 1, 0), result(unix.SECCOMP_RET_KILL_PROCESS),
		load(offNumber), jump(unix.BPF_JGE, foreign, 0, 1), deny(unix.EPERM),
	}
	blocks, err := blocks(m)
	if err != nil {
		return nil, err
	}
	for len(blocks) > 0 {
		n := groupSize(blocks)
		program = append(program, group(blocks[:n], blocks[n:])...)
		blocks = blocks[n:]
	}
	return program, nil
}

// block is the steps of one call.
type block struct {
	number uint32
	steps  []instruction
}

// blocks are those of all calls, by number. Of one call's, which stay in order, the first that fits answers.
func blocks(m machine) ([]block, error) {
	var all []block
	for _, rule := range rules() {
		for _, name := range rule.Names {
			number, known := m.calls[name]
			if !known {
				continue // a call of other machines
			}
			steps, err := compile(number, rule)
			if err != nil {
				return nil, fmt.Errorf("rule of %s: %w", name, err)
			}
			all = append(all, block{number, steps})
		}
	}
	slices.SortStableFunc(all, func(a, b block) int { return cmp.Compare(a.number, b.number) })
	return all, nil
}

// perGroup is how many blocks are looked through one by one. The kernel goes through the filter for every call there is
// when it is installed, and at every call that depends on arguments.
const perGroup = 20

// groupSize does not part the blocks of one call.
func groupSize(blocks []block) int {
	n := min(perGroup, len(blocks))
	for n < len(blocks) && blocks[n].number == blocks[n-1].number {
		n++
	}
	return n
}

// group is passed over by calls whose blocks come later, and ends all others.
func group(blocks, later []block) []instruction {
	var steps []instruction
	for _, b := range blocks {
		steps = append(steps, b.steps...)
	}
	steps = append(steps, deny(unix.EPERM))
	if len(later) == 0 {
		return steps
	}
	over := instruction{Code: unix.BPF_JMP | unix.BPF_JA, K: uint32(len(steps))}
	return append([]instruction{jump(unix.BPF_JGE, later[0].number, 0, 1), over}, steps...)
}

// compile makes the steps of one call: they answer when the rule fits, and else fall through with the call's number
// loaded.
func compile(number uint32, rule specs.LinuxSyscall) ([]instruction, error) {
	answer, err := action(rule)
	if err != nil {
		return nil, err
	}
	var body []instruction
	for _, arg := range rule.Args {
		mask, want := ^uint64(0), arg.Value
		switch arg.Op {
		case specs.OpEqualTo:
		case specs.OpMaskedEqual:
			mask, want = arg.Value, arg.ValueTwo
		default:
			return nil, fmt.Errorf("unsupported comparison %s", arg.Op)
		}
		at := offArgs + 8*uint32(arg.Index)
		body = append(body, compare(at, uint32(mask), uint32(want))...)
		body = append(body, compare(at+4, uint32(mask>>32), uint32(want>>32))...)
	}
	body = append(body, answer)
	if len(rule.Args) > 0 {
		body = append(body, load(offNumber))
		leave(body, len(body)-1)
	}
	return append([]instruction{jump(unix.BPF_JEQ, number, 0, uint8(len(body)))}, body...), nil
}

// compare goes on when the masked half at offset is want; leave says where to otherwise.
func compare(offset, mask, want uint32) []instruction {
	return []instruction{
		load(offset),
		{Code: unix.BPF_ALU | unix.BPF_AND | unix.BPF_K, K: mask},
		jump(unix.BPF_JEQ, want, 0, 0),
	}
}

// leave makes every comparison in body that fails go on at index to.
func leave(body []instruction, to int) {
	for i := range body {
		if body[i].Code == unix.BPF_JMP|unix.BPF_JEQ|unix.BPF_K {
			body[i].Jf = uint8(to - i - 1)
		}
	}
}

func action(rule specs.LinuxSyscall) (instruction, error) {
	switch rule.Action {
	case specs.ActAllow:
		return result(unix.SECCOMP_RET_ALLOW), nil
	case specs.ActErrno:
		errno := uint32(unix.EPERM)
		if rule.ErrnoRet != nil {
			errno = uint32(*rule.ErrnoRet)
		}
		return result(unix.SECCOMP_RET_ERRNO | errno), nil
	default:
		return instruction{}, fmt.Errorf("unsupported action %s", rule.Action)
	}
}

func load(offset uint32) instruction {
	return instruction{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: offset}
}

// jump skips yes steps where the comparison with k holds, and no steps where not.
func jump(comparison uint16, k uint32, yes, no uint8) instruction {
	return instruction{Code: unix.BPF_JMP | comparison | unix.BPF_K, Jt: yes, Jf: no, K: k}
}

func deny(errno unix.Errno) instruction { return result(unix.SECCOMP_RET_ERRNO | uint32(errno)) }

func result(value uint32) instruction { return instruction{Code: unix.BPF_RET | unix.BPF_K, K: value} }
