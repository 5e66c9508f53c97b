package envd_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"sandyard/dev/testenv"
	"sandyard/guest/envdpb/process"
	"sandyard/guest/envdpb/process/processconnect"
	"sandyard/providers/envd"

	"connectrpc.com/connect"
)

// These tests speak envd's own protocol, as E2B's clients do, without names for commands.

func plainClient(s *envd.Sandbox) processconnect.ProcessClient {
	hc, base := s.HTTP()
	return processconnect.NewProcessClient(hc, base, connect.WithProtoJSON())
}

func shellRequest(script string) *process.StartRequest {
	return &process.StartRequest{Process: &process.ProcessConfig{Cmd: "/bin/sh", Args: []string{"-c", script}}}
}

// outcome is what a stream of events told.
type outcome struct {
	pid            uint32
	stdout, stderr string
	pty            string
	keepalives     int
	end            *process.ProcessEvent_EndEvent
}

func (o *outcome) take(event *process.ProcessEvent) {
	switch e := event.GetEvent().(type) {
	case *process.ProcessEvent_Start:
		o.pid = e.Start.GetPid()
	case *process.ProcessEvent_Data:
		o.stdout += string(e.Data.GetStdout())
		o.stderr += string(e.Data.GetStderr())
		o.pty += string(e.Data.GetPty())
	case *process.ProcessEvent_Keepalive:
		o.keepalives++
	case *process.ProcessEvent_End:
		o.end = e.End
	}
}

func startPlain(ctx context.Context, t *testing.T, c processconnect.ProcessClient, req *process.StartRequest) (*connect.ServerStreamForClient[process.StartResponse], *outcome) {
	t.Helper()
	stream, err := c.Start(ctx, connect.NewRequest(req))
	must(t, err)
	t.Cleanup(func() { _ = stream.Close() })
	o := &outcome{}
	if !stream.Receive() {
		t.Fatal(stream.Err())
	}
	o.take(stream.Msg().GetEvent())
	return stream, o
}

func finishPlain(t *testing.T, stream *connect.ServerStreamForClient[process.StartResponse], o *outcome) {
	t.Helper()
	for stream.Receive() {
		o.take(stream.Msg().GetEvent())
	}
	must(t, stream.Err())
	if o.end == nil {
		t.Fatal("no end event")
	}
}

func byPid(pid uint32) *process.ProcessSelector {
	return &process.ProcessSelector{Selector: &process.ProcessSelector_Pid{Pid: pid}}
}

func TestPlainCommands(t *testing.T) {
	t.Parallel()
	c := plainClient(newEngine(t).sandbox(envd.Options{}))
	for script, want := range map[string]string{
		"echo out; echo err >&2; exit 7": `out "out\n" err "err\n" code 7 exited true status "exit status 7"`,
		"true":                           `out "" err "" code 0 exited true status "exit status 0"`,
		"kill -9 $$":                     `out "" err "" code -1 exited false status "signal: killed"`,
		"head -c 3000000 /dev/zero | tr '\\0' x | wc -c; sleep 0.1 &": `out "3000000\n" err "" code 0 exited true status "exit status 0"`,
	} {
		stream, o := startPlain(patient(t), t, c, shellRequest(script))
		finishPlain(t, stream, o)
		got := fmt.Sprintf("out %q err %q code %d exited %v status %q", o.stdout, o.stderr, o.end.GetExitCode(), o.end.GetExited(), o.end.GetStatus())
		if got != want || o.pid == 0 {
			t.Errorf("%s: got %s, want %s", script, got, want)
		}
	}
}

func TestPlainErrors(t *testing.T) {
	t.Parallel()
	c := plainClient(newEngine(t).sandbox(envd.Options{}))
	ctx := patient(t)
	nowhere := shellRequest("true")
	nowhere.Process.Cwd = new("/nope")
	for text, req := range map[string]*process.StartRequest{
		"invalid_argument: cwd '/nope' does not exist": nowhere,
		"not_found: command 'nope' not found":          {Process: &process.ProcessConfig{Cmd: "nope"}},
	} {
		stream, err := c.Start(ctx, connect.NewRequest(req))
		must(t, err)
		if stream.Receive() || stream.Err().Error() != text {
			t.Errorf("got %v, want %s", stream.Err(), text)
		}
		must(t, stream.Close())
	}
	_, err := c.SendSignal(ctx, connect.NewRequest(&process.SendSignalRequest{Process: byPid(99999), Signal: process.Signal_SIGNAL_SIGKILL}))
	if connect.CodeOf(err) != connect.CodeNotFound {
		t.Errorf("got %v", err)
	}
}

