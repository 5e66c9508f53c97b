// Package pool keeps account of started containers that wait for sandboxes: how many of which class there are to be,
// who takes which, and when another is to be made. It knows no engine: package docker makes, checks and removes them.
package pool

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"sandyard/providers"
	"sandyard/providers/envd"
	"sandyard/providers/guestconn"
)

const (
	// MemberAge is when a container that nobody wanted is replaced. What is twice as old has lost its worker, for no
	// worker hands it out any more.
	MemberAge = time.Hour
	// demandWindow is the time whose creates the pool is made ready for.
	demandWindow = time.Minute
	// refillPause is the rest after a container that could not be made; it doubles up to longestPause.
	refillPause  = 10 * time.Second
	longestPause = 5 * time.Minute
	// settling is the rest of the refiller after a create, in which its end is written down and told: a container that
	// starts meanwhile takes the processors away from that. A class of which none is left has no time for it.
	settling = 10 * time.Millisecond
)

// Pool keeps the members that wait, by class. Every member is taken by one caller, who owns it from then on.
type Pool struct {
	cfg  Config
	key  func(providers.Spec) string // of the class that a spec belongs to
	wake chan struct{}               // asks the refiller to look

	mu      sync.Mutex
	shelves map[string]*shelf
	order   []*shelf // all of them, as they take their turns
	room    providers.PoolRoom
	turns   int       // of the refiller
	busy    int       // creates under way
	ended   time.Time // the last of them
	closed  bool
}

// shelf holds the members of one class.
type shelf struct {
	class    providers.PoolClass
	idle     []*Member   // oldest first
	asked    []time.Time // creates within the demand window
	restTo   time.Time   // no refill before
	failures int         // to make a member, one after the other
	turn     int         // of the refiller, when it was last this class's
}

// Member is a started container that is nobody's sandbox yet.
type Member struct {
	Key     string         // of its class
	Spec    providers.Spec // what it was made from
	ImageID string         // what the image's name meant then
	Name    string
	Ref     string
	MadeAt  time.Time
	Inside  *envd.Sandbox
	Raw     guestconn.Stream
}

// LetGo closes the conversation with the guest. The container stays.
func (m *Member) LetGo() {
	_ = m.Inside.Close()
	_ = m.Raw.Close()
}

// New makes an empty pool. key is the same for specs whose containers differ in nothing but what can be changed about
// one that runs.
func New(cfg Config, key func(providers.Spec) string) *Pool {
	return &Pool{
		cfg:     cfg.complete(),
		key:     key,
		wake:    make(chan struct{}, 1),
		shelves: make(map[string]*shelf),
		room:    providers.AnyRoom(),
	}
}

// Config is what the pool was made with, complete.
func (l *Pool) Config() Config { return l.cfg }

// Woken receives when a member may be lacking.
func (l *Pool) Woken() <-chan struct{} { return l.wake }

// Stock makes the pool hold members of one more class from now on.
func (l *Pool) Stock(c providers.PoolClass) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if key := l.key(c.Spec); l.cfg.Size > 0 && !l.closed && l.shelves[key] == nil {
		l.shelves[key] = &shelf{class: c}
		l.order = append(l.order, l.shelves[key])
	}
	l.Kick()
}

// Restock makes the pool hold members of these classes and no others, as far as room reaches. It returns those whose
// class is not wanted any more.
func (l *Pool) Restock(classes []providers.PoolClass, room providers.PoolRoom) (gone []*Member) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cfg.Size <= 0 || l.closed {
		return nil
	}
	wanted := make(map[string]*shelf)
	l.order, l.room = nil, room
	for _, c := range classes {
		key := l.key(c.Spec)
		s := cmp.Or(wanted[key], l.shelves[key], &shelf{})
		if wanted[key] != nil { // templates that differ in nothing that matters here share their members
			c.Min, c.Max = max(c.Min, s.class.Min), max(c.Max, s.class.Max)
		} else {
			l.order = append(l.order, s)
		}
		s.class, wanted[key] = c, s
	}
	for key, s := range l.shelves {
		if wanted[key] == nil {
			gone = append(gone, s.idle...)
		}
	}
	l.shelves = wanted
	l.Kick()
	return gone
}

