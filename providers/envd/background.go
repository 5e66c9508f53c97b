package envd

import (
	"cmp"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"sandyard/guest/protocol"
	"sandyard/providers"
)

const (
	maxPiece = 4 << 20 // bytes of output in one answer
	// longestWait is how long one call waits in the guest; who wants more calls again.
	longestWait = 2 * time.Minute
	// feedWait is how long a command has to read an input whose Wait is 0.
	feedWait = 5 * time.Second
)

var _ providers.Background = (*Sandbox)(nil)

// Launch is providers.Background.Launch.
func (s *Sandbox) Launch(ctx context.Context, cmd providers.Command) (providers.Exec, error) {
	req, err := s.startRequest(cmd) // for its checks and defaults
	if err != nil {
		return providers.Exec{}, err
	}
	config := req.Msg.GetProcess()
	launch := protocol.Launch{
		Shell: cmd.Shell, Argv: cmd.Argv, Env: cmd.Env, Dir: config.GetCwd(), Report: cmd.Report, Anew: cmd.Anew, Merge: cmd.Merge,
		Stdin: cmd.StdinOpen || len(cmd.Stdin) > 0, MaxOutput: maxOutput(cmd), TimeoutMs: cmd.Timeout.Milliseconds(),
	}
	if cmd.Terminal != nil {
		launch.Terminal = &protocol.Size{Cols: cmd.Terminal.Cols, Rows: cmd.Terminal.Rows}
	}
	var info protocol.ExecInfo
	err = s.execCall(ctx, http.MethodPost, cmd.Name, "", launch, &info)
	if err != nil || len(cmd.Stdin) == 0 {
		return execOf(cmd.Name, info), err
	}
	_, err = s.Feed(ctx, cmd.Name, providers.Input{ID: "launch", Data: cmd.Stdin, EOF: !cmd.StdinOpen, Wait: killGrace})
	if providers.AsError(err).Class == providers.ExecEnded {
		err = nil
	}
	return execOf(cmd.Name, info), err
}

// Execs is providers.Background.Execs.
func (s *Sandbox) Execs(ctx context.Context) ([]providers.Exec, error) {
	var infos []protocol.ExecInfo
	if err := s.call(ctx, http.MethodGet, protocol.ExecsPath+"?background=1", nil, &infos, maxExecList); err != nil {
		return nil, err
	}
	var list []providers.Exec
	for _, i := range infos {
		if i.Background && !i.Forgotten && protocol.ValidName(i.Name) {
			list = append(list, execOf(i.Name, i))
		}
	}
	slices.SortStableFunc(list, func(a, b providers.Exec) int { return cmp.Compare(b.AgeMS, a.AgeMS) })
	return list, nil
}

// Exec is providers.Background.Exec.
func (s *Sandbox) Exec(ctx context.Context, name string, wait time.Duration) (providers.Exec, error) {
	var info protocol.ExecInfo
	err := s.execCall(ctx, http.MethodGet, name, "?"+waitQuery(wait).Encode(), nil, &info)
	if err == nil && info.Forgotten && info.Background {
		return providers.Exec{}, providers.ErrNoExec
	}
	return execOf(name, info), err
}

// Output is providers.Background.Output.
func (s *Sandbox) Output(ctx context.Context, name string, q providers.OutputQuery) (providers.Output, error) {
	limit := maxPiece
	if q.Max > 0 {
		limit = min(q.Max, limit)
	}
	query := waitQuery(q.Wait)
	query.Set("stream", strconv.Itoa(int(q.Stream)))
	query.Set("offset", strconv.FormatInt(q.Offset, 10))
	query.Set("max", strconv.Itoa(limit))
	if !protocol.ValidName(name) {
		return providers.Output{}, providers.ErrNoExec
	}
	answer, err := s.do(ctx, http.MethodGet, protocol.ExecsPath+"/"+name+"/output?"+query.Encode(), nil, nil)
	if err != nil {
		return providers.Output{}, err
	}
	defer answer.Body.Close()
	info, begin, err := aboutOutput(answer.Header, q.Offset)
	if err != nil {
		return providers.Output{}, err
	}
	b, err := io.ReadAll(io.LimitReader(answer.Body, int64(limit)))
	if err != nil {
		return providers.Output{}, s.unavailable(err)
	}
	return providers.Output{Exec: execOf(name, info), Begin: begin, Data: b}, nil
}