func TestPlainInputSignalsAndList(t *testing.T) {
	t.Parallel()
	c := plainClient(newEngine(t).sandbox(envd.Options{}))
	ctx := patient(t)
	req := shellRequest("cat; echo eof; exec sleep 1000")
	req.Tag = new("mine")
	stream, o := startPlain(ctx, t, c, req)
	for _, part := range []string{"one ", "two\n"} {
		_, err := c.SendInput(ctx, connect.NewRequest(&process.SendInputRequest{
			Process: byPid(o.pid), Input: &process.ProcessInput{Input: &process.ProcessInput_Stdin{Stdin: []byte(part)}},
		}))
		must(t, err)
	}
	_, err := c.CloseStdin(ctx, connect.NewRequest(&process.CloseStdinRequest{Process: byPid(o.pid)}))
	must(t, err)
	for !strings.HasSuffix(o.stdout, "eof\n") && stream.Receive() {
		o.take(stream.Msg().GetEvent())
	}
	if o.stdout != "one two\neof\n" {
		t.Errorf("got %q", o.stdout)
	}
	list, err := c.List(ctx, connect.NewRequest(&process.ListRequest{}))
	must(t, err)
	if p := list.Msg.GetProcesses(); len(p) != 1 || p[0].GetPid() != o.pid || p[0].GetTag() != "mine" || p[0].GetConfig().GetCmd() != "/bin/sh" {
		t.Errorf("got %v", p)
	}
	tag := &process.ProcessSelector{Selector: &process.ProcessSelector_Tag{Tag: "mine"}}
	_, err = c.SendSignal(ctx, connect.NewRequest(&process.SendSignalRequest{Process: tag, Signal: process.Signal_SIGNAL_SIGTERM}))
	must(t, err)
	finishPlain(t, stream, o)
	if o.end.GetStatus() != "signal: terminated" {
		t.Errorf("got %v", o.end)
	}
}

func TestAPlainCommandOutlivesItsClientButNotItsDeadline(t *testing.T) {
	t.Parallel()
	s := newEngine(t).sandbox(envd.Options{})
	c := plainClient(s)
	ctx, cancel := context.WithCancel(context.Background())
	_, left := startPlain(ctx, t, c, shellRequest("sleep 1000"))
	cancel()
	short, cancelShort := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancelShort()
	stream, _ := startPlain(short, t, c, shellRequest("sleep 1000"))
	for stream.Receive() {
	}
	if connect.CodeOf(stream.Err()) != connect.CodeDeadlineExceeded {
		t.Errorf("got %v", stream.Err())
	}
	testenv.Eventually(t, "only the one without a deadline runs", func() bool {
		list, err := c.List(patient(t), connect.NewRequest(&process.ListRequest{}))
		must(t, err)
		p := list.Msg.GetProcesses()
		return len(p) == 1 && p[0].GetPid() == left.pid
	})
	again, err := c.Connect(patient(t), connect.NewRequest(&process.ConnectRequest{Process: byPid(left.pid)}))
	must(t, err)
	defer again.Close()
	o := &outcome{}
	for again.Receive() {
		if o.take(again.Msg().GetEvent()); o.end == nil && o.pid == left.pid {
			_, err := c.SendSignal(patient(t), connect.NewRequest(&process.SendSignalRequest{Process: byPid(left.pid), Signal: process.Signal_SIGNAL_SIGKILL}))
			must(t, err)
		}
	}
	if o.end.GetStatus() != "signal: killed" {
		t.Errorf("got %v, %v", o.end, again.Err())
	}
}

func TestTerminal(t *testing.T) {
	t.Parallel()
	c := plainClient(newEngine(t).sandbox(envd.Options{}))
	ctx := patient(t)
	req := shellRequest("test -t 0 && test -t 1 && stty size; read line; stty size; echo got $line")
	req.Pty = &process.PTY{Size: &process.PTY_Size{Cols: 77, Rows: 33}}
	stream, o := startPlain(ctx, t, c, req)
	for !strings.Contains(o.pty, "33 77") && stream.Receive() {
		o.take(stream.Msg().GetEvent())
	}
	_, err := c.Update(ctx, connect.NewRequest(&process.UpdateRequest{Process: byPid(o.pid), Pty: &process.PTY{Size: &process.PTY_Size{Cols: 10, Rows: 5}}}))
	must(t, err)
	_, err = c.SendInput(ctx, connect.NewRequest(&process.SendInputRequest{
		Process: byPid(o.pid), Input: &process.ProcessInput{Input: &process.ProcessInput_Pty{Pty: []byte("hello\r")}},
	}))
	must(t, err)
	finishPlain(t, stream, o)
	if !strings.Contains(o.pty, "5 10\r\n") || !strings.Contains(o.pty, "got hello\r\n") || o.end.GetExitCode() != 0 {
		t.Errorf("got %q, %v", o.pty, o.end)
	}
}