// Kick wakes the refiller.
func (l *Pool) Kick() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// Ask notes that a sandbox of the class is wanted.
func (l *Pool) Ask(key string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s := l.shelves[key]; s != nil {
		s.asked = append(s.asked[max(0, len(s.asked)-s.class.Max):], time.Now())
	}
}

// Take removes the oldest member of the class from the pool and returns it, or nil where there is none.
func (l *Pool) Take(key string) *Member {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.shelves[key]
	if s == nil || len(s.idle) == 0 {
		return nil
	}
	m := s.idle[0]
	s.idle = slices.Delete(s.idle, 0, 1)
	return m
}

// Put adds a member. It answers false when the pool has no place for it any more.
func (l *Pool) Put(m *Member) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.shelves[m.Key]
	if l.closed || s == nil {
		return false
	}
	s.idle, s.failures = append(s.idle, m), 0
	return true
}

// Drop removes m. It answers false when somebody else has taken it.
func (l *Pool) Drop(m *Member) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.shelves[m.Key]
	if s == nil {
		return false
	}
	i := slices.Index(s.idle, m)
	if i < 0 {
		return false
	}
	s.idle = slices.Delete(s.idle, i, i+1)
	return true
}

// Lacking returns what to make the next member from, if this is a time to make one: creates that wait come first.
// Classes that lack some take turns.
func (l *Pool) Lacking() (spec providers.Spec, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.busy > 0 || l.closed {
		return spec, false
	}
	var next *shelf
	share := l.shares()
	settles := time.Since(l.ended) < settling
	for _, s := range l.order {
		if settles && len(s.idle) > 0 {
			continue
		}
		if len(s.idle) < share[s] && time.Now().After(s.restTo) && (next == nil || s.turn < next.turn) {
			next = s
		}
	}
	if next == nil {
		return spec, false
	}
	l.turns++
	next.turn = l.turns
	return next.class.Spec, true
}

// shares divides the room among the classes: each gets one member after the other as long as it wants more and there is
// room for it. The caller holds the pool's lock.
func (l *Pool) shares() map[*shelf]int {
	left, share, want := l.room, map[*shelf]int{}, map[*shelf]int{}
	for _, s := range l.order {
		want[s] = s.target()
	}
	for gave := true; gave; {
		gave = false
		for _, s := range l.order {
			rest, fits := left.Take(s.class.Spec.Resources)
			if fits && share[s] < want[s] {
				left, gave = rest, true
				share[s]++
			}
		}
	}
	return share
}

// target is how many members s should hold, if there were room. The caller holds the pool's lock.
func (s *shelf) target() int {
	s.asked = slices.DeleteFunc(s.asked, func(at time.Time) bool { return time.Since(at) > demandWindow })
	return max(min(len(s.asked), s.class.Max), s.class.Min)
}

// Rest keeps the refiller from a class for a while.
func (l *Pool) Rest(key string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s := l.shelves[key]; s != nil {
		s.restTo = time.Now().Add(min(refillPause<<min(s.failures, 10), longestPause))
		s.failures++
	}
}

// Surplus removes the members that recent demand no longer asks for, or for which there is no room any more.
func (l *Pool) Surplus() []*Member {
	l.mu.Lock()
	defer l.mu.Unlock()
	var over []*Member
	share := l.shares()
	for _, s := range l.order {
		n := max(0, len(s.idle)-share[s])
		over = append(over, s.idle[:n]...)
		s.idle = slices.Delete(s.idle, 0, n)
	}
	return over
}

// All returns the members that wait.
func (l *Pool) All() []*Member {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.members()
}

func (l *Pool) members() []*Member {
	var all []*Member
	for _, s := range l.shelves {
		all = append(all, s.idle...)
	}
	return all
}

// Begin notes a create, during which nothing is refilled; the returned function ends it.
func (l *Pool) Begin() (end func()) {
	l.count(1)
	return func() { l.count(-1) }
}

func (l *Pool) count(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.busy += n; l.busy == 0 {
		l.ended = time.Now()
		l.Kick()
		time.AfterFunc(settling, l.Kick)
	}
}

// Close ends the pool and returns what was in it.
func (l *Pool) Close() []*Member {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := l.members()
	l.closed, l.order = true, nil
	clear(l.shelves)
	return all
}
