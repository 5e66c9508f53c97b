package fake

import (
	"cmp"
	"crypto/rand"
	"slices"
	"sync"
	"time"

	"sandyard/providers"
)

// State is the backend behind fake providers: its sandboxes and the faults set for it.
type State struct {
	id       string
	mu       sync.Mutex
	boxes    map[string]*box
	faults   []*Fault
	onCall   func(Op, string) (Fault, bool)
	scripted map[string]bool
	calls    map[Op]int
	starts   map[string]int // by command name
	free     int64          // of the disk, in bytes
	used     map[string]providers.Used
	working  sync.WaitGroup
}

// NewState makes an empty backend.
func NewState() *State {
	return &State{
		id:       "fake-" + rand.Text(),
		boxes:    make(map[string]*box),
		scripted: make(map[string]bool),
		calls:    make(map[Op]int),
		starts:   make(map[string]int),
		used:     make(map[string]providers.Used),
	}
}

// SetDiskFree sets what DiskFree says, in bytes.
func (s *State) SetDiskFree(free int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free = free
}

// SetUsed sets what a sandbox has used; unset, that is not known.
func (s *State) SetUsed(id string, u providers.Used) {
	s.mu.Lock()
	defer s.mu.Unlock()
	u.ID = id
	s.used[id] = u
}

// Starts says how often a command of this name was really started, over all sandboxes.
func (s *State) Starts(name string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.starts[name]
}

// find returns a sandbox; nil = there is none.
func (s *State) find(id string) *box {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.boxes[id]
}

// Running is how many commands of a sandbox have not ended.
func (s *State) Running(id string) int {
	b := s.find(id)
	if b == nil {
		return 0
	}
	return len(b.running())
}

// Calls says how often an operation was asked for.
func (s *State) Calls(op Op) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls[op]
}

// Crash ends a sandbox behind everybody's back. What is left of it is listed as stopped.
func (s *State) Crash(id string) {
	if b := s.find(id); b != nil {
		b.end()
	}
}

// Vanish removes a sandbox behind everybody's back.
func (s *State) Vanish(id string) {
	s.mu.Lock()
	b := s.boxes[id]
	delete(s.boxes, id)
	s.mu.Unlock()
	if b != nil {
		b.end()
	}
}

// Close ends every sandbox and waits for their commands.
func (s *State) Close() {
	s.mu.Lock()
	boxes := s.boxes
	s.boxes = make(map[string]*box)
	s.mu.Unlock()
	for _, b := range boxes {
		b.end()
	}
	s.working.Wait()
}

func (s *State) make(spec providers.Spec) *box {
	s.mu.Lock()
	defer s.mu.Unlock()
	if b := s.boxes[spec.ID]; b != nil && b.stateNow() != providers.StateStopped {
		return b
	}
	b := newBox(spec)
	s.boxes[spec.ID] = b
	return b
}

func (s *State) running(id string) (*box, error) {
	b := s.find(id)
	if b == nil {
		return nil, providers.ErrNotFound
	}
	switch b.stateNow() {
	case providers.StatePaused:
		return nil, providers.ErrPaused
	case providers.StateStopped:
		return nil, providers.ErrLost
	default:
		return b, nil
	}
}

func (s *State) setPaused(id string, paused bool) error {
	b := s.find(id)
	if b == nil {
		return providers.ErrNotFound
	}
	return b.setPaused(paused)
}

// List is what a provider lists, past all faults.
func (s *State) List() []providers.Instance {
	s.mu.Lock()
	defer s.mu.Unlock()
	found := make([]providers.Instance, 0, len(s.boxes))
	for _, b := range s.boxes {
		found = append(found, b.instance())
	}
	slices.SortFunc(found, func(a, b providers.Instance) int { return cmp.Compare(a.ID, b.ID) })
	return found
}

// box is one sandbox.
type box struct {
	spec    providers.Spec
	ref     string
	created time.Time
	files   *tree
	over    chan struct{} // closed when the sandbox ends

	mu     sync.Mutex
	state  providers.State
	going  chan struct{} // closed while the sandbox is not paused
	halted chan struct{} // closed while it is
	frozen time.Time     // since when it is paused
	slept  time.Duration // how long it was paused before
	execs  map[string]*execution
	heard  map[string]bool // signals to single processes, by id
}

func newBox(spec providers.Spec) *box {
	if spec.WorkDir == "" {
		spec.WorkDir = "/workspace"
	}
	b := &box{
		spec:    spec,
		ref:     rand.Text(),
		created: time.Now(),
		files:   newTree(spec.WorkDir),
		over:    make(chan struct{}),
		state:   providers.StateRunning,
		going:   make(chan struct{}),
		halted:  make(chan struct{}),
		execs:   make(map[string]*execution),
		heard:   make(map[string]bool),
	}
	close(b.going)
	return b
}

func (b *box) instance() providers.Instance {
	return providers.Instance{ID: b.spec.ID, Ref: b.ref, State: b.stateNow(), CreatedAt: b.created}
}

func (b *box) stateNow() providers.State {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.state
}

func (b *box) setPaused(paused bool) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.state == providers.StateStopped:
		return providers.ErrLost
	case paused && b.state == providers.StateRunning:
		b.state, b.going, b.frozen = providers.StatePaused, make(chan struct{}), time.Now()
		close(b.halted)
	case !paused && b.state == providers.StatePaused:
		b.state, b.halted = providers.StateRunning, make(chan struct{})
		b.slept += time.Since(b.frozen)
		close(b.going)
	}
	return nil
}

// end stops the sandbox for good.
func (b *box) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.state != providers.StateStopped {
		b.state = providers.StateStopped
		close(b.over)
	}
}

// halt is closed when the sandbox is paused.
func (b *box) halt() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.halted
}

// paused is how long the sandbox has been paused up to now, and gate what to wait on to go on.
func (b *box) paused() (total time.Duration, gate <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	total = b.slept
	if b.state == providers.StatePaused {
		total += time.Since(b.frozen)
	}
	return total, b.going
}
