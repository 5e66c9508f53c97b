package filter

import (
	"testing"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// answer is what the kernel would make of the program, and after how many steps.
func answer(t *testing.T, program []instruction, number, arch uint32, args [6]uint64) (result uint32, steps int) {
	t.Helper()
	var a uint32
	for at := 0; at < len(program); at++ {
		steps++
		i := program[at]
		skip := map[bool]uint8{true: i.Jt, false: i.Jf}
		switch i.Code {
		case unix.BPF_LD | unix.BPF_W | unix.BPF_ABS:
			switch i.K {
			case offNumber:
				a = number
			case offArch:
				a = arch
			default:
				half := args[(i.K-offArgs)/8]
				a = uint32(half >> (8 * (i.K % 8)))
			}
		case unix.BPF_ALU | unix.BPF_AND | unix.BPF_K:
			a &= i.K
		case unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K:
			at += int(skip[a == i.K])
		case unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K:
			at += int(skip[a >= i.K])
		case unix.BPF_JMP | unix.BPF_JA:
			at += int(i.K)
		case unix.BPF_RET | unix.BPF_K:
			return i.K, steps
		default:
			t.Fatalf("step %d: unknown code %#x", at, i.Code)
		}
	}
	t.Fatal("the program ends without an answer")
	return 0, 0
}

// TestGroupsChangeNothing compares the filter with one that looks through all blocks, and counts its steps.
func TestGroupsChangeNothing(t *testing.T) {
	t.Parallel()
	m, err := thisMachine()
	if err != nil {
		t.Fatal(err)
	}
	all, err := blocks(m)
	if err != nil {
		t.Fatal(err)
	}
	plain := []instruction{load(offNumber)}
	for _, b := range all {
		plain = append(plain, b.steps...)
	}
	plain = append(plain, deny(unix.EPERM))
	grouped, err := program()
	if err != nil {
		t.Fatal(err)
	}
	const most = 120
	allowed, seen := 0, map[uint32]int{}
	for number := range all[len(all)-1].number + 100 {
		for _, arg := range []uint64{0, 1, 8, 2, 16, 40, 0x20000, 0x20008, 0xffffffff, unix.CLONE_NEWNS, unix.CLONE_NEWUSER, unix.CLONE_VM, 1 << 40} {
			args := [6]uint64{arg, arg, arg, arg, arg, arg}
			want, _ := answer(t, plain, number, m.audit, args)
			got, steps := answer(t, grouped, number, m.audit, args)
			if got != want || steps > most {
				t.Errorf("call %d with %#x: %#x after %d steps, want %#x after at most %d", number, arg, got, steps, want, most)
			}
			seen[got]++
		}
		if got, _ := answer(t, grouped, number, m.audit, [6]uint64{}); got == unix.SECCOMP_RET_ALLOW {
			allowed++
		}
	}
	if len(seen) < 3 || allowed < 200 {
		t.Errorf("answers are %v, %d calls are allowed: the filter looks wrong", seen, allowed)
	}
	if got, _ := answer(t, grouped, unix.SYS_READ, m.audit+1, [6]uint64{}); got != unix.SECCOMP_RET_KILL_PROCESS {
		t.Errorf("a call of another machine is answered %#x", got)
	}
	if got, _ := answer(t, grouped, foreign+unix.SYS_READ, m.audit, [6]uint64{}); got != uint32(unix.SECCOMP_RET_ERRNO|int(unix.EPERM)) {
		t.Errorf("a call of x32's is answered %#x", got)
	}
}
