package process

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// TestWhoseAProcessIs: supervisors 10 and 20 have the guest as their parent.
func TestWhoseAProcessIs(t *testing.T) {
	t.Parallel()
	guest := os.Getpid()
	parents := map[int]int{
		10: guest, 20: guest,
		11: 10, 12: 11, 13: 12, // below 10
		21: 20,
		30: guest, 31: 30, // what is left of a command whose supervisor the guest has adopted from
		40: 1,          // another's
		50: 51, 51: 50, // read while /proc changed
		60: 61, // its parent has ended
	}
	h := &Host{sups: map[int]*supervisorProcess{10: {pid: 10}, 20: {pid: 20}}}
	for pid, want := range map[int]bool{
		11: true, 12: true, 13: true, 21: false, 20: false, 30: true, 31: true, 40: false, 50: false, 60: false, 99: false,
		guest: false,
	} {
		if got := h.belongs(pid, 10, parents, map[int]bool{}); got != want {
			t.Errorf("%d belongs to 10: %v", pid, got)
		}
	}
}

// TestKillsForLackOfMemory reads what the two versions of control groups write.
func TestKillsForLackOfMemory(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int64{
		"low 0\nhigh 0\nmax 3\noom 2\noom_kill 2\noom_group_kill 0\n": 2,
		"oom_kill_disable 0\nunder_oom 0\noom_kill 7\n":               7,
		"oom_kill_disable 0\nunder_oom 0\n":                           -1,
		"oom_kill many\n":                                             -1,
		"":                                                            -1,
	} {
		file := filepath.Join(t.TempDir(), "events")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		got, ok := oomKillsIn(file)
		if !ok {
			got = -1
		}
		if got != want {
			t.Errorf("%q: got %d, want %d", text, got, want)
		}
	}
	if _, ok := oomKillsIn(filepath.Join(t.TempDir(), "none")); ok {
		t.Error("a file that is not there says something")
	}
}

// TestWhyNoSupervisorStarts: a lack of processes is told apart, for it passes.
func TestWhyNoSupervisorStarts(t *testing.T) {
	t.Parallel()
	for err, room := range map[error]bool{syscall.EAGAIN: true, syscall.ENOMEM: true, syscall.ENOENT: false} {
		if got := startError(&os.PathError{Op: "fork", Err: err}); errors.Is(got, ErrNoProcess) != room {
			t.Errorf("%v: %v", err, got)
		}
	}
}