func stdin(text string) *process.ProcessInput {
	return &process.ProcessInput{Input: &process.ProcessInput_Stdin{Stdin: []byte(text)}}
}

func byTag(tag string) *process.ProcessSelector {
	return &process.ProcessSelector{Selector: &process.ProcessSelector_Tag{Tag: tag}}
}

// TestStreamedInput: a stream names its command and then feeds it, in order; what it says before that goes nowhere.
func TestStreamedInput(t *testing.T) {
	t.Parallel()
	c := plainClient(newEngine(t).sandbox(envd.Options{}))
	ctx := patient(t)
	req := shellRequest("sha256sum; echo done")
	req.Tag = new("eater")
	stream, o := startPlain(ctx, t, c, req)
	in := c.StreamInput(ctx)
	send := func(m *process.StreamInputRequest) error { return in.Send(m) }
	begin := &process.StreamInputRequest{Event: &process.StreamInputRequest_Start{Start: &process.StreamInputRequest_StartEvent{Process: byTag("eater")}}}
	must(t, send(begin))
	hash := sha256.New()
	for i := range 200 {
		part := strings.Repeat(fmt.Sprintf("part %d\n", i), 100)
		_, _ = hash.Write([]byte(part))
		must(t, send(&process.StreamInputRequest{Event: &process.StreamInputRequest_Data{Data: &process.StreamInputRequest_DataEvent{Input: stdin(part)}}}))
	}
	must(t, send(&process.StreamInputRequest{Event: &process.StreamInputRequest_Keepalive{Keepalive: &process.StreamInputRequest_KeepAlive{}}}))
	_, err := in.CloseAndReceive()
	must(t, err)
	_, err = c.CloseStdin(ctx, connect.NewRequest(&process.CloseStdinRequest{Process: byTag("eater")}))
	must(t, err)
	finishPlain(t, stream, o)
	if want := fmt.Sprintf("%x  -\ndone\n", hash.Sum(nil)); o.stdout != want {
		t.Errorf("it read %q, want %q", o.stdout, want)
	}
	for name, first := range map[string]*process.StreamInputRequest{
		"invalid_argument": {Event: &process.StreamInputRequest_Data{Data: &process.StreamInputRequest_DataEvent{Input: stdin("early")}}},
		"not_found":        {Event: &process.StreamInputRequest_Start{Start: &process.StreamInputRequest_StartEvent{Process: byTag("nobody")}}},
	} {
		wrong := c.StreamInput(ctx)
		_ = wrong.Send(first) // the answer says what is wrong
		if _, err := wrong.CloseAndReceive(); connect.CodeOf(err).String() != name {
			t.Errorf("got %v, want %s", err, name)
		}
	}
}

// TestATerminalHasNoInputToClose: its end of input is a byte, as the refusal says.
func TestATerminalHasNoInputToClose(t *testing.T) {
	t.Parallel()
	c := plainClient(newEngine(t).sandbox(envd.Options{}))
	ctx := patient(t)
	req := shellRequest("echo ready; cat; echo closed")
	req.Pty = &process.PTY{Size: &process.PTY_Size{Cols: 80, Rows: 24}}
	stream, o := startPlain(ctx, t, c, req)
	for !strings.Contains(o.pty, "ready") && stream.Receive() {
		o.take(stream.Msg().GetEvent())
	}
	_, err := c.CloseStdin(ctx, connect.NewRequest(&process.CloseStdinRequest{Process: byPid(o.pid)}))
	if connect.CodeOf(err) != connect.CodeFailedPrecondition || !strings.Contains(err.Error(), "0x04") {
		t.Errorf("got %v", err)
	}
	_, err = c.SendInput(ctx, connect.NewRequest(&process.SendInputRequest{
		Process: byPid(o.pid), Input: &process.ProcessInput{Input: &process.ProcessInput_Pty{Pty: []byte{4}}},
	}))
	must(t, err)
	finishPlain(t, stream, o)
	if !strings.Contains(o.pty, "closed") || o.end.GetExitCode() != 0 {
		t.Errorf("got %q, %v", o.pty, o.end)
	}
}

