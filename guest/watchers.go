package guest

import (
	"context"
	"crypto/rand"
	"errors"
	"path/filepath"
	"sync"
	"time"

	"sandyard/guest/envdpb/filesystem"
	"sandyard/guest/files"
	"sandyard/guest/protocol"
	"sandyard/guest/watch"

	"google.golang.org/protobuf/proto"
)

const (
	// maxWatchers bounds the watchers of one sandbox: all sandboxes of a host share the kernel's 128 of one user.
	maxWatchers = 16
	// maxCollected bounds the events that wait for GetWatcherEvents, in bytes of each watcher.
	maxCollected = 2 << 20
	// forgotten is how long a watcher goes unasked before another may take its place.
	forgotten = 10 * time.Minute
)

// watchers are the watched directories of the sandbox.
type watchers struct {
	files  *files.Tree // the part that is served
	places chan struct{}

	mu         sync.Mutex
	collectors map[string]*collector
}

func newWatchers(tree *files.Tree) *watchers {
	return &watchers{files: tree, places: make(chan struct{}, maxWatchers), collectors: map[string]*collector{}}
}

// watchRequest is what both ways of watching ask for.
type watchRequest interface {
	GetPath() string
	GetRecursive() bool
	GetIncludeEntry() bool
	GetAllowNetworkMounts() bool
}

// open watches a directory, whose path tree reads, if there is room for one more watcher.
func (w *watchers) open(tree *files.Tree, req watchRequest) (*view, error) {
	if !w.enter() {
		return nil, protocol.Errorf(protocol.ReasonBusy, "%d directories are watched; end one of the watchers", maxWatchers)
	}
	root, rel, abs, err := tree.Directory(req.GetPath())
	if err != nil {
		<-w.places
		return nil, err
	}
	watcher, err := watch.Open(
		root,
		rel,
		watch.Options{Recursive: req.GetRecursive(), NetworkMounts: req.GetAllowNetworkMounts()},
	)
	if err != nil {
		<-w.places
		return nil, err
	}
	return &view{owner: w, watcher: watcher, dir: abs, entries: req.GetIncludeEntry()}, nil
}

// enter takes a place, at need that of the collector which was not asked for the longest time.
func (w *watchers) enter() bool {
	for {
		select {
		case w.places <- struct{}{}:
			return true
		default:
		}
		if !w.remove(w.idlest(time.Now().Add(-forgotten))) {
			return false
		}
	}
}

// idlest is the id of the collector whose last question is the longest ago, if it was before limit.
func (w *watchers) idlest(limit time.Time) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	found := ""
	for id, c := range w.collectors {
		if asked := c.lastAsked(); asked.Before(limit) {
			found, limit = id, asked
		}
	}
	return found
}

// create starts a collector, which outlives ctx, and returns its id.
func (w *watchers) create(ctx context.Context, tree *files.Tree, req watchRequest) (string, error) {
	v, err := w.open(tree, req)
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	c := &collector{view: v, cancel: cancel, over: make(chan struct{}), asked: time.Now()}
	id := "w" + rand.Text()
	w.mu.Lock()
	w.collectors[id] = c
	w.mu.Unlock()
	go c.run(ctx) // ends with the collector's removal
	return id, nil
}

func (w *watchers) find(id string) (*collector, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	c, ok := w.collectors[id]
	return c, ok
}

// remove ends a collector; it answers false when there is none.
func (w *watchers) remove(id string) bool {
	w.mu.Lock()
	c, ok := w.collectors[id]
	delete(w.collectors, id)
	w.mu.Unlock()
	if ok {
		c.stop()
	}
	return ok
}

// close ends all collectors. The streams end with their requests.
func (w *watchers) close() {
	w.mu.Lock()
	all := w.collectors
	w.collectors = map[string]*collector{}
	w.mu.Unlock()
	for _, c := range all {
		c.stop()
	}
}

// view is a watcher that tells its events in envd's words.
type view struct {
	owner   *watchers
	watcher *watch.Watcher
	dir     string
	entries bool // tell what the entries are
}

func (v *view) close() {
	_ = v.watcher.Close()
	<-v.owner.places
}

// next waits for events, but not longer than patience.
func (v *view) next(ctx context.Context, patience time.Duration) ([]*filesystem.FilesystemEvent, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	events, err := v.watcher.Next(ctx)
	told := make([]*filesystem.FilesystemEvent, 0, len(events))
	for _, e := range events {
		told = append(told, v.tell(e))
	}
	return told, err
}

func (v *view) tell(e watch.Event) *filesystem.FilesystemEvent {
	told := &filesystem.FilesystemEvent{Name: valid(e.Name), Type: eventType(e.Op)}
	if !v.entries || e.Op == watch.Removed || e.Op == watch.Renamed {
		return told
	}
	if entry, err := v.owner.files.Stat(filepath.Join(v.dir, e.Name)); err == nil { // else it is gone again
		told.Entry = entryInfo(entry)
	}
	return told
}

func eventType(op watch.Op) filesystem.EventType {
	switch op {
	case watch.Created:
		return filesystem.EventType_EVENT_TYPE_CREATE
	case watch.Written:
		return filesystem.EventType_EVENT_TYPE_WRITE
	case watch.Removed:
		return filesystem.EventType_EVENT_TYPE_REMOVE
	case watch.Renamed:
		return filesystem.EventType_EVENT_TYPE_RENAME
	case watch.Attributes:
		return filesystem.EventType_EVENT_TYPE_CHMOD
	default:
		return filesystem.EventType_EVENT_TYPE_UNSPECIFIED
	}
}

// collector keeps the events of a view until somebody asks for them.
type collector struct {
	view   *view
	cancel context.CancelFunc
	over   chan struct{} // closed when it collects no more

	mu     sync.Mutex
	events []*filesystem.FilesystemEvent
	size   int
	asked  time.Time
	end    error // why nothing more is collected
}

func (c *collector) run(ctx context.Context) {
	defer close(c.over)
	for ctx.Err() == nil {
		events, err := c.view.next(ctx, watchKeepalive)
		if errors.Is(err, context.DeadlineExceeded) {
			continue
		}
		if !c.keep(events, err) {
			return
		}
	}
}

// keep answers whether to go on.
func (c *collector) keep(events []*filesystem.FilesystemEvent, err error) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.end = err
	for _, e := range events {
		if c.size += proto.Size(e); c.size > maxCollected {
			c.end = protocol.Errorf(protocol.ReasonTooLarge, "too many events were not fetched and some were lost; watch again")
			break
		}
		c.events = append(c.events, e)
	}
	return c.end == nil
}

func (c *collector) lastAsked() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.asked
}

// take returns the collected events or, when there are none and never will be, the reason.
func (c *collector) take() ([]*filesystem.FilesystemEvent, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	events := c.events
	c.events, c.size, c.asked = nil, 0, time.Now()
	if len(events) == 0 {
		return nil, c.end
	}
	return events, nil
}

// stop ends the collecting and gives its place back.
func (c *collector) stop() {
	c.cancel()
	<-c.over
	c.view.close()
}