// aboutOutput reads the headers of an answer with output: its command, and where the output begins.
func aboutOutput(h http.Header, offset int64) (info protocol.ExecInfo, begin int64, err error) {
	begin, err = strconv.ParseInt(h.Get(protocol.OffsetHeader), 10, 64)
	if err != nil || begin < offset || json.Unmarshal([]byte(h.Get(protocol.InfoHeader)), &info) != nil {
		return info, 0, providers.Internal.Errorf("the sandbox did not say what output it has")
	}
	if info.Forgotten && info.Background {
		return info, 0, providers.ErrNoExec
	}
	return info, begin, nil
}

// Feed is providers.Background.Feed.
func (s *Sandbox) Feed(ctx context.Context, name string, in providers.Input) (providers.Fed, error) {
	query := waitQuery(cmp.Or(in.Wait, feedWait))
	query.Set("id", in.ID)
	if in.EOF {
		query.Set("eof", "1")
	}
	if in.Fresh {
		query.Set("fresh", "1")
	}
	var fed protocol.Fed
	err := s.execCall(ctx, http.MethodPost, name, "/feed?"+query.Encode(), in.Data, &fed)
	return fedOf(fed), err
}

// Settle is providers.Background.Settle.
func (s *Sandbox) Settle(ctx context.Context, name, id string) (providers.Fed, error) {
	var fed protocol.Fed
	err := s.execCall(ctx, http.MethodPost, name, "/settle?"+url.Values{"id": {id}}.Encode(), nil, &fed)
	return fedOf(fed), err
}

func fedOf(f protocol.Fed) providers.Fed {
	for i := range f.Before {
		f.Before[i], f.After[i] = max(f.Before[i], 0), max(f.After[i], 0)
	}
	return providers.Fed{Age: milliseconds(f.AgeMs), Before: f.Before, After: f.After}
}

// Signal is providers.Background.Signal.
func (s *Sandbox) Signal(ctx context.Context, name, id, signal string) error {
	query := url.Values{"id": {id}, "signal": {signal}}
	return s.execCall(ctx, http.MethodPost, name, "/signal?"+query.Encode(), nil, nil)
}

// execCall makes a call about one command and decodes its answer, unless out is nil.
func (s *Sandbox) execCall(ctx context.Context, method, name, rest string, in, out any) error {
	if !protocol.ValidName(name) {
		return providers.ErrNoExec
	}
	return s.call(ctx, method, protocol.ExecsPath+"/"+name+rest, in, out, maxReport)
}

func waitQuery(wait time.Duration) url.Values {
	if wait <= 0 {
		return url.Values{}
	}
	return url.Values{"wait_ms": {strconv.FormatInt(min(wait, longestWait).Milliseconds(), 10)}}
}

// execOf bounds what a guest says of the command of that name.
func execOf(name string, i protocol.ExecInfo) providers.Exec {
	e := providers.Exec{
		ID: name, Running: i.Running, Terminal: i.Terminal, Pid: max(i.Pid, 0), TimedOut: i.KillReason == reasonTimeout, OOMKilled: i.OOMKills > 0,
		StdoutBytes: max(i.StdoutBytes, 0), StderrBytes: max(i.StderrBytes, 0),
		AgeMS: milliseconds(i.AgeMs).Milliseconds(), DurationMS: milliseconds(i.DurationMs).Milliseconds(),
	}
	if code := i.ExitCode & 0xff; !i.Running {
		e.ExitCode = &code
	}
	if i.Signal > 0 {
		e.Signal = signalName(i.Signal)
	}
	return e
}

func milliseconds(n int64) time.Duration {
	return time.Duration(min(max(n, 0), 1<<40)) * time.Millisecond
}