// TestConnectByTag: who knows a command's tag alone follows it to its end.
func TestConnectByTag(t *testing.T) {
	t.Parallel()
	c := plainClient(newEngine(t).sandbox(envd.Options{}))
	ctx := patient(t)
	req := shellRequest("read line; echo got $line; exit 5")
	req.Tag = new("mine")
	_, first := startPlain(ctx, t, c, req)
	other, err := c.Connect(ctx, connect.NewRequest(&process.ConnectRequest{Process: byTag("mine")}))
	must(t, err)
	defer other.Close()
	o := &outcome{}
	for other.Receive() {
		if o.take(other.Msg().GetEvent()); o.pid != 0 && o.stdout == "" && o.end == nil {
			_, err := c.SendInput(ctx, connect.NewRequest(&process.SendInputRequest{Process: byTag("mine"), Input: stdin("it\n")}))
			must(t, err)
		}
	}
	must(t, other.Err())
	if o.pid != first.pid || o.stdout != "got it\n" || o.end.GetExitCode() != 5 {
		t.Errorf("followed %d as %+v", first.pid, o)
	}
	nobody, err := c.Connect(ctx, connect.NewRequest(&process.ConnectRequest{Process: byTag("theirs")}))
	must(t, err)
	defer nobody.Close()
	if nobody.Receive() || connect.CodeOf(nobody.Err()) != connect.CodeNotFound {
		t.Errorf("a tag that nobody has: %v", nobody.Err())
	}
}

func TestKeepalive(t *testing.T) {
	t.Parallel()
	c := plainClient(newEngine(t).sandbox(envd.Options{}))
	req := connect.NewRequest(shellRequest("sleep 1.5"))
	req.Header().Set("Keepalive-Ping-Interval", "1")
	stream, err := c.Start(patient(t), req)
	must(t, err)
	defer stream.Close()
	o := &outcome{}
	finishPlain(t, stream, o)
	if o.keepalives == 0 {
		t.Error("no keepalive came")
	}
}

func TestPlainFiles(t *testing.T) {
	t.Parallel()
	s := newEngine(t).sandbox(envd.Options{})
	hc, base := s.HTTP()
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	for _, name := range []string{"one.txt", "deep/two.txt"} {
		part, err := form.CreateFormFile("file", name)
		must(t, err)
		_, err = io.WriteString(part, "content of "+name)
		must(t, err)
	}
	must(t, form.Close())
	answer, err := hc.Post(base+"/files?username=root", form.FormDataContentType(), &body)
	must(t, err)
	text, err := io.ReadAll(answer.Body)
	must(t, err)
	must(t, answer.Body.Close())
	if answer.StatusCode != http.StatusOK || !strings.Contains(string(text), `"name":"two.txt"`) {
		t.Fatalf("got %d %s", answer.StatusCode, text)
	}
	if b, err := s.ReadFile(patient(t), "deep/two.txt", 100); err != nil || string(b) != "content of deep/two.txt" {
		t.Errorf("got %q, %v", b, err)
	}
	for target, want := range map[string]string{
		"/files?path=nope":                    "404 path 'nope' does not exist",
		"/files?path=deep":                    "400 path 'deep' is a directory",
		"/files?path=one.txt&username=nobody": "401 invalid username: 'nobody'",
	} {
		answer, err := hc.Get(base + target)
		must(t, err)
		text, err := io.ReadAll(answer.Body)
		must(t, err)
		must(t, answer.Body.Close())
		status, message, _ := strings.Cut(want, " ")
		if fmt.Sprint(answer.StatusCode) != status || !strings.Contains(string(text), message) {
			t.Errorf("%s: got %d %s", target, answer.StatusCode, text)
		}
	}
}

// A client that has heard of the end and signals the pid must not be told that it reached anything.
func TestAnEndedCommandIsNotFoundByItsPid(t *testing.T) {
	t.Parallel()
	c := plainClient(newEngine(t).sandbox(envd.Options{}))
	ctx := patient(t)
	var clients sync.WaitGroup
	for range 16 {
		clients.Go(func() {
			for range 100 {
				if err := signalAtTheEnd(ctx, c); connect.CodeOf(err) != connect.CodeNotFound {
					t.Errorf("got %v, want not found", err)
					return
				}
			}
		})
	}
	clients.Wait()
}

// signalAtTheEnd signals a command as soon as its end is told.
func signalAtTheEnd(ctx context.Context, c processconnect.ProcessClient) error {
	stream, err := c.Start(ctx, connect.NewRequest(shellRequest("true")))
	if err != nil {
		return err
	}
	defer stream.Close()
	var o outcome
	for o.end == nil && stream.Receive() {
		o.take(stream.Msg().GetEvent())
	}
	_, err = c.SendSignal(ctx, connect.NewRequest(&process.SendSignalRequest{Process: byPid(o.pid), Signal: process.Signal_SIGNAL_SIGKILL}))
	return err
}
