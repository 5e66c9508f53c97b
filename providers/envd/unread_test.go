package envd_test

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"sandyard/dev/testenv"
	"sandyard/guest/envdpb/process"
	"sandyard/guest/envdpb/process/processconnect"
	"sandyard/providers/envd"

	"connectrpc.com/connect"
)

// flood writes without an end and counts in a file how far it has come.
const flood = "i=0; while :; do printf %65536s x; i=$((i+1)); echo $i > count; done"

// stands waits until the flood has not gone on for a while: nobody reads what it writes.
func stands(t *testing.T, e *engine) {
	t.Helper()
	last, same := "", 0
	testenv.Eventually(t, "the command stands still", func() bool {
		count, _ := os.ReadFile(filepath.Join(e.workDir, "count"))
		if same++; string(count) != last || last == "" {
			last, same = string(count), 0
		}
		return same > 30
	})
}

func runsOn(t *testing.T, e *engine) {
	t.Helper()
	count := func() int {
		text, _ := os.ReadFile(filepath.Join(e.workDir, "count"))
		n, _ := strconv.Atoi(strings.TrimSpace(string(text)))
		return n
	}
	before := count()
	testenv.Eventually(t, "the command runs on", func() bool { return count() > before+100 })
}

func signal(t *testing.T, c processconnect.ProcessClient, pid uint32, s process.Signal) {
	t.Helper()
	_, err := c.SendSignal(patient(t), connect.NewRequest(&process.SendSignalRequest{Process: byPid(pid), Signal: s}))
	must(t, err)
}

func nothingRuns(t *testing.T, c processconnect.ProcessClient) {
	t.Helper()
	testenv.Eventually(t, "no command is listed", func() bool {
		list, err := c.List(patient(t), connect.NewRequest(&process.ListRequest{}))
		must(t, err)
		return len(list.Msg.GetProcesses()) == 0
	})
}

// TestSignalsToACommandWhoseOutputNobodyReads: it ends, on a terminal too, is listed no more while its client still does
// not read, and who reads at last finds the end.
func TestSignalsToACommandWhoseOutputNobodyReads(t *testing.T) {
	t.Parallel()
	for name, how := range map[string]struct {
		signal process.Signal
		pty    *process.PTY
		status string
	}{
		"kill":           {process.Signal_SIGNAL_SIGKILL, nil, "signal: killed"},
		"term":           {process.Signal_SIGNAL_SIGTERM, nil, "signal: terminated"},
		"kill, terminal": {process.Signal_SIGNAL_SIGKILL, &process.PTY{}, "signal: killed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newEngine(t)
			c := plainClient(e.sandbox(envd.Options{}))
			req := shellRequest(flood)
			req.Pty = how.pty
			stream, o := startPlain(patient(t), t, c, req)
			stands(t, e)
			signal(t, c, o.pid, how.signal)
			nothingRuns(t, c)
			finishPlain(t, stream, o)
			if o.end.GetStatus() != how.status {
				t.Errorf("got %v", o.end)
			}
		})
	}
}

// TestTheDeadlineOfACommandWhoseOutputNobodyReads: a client that reads late hears that it was the deadline.
func TestTheDeadlineOfACommandWhoseOutputNobodyReads(t *testing.T) {
	t.Parallel()
	e := newEngine(t)
	s := e.sandbox(envd.Options{})
	c := processconnect.NewProcessClient(outsider(t, s, "Connect-Timeout-Ms", "1500"), "http://guest", connect.WithProtoJSON())
	stream, o := startPlain(patient(t), t, c, shellRequest(flood))
	nothingRuns(t, plainClient(s))
	for stream.Receive() {
		o.take(stream.Msg().GetEvent())
	}
	if connect.CodeOf(stream.Err()) != connect.CodeDeadlineExceeded {
		t.Errorf("got %v, %v", stream.Err(), o.end)
	}
}

// TestACommandRunsOnWithoutAClientThatLags: also where a write to it was under way when it went.
func TestACommandRunsOnWithoutAClientThatLags(t *testing.T) {
	t.Parallel()
	e := startEngine(t, guestAsProcess1(), "-linger", "10m")
	c := plainClient(e.sandbox(envd.Options{}))
	ctx, leave := context.WithCancel(context.Background())
	defer leave()
	_, o := startPlain(ctx, t, c, shellRequest(flood))
	stands(t, e)
	leave()
	runsOn(t, e)
	signal(t, c, o.pid, process.Signal_SIGNAL_SIGKILL)
	nothingRuns(t, c)
}

