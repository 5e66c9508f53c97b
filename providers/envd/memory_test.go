package envd_test

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"

	"sandyard/dev/testenv"
	"sandyard/providers"
	"sandyard/providers/envd"
)

// memory is a field of the guest's /proc/PID/status, in KiB.
func (e *engine) memory(field string) int {
	e.t.Helper()
	unshare := e.cmd.Process.Pid
	children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", unshare, unshare))
	must(e.t, err)
	status, err := os.ReadFile("/proc/" + strings.TrimSpace(string(children)) + "/status")
	must(e.t, err)
	_, rest, _ := bytes.Cut(status, []byte(field+":"))
	kib := 0
	_, err = fmt.Sscan(string(rest), &kib)
	must(e.t, err)
	return kib
}

func TestAGuestThatRestsIsSmall(t *testing.T) {
	t.Parallel()
	e := newEngine(t)
	s := e.sandbox(envd.Options{})
	for i := range 100 {
		name := fmt.Sprint("x", i)
		run(t, s, providers.Command{Name: name, Shell: "head -c 500000 /dev/zero"})
		must(t, s.Forget(patient(t), name))
	}
	for i := range 4 {
		path := fmt.Sprint("f", i)
		_, err := s.WriteFile(patient(t), path, make([]byte, 4<<20), 0)
		must(t, err)
		_, err = s.ReadFile(patient(t), path, 4<<20)
		must(t, err)
	}
	testenv.Eventually(t, "the guest's own memory is below 8 MiB", func() bool { return e.memory("RssAnon") < 8<<10 })
	testenv.Eventually(t, "all that the guest holds is below 10 MiB", func() bool { return e.memory("VmRSS") < 10<<10 })
}
