package docker

import (
	"slices"
	"sync"
	"time"

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
	// refillPause is the rest after a container that could not be made.
	refillPause = 10 * time.Second
)

// Pool says how many started containers wait, each with a guest that has answered, for sandboxes to become.
type Pool struct {
	// Size is how many wait of each image that Ensure was called for. 0 = no pool.
	Size int
	// Max is how many may wait of an image of which as many sandboxes were made within the last minute.
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

// pool keeps the members that wait, by image. Every member is taken by one caller, who owns it from then on.
type pool struct {
	cfg  Pool
	wake chan struct{} // asks the refiller to look

	mu      sync.Mutex
	shelves map[string]*shelf
	busy    int // creates under way
	closed  bool
}

// shelf holds the members made from one image.
type shelf struct {
	idle   []*member   // oldest first
	asked  []time.Time // creates within the demand window
	restTo time.Time   // no refill before
}

// member is a started container that is nobody's sandbox yet.
type member struct {
	image   string // as it was asked for
	imageID string // what that meant when the container was made
	name    string
	ref     string
	madeAt  time.Time
	inside  *envd.Sandbox
	raw     *stream
}

func (m *member) letGo() {
	_ = m.inside.Close()
	_ = m.raw.Close()
}

func newPool(cfg Pool) *pool {
	return &pool{cfg: cfg.complete(), wake: make(chan struct{}, 1), shelves: make(map[string]*shelf)}
}

// stock makes the pool hold members of image from now on.
func (l *pool) stock(image string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cfg.Size > 0 && !l.closed && l.shelves[image] == nil {
		l.shelves[image] = &shelf{}
	}
	l.kick()
}

func (l *pool) kick() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// ask notes that a sandbox of image is wanted.
func (l *pool) ask(image string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s := l.shelves[image]; s != nil {
		s.asked = append(s.asked[max(0, len(s.asked)-l.cfg.Max):], time.Now())
	}
}

// take removes the oldest member of image from the pool and returns it, or nil where there is none.
func (l *pool) take(image string) *member {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.shelves[image]
	if s == nil || len(s.idle) == 0 {
		return nil
	}
	m := s.idle[0]
	s.idle = slices.Delete(s.idle, 0, 1)
	return m
}

// put adds a member. It answers false when the pool is closed.
func (l *pool) put(m *member) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	s := l.shelves[m.image]
	s.idle = append(s.idle, m)
	return true
}

// drop removes m. It answers false when somebody else has taken it.
func (l *pool) drop(m *member) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.shelves[m.image]
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

// lacking names the image that lacks most members, if this is a time to make one: creates that wait come first.
func (l *pool) lacking() (image string, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.busy > 0 || l.closed {
		return "", false
	}
	most := 0
	for name, s := range l.shelves {
		if lack := l.target(s) - len(s.idle); lack > most && time.Now().After(s.restTo) {
			image, most = name, lack
		}
	}
	return image, most > 0
}

// target is how many members s should hold. The caller holds the lock.
func (l *pool) target(s *shelf) int {
	s.asked = slices.DeleteFunc(s.asked, func(at time.Time) bool { return time.Since(at) > demandWindow })
	return min(max(len(s.asked), l.cfg.Size), l.cfg.Max)
}

// rest keeps the refiller from image for a while.
func (l *pool) rest(image string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s := l.shelves[image]; s != nil {
		s.restTo = time.Now().Add(refillPause)
	}
}

// surplus removes the members that recent demand no longer asks for.
func (l *pool) surplus() []*member {
	l.mu.Lock()
	defer l.mu.Unlock()
	var over []*member
	for _, s := range l.shelves {
		n := max(0, len(s.idle)-l.target(s))
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
		l.kick()
	}
}

// close ends the pool and returns what was in it.
func (l *pool) close() []*member {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := l.members()
	l.closed = true
	clear(l.shelves)
	return all
}
