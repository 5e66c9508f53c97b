package gateway

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"

	"sandyard/providers"
)

// TerminalProtocol is the WebSocket subprotocol of terminals. A client need not name one.
const TerminalProtocol = "sandyard.terminal"

const (
	// maxTerminalClients bounds the connections to the terminals of one sandbox.
	maxTerminalClients = 64
	// terminalKeep is how much of a terminal's output is kept for those who come back, in bytes: more than can be on its way
	// to a client when the connection breaks.
	terminalKeep = 512 << 10
	// defaultShell is the shell that the image has.
	defaultShell = `[ -n "$LANG" ] || export LANG=C.UTF-8; exec "$(command -v bash || command -v sh)"`
)

// terminals counts the open connections to them.
type terminals struct {
	open sync.WaitGroup
	mu   sync.Mutex
	of   map[string]int
}

// enter counts a connection to a sandbox until leave is called, if there may be another.
func (t *terminals) enter(sandboxID string) (leave func(), ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.of[sandboxID] >= maxTerminalClients {
		return nil, false
	}
	if t.of == nil {
		t.of = map[string]int{}
	}
	t.of[sandboxID]++
	t.open.Add(1)
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.of[sandboxID]--; t.of[sandboxID] == 0 {
			delete(t.of, sandboxID)
		}
		t.open.Done()
	}, true
}

// openTerminal connects a WebSocket with a terminal, which is started if there is none of its name. All that can be
// refused is refused before the upgrade.
func (g *Gateway) openTerminal(w http.ResponseWriter, r *http.Request) {
	leave, ok := g.terminals.enter(targetOf(r.Context()).sandbox)
	if !ok {
		g.refuse(w, r, providers.TooManyExecs.Errorf("%d connections to terminals of this sandbox are open, which is the limit; close one", maxTerminalClients))
		return
	}
	defer leave()
	box, ok := g.sandbox(w, r)
	if !ok {
		return
	}
	inside, ok := box.(providers.Terminals)
	if !ok {
		g.refuse(w, r, providers.NotSupported.Errorf("this provider does not support terminals"))
		return
	}
	t := &terminal{inside: inside, ask: askedTerminal(r), id: rand.Text(), every: g.TerminalPing, silence: g.TerminalSilence}
	err := t.find(r.Context())
	// Of a connection that was taken over nobody but us ends the context.
	life, end := context.WithCancel(r.Context())
	defer end()
	if err == nil {
		t.from, err = inside.Tail(life, t.ask.exec, t.ask.offset)
	}
	if err != nil {
		g.refuse(w, r, err)
		return
	}
	defer func() { _ = t.from.Close() }() // whichever it is then
	conn, err := websocket.Accept(w, r, &websocket.AcceptOptions{
		InsecureSkipVerify: true, // the API has checked where the request comes from
		Subprotocols:       []string{TerminalProtocol},
	})
	if err != nil {
		g.Log.DebugContext(r.Context(), "terminal connection not upgraded", "sandbox_id", targetOf(r.Context()).sandbox, "error", err)
		return
	}
	t.conn, t.endTail = conn, end
	t.serve(r.Context())
}

// terminalAsk is what a client wants. The API's process has checked it.
type terminalAsk struct {
	exec   string // the command's name in the sandbox
	attach bool   // only to one that there is, from offset on
	offset int64
	size   providers.TerminalSize
	sized  bool // the client has said so
	shell  string
	dir    string
	user   string
}

func askedTerminal(r *http.Request) terminalAsk {
	query := r.URL.Query()
	a := terminalAsk{
		exec: query.Get("exec"), attach: query.Has("offset"), offset: number(r, "offset"), sized: query.Has("cols") || query.Has("rows"),
		shell: cmp.Or(query.Get("command"), defaultShell), dir: query.Get("cwd"), user: query.Get("user"),
	}
	a.size = providers.TerminalSize{Cols: uint16(cmp.Or(number(r, "cols"), 80)), Rows: uint16(cmp.Or(number(r, "rows"), 24))}
	return a
}

// terminal is one connection to one.
type terminal struct {
	inside  providers.Terminals
	ask     terminalAsk
	every   time.Duration // between two pings
	silence time.Duration // for a client that neither takes nor answers anything

	conn    *websocket.Conn
	from    providers.Tail
	endTail context.CancelFunc // of the first one, which somebody may be reading that has nothing to say
	at      int64              // how far the client has got
	pid     int
	joined  bool // it was there before

	moves  atomic.Int64 // what came or went
	typing atomic.Bool  // the command has not taken what came
	id     string       // of the connection
	inputs int
	ahead  int // bytes sent since the client has shown that it takes them
	work   sync.WaitGroup
}

// find finds the terminal or starts it.
func (t *terminal) find(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, dialPatience)
	defer cancel()
	e, err := t.inside.Exec(ctx, t.ask.exec, 0)
	known := err == nil
	switch {
	case t.ask.attach && err != nil:
		return err
	case err != nil && !errors.Is(err, providers.ErrNoExec):
		return err
	case t.ask.attach || known && e.Running:
		t.joined = true
	default:
		e, err = t.inside.Launch(ctx, providers.Command{
			Name: t.ask.exec, Shell: t.ask.shell, Dir: t.ask.dir, User: t.ask.user, MaxOutput: terminalKeep,
			Env: map[string]string{"TERM": "xterm-256color"}, Terminal: &t.ask.size, Anew: true,
		})
		if err != nil {
			return err
		}
	}
	t.pid = e.Pid
	if t.joined && t.ask.sized && e.Running {
		if err := t.resize(ctx, t.ask.size); err != nil {
			return err
		}
	}
	return nil
}

// resize takes no notice of a command that has just ended.
func (t *terminal) resize(ctx context.Context, size providers.TerminalSize) error {
	err := t.inside.Resize(ctx, t.ask.exec, size)
	if providers.AsError(err).Class == providers.ExecEnded {
		return nil
	}
	return err
}
