//go:build chaos

package chaos

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// skews are by how much the clocks of the processes are wrong, by turns.
func skews() []time.Duration { return []time.Duration{time.Hour, 0, -time.Hour} }

// skewable says whether clocks can be set wrong here: it takes a machine's language that wrongClock knows.
const skewable = runtime.GOARCH == "amd64"

// startSkewed starts cmd with a wall clock that is wrong by a whole number of seconds, for this process alone.
//
// The kernel has no namespace for the wall clock, and a static program cannot be preloaded. But all Go programs ask the
// kernel's vDSO, which is a page of code in their own memory: before the first instruction of the program that code is
// written over. Nothing is built in or switched on for it; the programs are those that operators get.
func startSkewed(cmd *exec.Cmd, by time.Duration) error {
	if by == 0 {
		return cmd.Start()
	}
	runtime.LockOSThread() // the tracer of a process is a thread
	defer runtime.UnlockOSThread()
	cmd.SysProcAttr.Ptrace = true
	if err := cmd.Start(); err != nil {
		return err
	}
	err := setClock(cmd.Process.Pid, by)
	if err = errors.Join(err, syscall.PtraceDetach(cmd.Process.Pid)); err != nil {
		_ = cmd.Process.Kill()
		return fmt.Errorf("set the clock of %s wrong: %w", cmd.Path, errors.Join(err, cmd.Wait()))
	}
	return nil
}

// setClock writes over the code of a process that stands before its first instruction.
func setClock(pid int, by time.Duration) error {
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(pid, &status, 0, nil); err != nil {
		return err
	}
	if !status.Stopped() {
		return fmt.Errorf("it does not stand still: %v", status)
	}
	at, code, err := vdso(pid)
	if err != nil {
		return err
	}
	offset, room, err := clockIn(code)
	if err != nil {
		return err
	}
	wrong := wrongClock(int32(by / time.Second))
	if len(wrong) > int(room) {
		return fmt.Errorf("the kernel's clock has %d bytes of code, too few for %d", room, len(wrong))
	}
	_, err = syscall.PtracePokeData(pid, at+uintptr(offset), wrong)
	return err
}

// vdso reads the page of code that the kernel gives to every process.
func vdso(pid int) (at uintptr, code []byte, err error) {
	maps, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "maps"))
	if err != nil {
		return 0, nil, err
	}
	for line := range strings.Lines(string(maps)) {
		var from, to uintptr
		if !strings.HasSuffix(line, "[vdso]\n") {
			continue
		}
		if _, err := fmt.Sscanf(line, "%x-%x", &from, &to); err != nil {
			return 0, nil, err
		}
		code = make([]byte, to-from)
		_, err = syscall.PtracePeekData(pid, from, code)
		return from, code, err
	}
	return 0, nil, errors.New("it has no vDSO")
}

// clockIn finds the function that tells the time in a vDSO.
func clockIn(code []byte) (offset, room uint64, err error) {
	f, err := elf.NewFile(bytes.NewReader(code))
	if err != nil {
		return 0, 0, err
	}
	symbols, err := f.DynamicSymbols()
	for _, s := range symbols {
		if s.Name == "__vdso_clock_gettime" {
			return s.Value, s.Size, nil
		}
	}
	return 0, 0, errors.Join(err, errors.New("the vDSO tells no time"))
}

// wrongClock is clock_gettime(clock, time) in the language of amd64: it asks the kernel, and of CLOCK_REALTIME, which is 0,
// adds the seconds.
func wrongClock(seconds int32) []byte {
	code := []byte{
		0xb8, 0xe4, 0, 0, 0, // mov eax, 228
		0x0f, 0x05, // syscall
		0x85, 0xff, // test edi, edi
		0x75, 0x0b, // jnz to the end
		0x85, 0xc0, // test eax, eax
		0x75, 0x07, // jnz to the end
		0x48, 0x81, 0x06, // add qword [rsi],
	}
	code = binary.LittleEndian.AppendUint32(code, uint32(seconds))
	return append(code, 0xc3) // ret
}

// TestClocksAreWrong starts this program with wrong clocks and has it say the time, and how long a moment takes.
func TestClocksAreWrong(t *testing.T) {
	if os.Getenv("CHAOS_TIME") != "" {
		began := time.Now()
		<-time.After(10 * time.Millisecond)
		fmt.Fprintf(os.Stdout, "time %d %d\n", began.Unix(), time.Since(began).Milliseconds())
		return
	}
	if !skewable {
		t.Skipf("clocks can be set wrong on amd64, and this is %s", runtime.GOARCH)
	}
	for _, by := range skews() {
		var said bytes.Buffer
		cmd := exec.Command("/proc/self/exe", "-test.run=TestClocksAreWrong")
		cmd.Env, cmd.Stdout, cmd.SysProcAttr = append(os.Environ(), "CHAOS_TIME=1"), &said, &syscall.SysProcAttr{}
		if err := startSkewed(cmd, by); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Fatal(err)
		}
		var unix, took int64
		if _, err := fmt.Sscanf(said.String(), "time %d %d", &unix, &took); err != nil {
			t.Fatalf("%q: %v", said.String(), err)
		}
		if off := time.Until(time.Unix(unix, 0)); (off - by).Abs() > time.Minute {
			t.Errorf("the clock is wrong by %v, want %v", off, by)
		}
		if took < 10 || took > 60_000 {
			t.Errorf("10 ms took %d", took)
		}
	}
}
