package egress

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"sandyard/guest/tunnel"
	"sandyard/netguard"
)

const (
	// paceRate and paceBurst bound how fast one sandbox may ask for connections. What comes faster waits.
	paceRate  = 100
	paceBurst = 256
	// maxTotal is how many connections one worker makes for all its sandboxes at once.
	maxTotal       = 4096
	askPatience    = 10 * time.Second
	policyPatience = 5 * time.Second
	lookupPatience = 5 * time.Second
	dialPatience   = 10 * time.Second // for each address of a name
	maxAddresses   = 4                // of a name that are tried
)

// Config is what a Server stands on.
type Config struct {
	// Guard is the operator's word on addresses.
	Guard netguard.Rules
	// Policy reads the policy of a sandbox as it is written down.
	Policy func(ctx context.Context, sandbox string) (Policy, error)
	// Lookup finds the addresses of a name. Nil = the machine's resolver.
	Lookup func(ctx context.Context, name string) ([]netip.Addr, error)
	// Connections is how many one sandbox may have at once.
	Connections int
	// Total is how many all sandboxes together may have at once. 0 = 4096.
	Total int
	// BytesPerSecond bounds what one sandbox sends and receives. 0 = no limit.
	BytesPerSecond int
	// Idle is how long a connection may be silent.
	Idle time.Duration
	Log  *slog.Logger
}

// Server makes the connections that the sandboxes of one worker ask for. It implements providers.Outbound.
type Server struct {
	cfg    Config
	dialer net.Dialer
	totals totals

	mu    sync.Mutex
	boxes map[string]*box
}

// totals are counted over all sandboxes since the start.
type totals struct {
	open, connections, denied, sent, received atomic.Int64
}

// New returns a server.
func New(c Config) *Server {
	if c.Lookup == nil {
		c.Lookup = lookup
	}
	return &Server{cfg: c, dialer: net.Dialer{Timeout: dialPatience}, boxes: map[string]*box{}}
}

// lookup asks for the name as it stands: no search list may make another one of it.
func lookup(ctx context.Context, name string) ([]netip.Addr, error) {
	return net.DefaultResolver.LookupNetIP(ctx, "ip", name+".")
}

// Serve implements providers.Outbound.
func (s *Server) Serve(sandbox string, next func() (net.Conn, error)) {
	b := s.enter(sandbox)
	defer s.leave(b)
	life, end := context.WithCancel(context.Background()) // of the link
	pace := rate.NewLimiter(paceRate, paceBurst)
	var work sync.WaitGroup
	for pace.Wait(life) == nil {
		stream, err := next()
		if err != nil {
			break
		}
		work.Go(func() { s.serve(life, b, stream) })
	}
	end()
	work.Wait()
}

func (s *Server) enter(sandbox string) *box {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.boxes[sandbox]
	if b == nil {
		b = newBox(sandbox, s.cfg)
		s.boxes[sandbox] = b
	}
	b.links++
	return b
}

// leave keeps the box until its last counts have been taken.
func (s *Server) leave(b *box) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b.links--
}

// Apply makes a policy, which has been written down, hold for a sandbox that this worker serves. Connections that it
// does not allow are cut. One that cannot be read allows nothing.
func (s *Server) Apply(sandbox string, p Policy) {
	s.mu.Lock()
	b := s.boxes[sandbox]
	s.mu.Unlock()
	if b != nil {
		b.apply(p, s.cfg.Guard)
	}
}

// Served returns the sandboxes that this worker serves now.
func (s *Server) Served() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var ids []string
	for id, b := range s.boxes {
		if b.links > 0 {
			ids = append(ids, id)
		}
	}
	return ids
}

// serve answers one request.
func (s *Server) serve(life context.Context, b *box, stream net.Conn) {
	defer stream.Close()
	if err := s.take(b); err != nil {
		s.refuse(b, stream, "", err)
		return
	}
	defer s.giveBack(b)
	_ = stream.SetDeadline(time.Now().Add(askPatience))
	text, err := tunnel.Target(stream)
	if err != nil {
		return
	}
	t, err := parseTarget(text)
	if err != nil {
		s.refuse(b, stream, "", &refusal{ReasonTarget, fmt.Sprintf("%.80q %v", text, err)})
		return
	}
	_ = stream.SetDeadline(time.Time{})
	c, err := s.connect(life, b, t)
	if err != nil {
		s.refuse(b, stream, t.String(), err)
		return
	}
	defer b.remove(c)
	c.carry(life, stream)
}

