package docker

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"time"

	"sandyard/providers"
	"sandyard/providers/confine"
	"sandyard/providers/envd"
)

const (
	// poolPatience is the default of Pool.Patience.
	poolPatience = 30 * time.Second
	// tendsPerPatience is how often a waiting guest is spoken to before it would give its worker up.
	tendsPerPatience = 6
	// memberAge is when a container that nobody wanted is replaced. What is twice as old has lost its worker, for no
	// worker hands it out any more.
	memberAge = time.Hour
	// demandWindow is the time whose creates the pool is made ready for.
	demandWindow = time.Minute
	// refillPause is the rest after a container that could not be made; it doubles up to longestPause.
	refillPause  = 10 * time.Second
	longestPause = 5 * time.Minute
	// settling is the rest of the refiller after a create, in which its end is written down and told: a container that
	// starts meanwhile takes the processors away from that. A class of which none is left has no time for it.
	settling = 10 * time.Millisecond
)

// Pool says how many started containers wait, each with a guest that has answered, for sandboxes to become.
type Pool struct {
	// Size is how many wait of each image that Ensure was called for, until Stock says what is to wait. 0 = no pool.
	Size int
	// Max is how many of them may wait when as many sandboxes were made within the last minute.
	Max int
	// Patience is how long containers in waiting live on when their worker has died. 0 = half a minute.
	Patience time.Duration
}

func (c Pool) complete() Pool {
	if c.Patience <= 0 {
		c.Patience = poolPatience
	}
	c.Max = max(c.Max, c.Size)
	return c
}

// pool keeps the members that wait, by class. Every member is taken by one caller, who owns it from then on.
type pool struct {
	cfg  Pool
	wake chan struct{} // asks the refiller to look

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
	idle     []*member   // oldest first
	asked    []time.Time // creates within the demand window
	restTo   time.Time   // no refill before
	failures int         // to make a member, one after the other
	turn     int         // of the refiller, when it was last this class's
}

// member is a started container that is nobody's sandbox yet.
type member struct {
	key     string         // of its class
	spec    providers.Spec // what it was made from
	imageID string         // what the image's name meant then
	name    string
	ref     string
	madeAt  time.Time
	inside  *envd.Sandbox
	raw     *stream
}

// classKey is the same for specs whose containers differ in nothing but what can be changed about one that runs.
func classKey(spec providers.Spec) string {
	fixed := []any{spec.Image, spec.Runtime, spec.WorkDir, tmpfs(spec), confine.SharedMB(spec.Resources)}
	if spec.Runtime != "" { // not every runtime lets them be changed
		fixed = append(fixed, spec.Resources)
	}
	return fmt.Sprintf("%q", fixed)
}

func (m *member) letGo() {
	_ = m.inside.Close()
	_ = m.raw.Close()
}

func newPool(cfg Pool) *pool {
	return &pool{cfg: cfg.complete(), wake: make(chan struct{}, 1), shelves: make(map[string]*shelf), room: providers.AnyRoom()}
}

// stock makes the pool hold members of one more class from now on.
func (l *pool) stock(c providers.PoolClass) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if key := classKey(c.Spec); l.cfg.Size > 0 && !l.closed && l.shelves[key] == nil {
		l.shelves[key] = &shelf{class: c}
		l.order = append(l.order, l.shelves[key])
	}
	l.kick()
}

// restock makes the pool hold members of these classes and no others, as far as room reaches. It returns those whose class is
// not wanted any more.
func (l *pool) restock(classes []providers.PoolClass, room providers.PoolRoom) (gone []*member) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cfg.Size <= 0 || l.closed {
		return nil
	}
	wanted := make(map[string]*shelf)
	l.order, l.room = nil, room
	for _, c := range classes {
		key := classKey(c.Spec)
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
	l.kick()
	return gone
}

func (l *pool) kick() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// ask notes that a sandbox of the class is wanted.
func (l *pool) ask(key string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s := l.shelves[key]; s != nil {
		s.asked = append(s.asked[max(0, len(s.asked)-s.class.Max):], time.Now())
	}
}

// take removes the oldest member of the class from the pool and returns it, or nil where there is none.
func (l *pool) take(key string) *member {
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

// put adds a member. It answers false when the pool has no place for it any more.
func (l *pool) put(m *member) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.shelves[m.key]
	if l.closed || s == nil {
		return false
	}
	s.idle, s.failures = append(s.idle, m), 0
	return true
}

// drop removes m. It answers false when somebody else has taken it.
func (l *pool) drop(m *member) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.shelves[m.key]
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

// lacking returns what to make the next member from, if this is a time to make one: creates that wait come first. Classes
// that lack some take turns.
func (l *pool) lacking() (spec providers.Spec, ok bool) {
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

// shares divides the room among the classes: each gets one member after the other as long as it wants more and there is room
// for it. The caller holds the pool's lock.
func (l *pool) shares() map[*shelf]int {
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

// rest keeps the refiller from a class for a while.
func (l *pool) rest(key string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s := l.shelves[key]; s != nil {
		s.restTo = time.Now().Add(min(refillPause<<min(s.failures, 10), longestPause))
		s.failures++
	}
}

// surplus removes the members that recent demand no longer asks for, or for which there is no room any more.
func (l *pool) surplus() []*member {
	l.mu.Lock()
	defer l.mu.Unlock()
	var over []*member
	share := l.shares()
	for _, s := range l.order {
		n := max(0, len(s.idle)-share[s])
		over = append(over, s.idle[:n]...)
		s.idle = slices.Delete(s.idle, 0, n)
	}
	return over
}

// all returns the members that wait.
func (l *pool) all() []*member {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.members()
}

func (l *pool) members() []*member {
	var all []*member
	for _, s := range l.shelves {
		all = append(all, s.idle...)
	}
	return all
}

// begin notes a create, during which nothing is refilled; the returned function ends it.
func (l *pool) begin() (end func()) {
	l.count(1)
	return func() { l.count(-1) }
}

func (l *pool) count(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.busy += n; l.busy == 0 {
		l.ended = time.Now()
		l.kick()
		time.AfterFunc(settling, l.kick)
	}
}

// close ends the pool and returns what was in it.
func (l *pool) close() []*member {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := l.members()
	l.closed, l.order = true, nil
	clear(l.shelves)
	return all
}