// TestNothingIsLostForAClientThatLags: a command whose writer was killed when nobody read any more has ended, and its client
// finds all that was written when it reads on.
func TestNothingIsLostForAClientThatLags(t *testing.T) {
	t.Parallel()
	e := newEngine(t)
	c := plainClient(e.sandbox(envd.Options{}))
	// Of a write of one page to a pipe the kernel takes all or nothing, so what it has counted is what is in the pipe.
	script := `dd if=/dev/zero bs=4096 2>/dev/null & p=$!
		while [ ! -e stop ]; do grep wchar /proc/$p/io | cut -d' ' -f2 > io; mv io count; sleep 0.02; done
		grep wchar /proc/$p/io >&2; kill -9 $p; exit 3`
	stream, o := startPlain(patient(t), t, c, shellRequest(script))
	stands(t, e)
	must(t, os.WriteFile(filepath.Join(e.workDir, "stop"), nil, 0o600))
	nothingRuns(t, c)
	finishPlain(t, stream, o)
	if want := "wchar: " + strconv.Itoa(len(o.stdout)) + "\n"; o.stderr != want || o.end.GetExitCode() != 3 {
		t.Errorf("the client read %d bytes, written were %q; %v", len(o.stdout), o.stderr, o.end)
	}
}

// TestManyClientsThatLag: more commands end than those of which output is kept. The others wait for their clients, and those
// that are killed for nobody.
func TestManyClientsThatLag(t *testing.T) {
	t.Parallel()
	e := newEngine(t)
	c := plainClient(e.sandbox(envd.Options{}))
	const kept, more = 16, 4
	streams := map[uint32]*connect.ServerStreamForClient[process.StartResponse]{}
	for range kept + more {
		script := `head -c 10000000 /dev/zero & p=$!; while [ ! -e stop ]; do sleep 0.05; done; kill -9 $p; echo last >&2`
		stream, o := startPlain(deadline(t, 2*time.Minute), t, c, shellRequest(script))
		streams[o.pid] = stream
	}
	must(t, os.WriteFile(filepath.Join(e.workDir, "stop"), nil, 0o600))
	var waiting []*process.ProcessInfo
	testenv.Eventually(t, "all have ended but those for which there is no place", func() bool {
		list, err := c.List(patient(t), connect.NewRequest(&process.ListRequest{}))
		must(t, err)
		waiting = list.Msg.GetProcesses()
		return len(waiting) <= more // fewer where the last ones had written little when they were told to stop
	})
	killed := uint32(0)
	if len(waiting) > 0 {
		killed = waiting[0].GetPid()
		_, err := c.SendSignal(patient(t), connect.NewRequest(&process.SendSignalRequest{Process: byPid(killed), Signal: process.Signal_SIGNAL_SIGKILL}))
		if err != nil && connect.CodeOf(err) != connect.CodeNotFound { // it has just ended
			t.Error(err)
		}
	}
	for pid, stream := range streams {
		o := &outcome{}
		finishPlain(t, stream, o)
		if o.stderr != "last\n" && pid != killed {
			t.Errorf("it ended with %q, %v", o.stderr, o.end)
		}
	}
	nothingRuns(t, c)
}

// TestInputOfTheOtherKind: what is meant for a terminal goes to no pipe, and the other way round.
func TestInputOfTheOtherKind(t *testing.T) {
	t.Parallel()
	c := plainClient(newEngine(t).sandbox(envd.Options{}))
	ctx := patient(t)
	keys := &process.ProcessInput{Input: &process.ProcessInput_Pty{Pty: []byte("keys\r")}}
	for name, how := range map[string]struct {
		pty   *process.PTY
		right *process.ProcessInput
		wrong *process.ProcessInput
		want  string
	}{
		"a pipe":     {nil, stdin("keys\n"), keys, "no terminal got keys"},
		"a terminal": {&process.PTY{}, keys, stdin("lost\n"), "24 80 got keys"},
	} {
		req := shellRequest("stty size 2>/dev/null || echo no terminal; read line; echo got $line")
		req.Pty = how.pty
		stream, o := startPlain(ctx, t, c, req)
		for what, in := range map[string]*process.ProcessInput{"the other kind": how.wrong, "no kind": {}} {
			_, err := c.SendInput(ctx, connect.NewRequest(&process.SendInputRequest{Process: byPid(o.pid), Input: in}))
			if connect.CodeOf(err) != connect.CodeInvalidArgument {
				t.Errorf("%s, %s: %v", name, what, err)
			}
		}
		_, err := c.SendInput(ctx, connect.NewRequest(&process.SendInputRequest{Process: byPid(o.pid), Input: how.right}))
		must(t, err)
		finishPlain(t, stream, o)
		if got := strings.Join(strings.Fields(strings.Replace(o.stdout+o.pty, "keys\r\n", "", 1)), " "); !strings.HasSuffix(got, how.want) {
			t.Errorf("%s: %q", name, got)
		}
	}
}