// take counts a connection. Where the worker has no room for it, the sandbox that has most makes some.
func (s *Server) take(b *box) error {
	all, own := s.totals.open.Add(1), b.open.Add(1)
	switch {
	case own > int64(s.cfg.Connections):
		s.giveBack(b)
		return &refusal{ReasonLimit, "the sandbox has reached its limit of connections; close some"}
	case all > int64(cmp.Or(s.cfg.Total, maxTotal)) && !s.makeRoom(own):
		s.giveBack(b)
		return &refusal{
			ReasonTrouble,
			"the worker has reached its limit of connections for all sandboxes; try again, or close some",
		}
	}
	return nil
}

// makeRoom cuts the connection that has been silent for longest of the sandbox that has most, if that is more than
// twice as many as the one has that asks.
func (s *Server) makeRoom(own int64) bool {
	var most *box
	for _, b := range s.all() {
		if open := b.open.Load(); open > 2*own && (most == nil || open > most.open.Load()) {
			most = b
		}
	}
	return most != nil && most.cutSilent()
}

func (s *Server) giveBack(b *box) {
	s.totals.open.Add(-1)
	b.open.Add(-1)
}

// connect decides and dials. What is dialled is the address that was decided over.
func (s *Server) connect(ctx context.Context, b *box, t target) (*connection, error) {
	rules, err := b.rulesNow(ctx, s.cfg.Policy)
	if err != nil {
		s.cfg.Log.WarnContext(ctx, "egress policy of a sandbox not read", "sandbox_id", b.sandbox, "error", err)
		return nil, &refusal{ReasonTrouble, "the policy cannot be read now; try again"}
	}
	named, addresses, err := s.addresses(ctx, rules, t)
	if err != nil {
		return nil, err
	}
	for _, ip := range addresses[:min(len(addresses), maxAddresses)] {
		ip = netguard.Plain(ip)
		if err = rules.address(t, named, ip, s.cfg.Guard); err != nil {
			continue
		}
		var tcp *net.TCPConn
		if tcp, err = s.dial(ctx, netip.AddrPortFrom(ip, t.port)); err != nil {
			err = &refusal{ReasonDial, t.String() + " does not answer"}
			continue
		}
		return b.admit(&connection{server: s, box: b, target: t, ip: ip, tcp: tcp}, s.cfg.Guard)
	}
	return nil, err
}

// addresses finds where the target leads, and whether the policy means its name.
func (s *Server) addresses(ctx context.Context, rules *Rules, t target) (named bool, found []netip.Addr, err error) {
	if t.name == "" {
		return false, []netip.Addr{t.ip}, nil
	}
	if named, err = rules.name(t); err != nil {
		return named, nil, err
	}
	ctx, stop := context.WithTimeout(ctx, lookupPatience)
	defer stop()
	found, err = s.cfg.Lookup(ctx, t.name)
	if err != nil || len(found) == 0 {
		return named, nil, &refusal{ReasonUnknown, t.name + " has no address"}
	}
	return named, found, nil
}

func (s *Server) dial(ctx context.Context, to netip.AddrPort) (*net.TCPConn, error) {
	conn, err := s.dialer.DialContext(ctx, "tcp", to.String())
	if err != nil {
		return nil, err
	}
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		return nil, errors.Join(errors.New("no TCP connection"), conn.Close())
	}
	return tcp, nil
}

// refuse answers the guest, and notes what was no mere failure.
func (s *Server) refuse(b *box, stream net.Conn, target string, err error) {
	why := &refusal{reason: ReasonTrouble, message: err.Error()}
	errors.As(err, &why)
	answer := tunnel.Denied
	switch why.reason {
	case ReasonDial, ReasonUnknown:
		answer = tunnel.Unreachable
	case ReasonTrouble:
		answer = tunnel.Unavailable
	default:
		s.totals.denied.Add(1)
		b.deny(s.cfg.Log, target, why)
	}
	_ = stream.SetDeadline(time.Now().Add(askPatience))
	tunnel.Refuse(stream, answer, why.message)
}
