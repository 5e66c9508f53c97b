// Package watch tells what happens to the entries of a directory, by inotify.
//
// A recursive watcher announces every entry that appears below its directory, also those that appear between a
// directory's making and the kernel's watch on it. It never loses an event silently: where events were lost, it ends.
package watch

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path"
	"strconv"
	"strings"
	"time"

	"sandyard/guest/protocol"
	"sandyard/guest/saferoot"

	"golang.org/x/sys/unix"
)

const (
	// maxDirs bounds the directories of one watcher; the kernel's limit is shared by all sandboxes of a host.
	maxDirs = 4096
	// maxScanned bounds the entries that one look into new directories announces.
	maxScanned = 10_000
	bufferSize = 16 << 10 // bytes, many events
)

// Op is what happened to an entry.
type Op int

// The operations. An entry that is renamed is Renamed under its old name and Created under its new one.
const (
	Created Op = 1 + iota
	Written
	Removed
	Renamed
	Attributes
)

// Event is one change.
type Event struct {
	Name string // relative to the watched directory; "." is the directory itself
	Op   Op
}

// Options says what is watched.
type Options struct {
	Recursive     bool // with everything below
	NetworkMounts bool // also where the kernel does not see what other machines do
}

// Watcher watches one directory. One goroutine at a time may call Next.
type Watcher struct {
	// root is one that holds the directory: an open directory would not tell that it was removed.
	root      *saferoot.Root
	dir       string
	o         Options
	inotify   *os.File
	names     map[int]string // of the watched directories by their watch descriptor
	announced map[string]struct{}
	scanned   int
	landing   landing
	buffer    []byte
	end       error // what Next answers from now on
}

// Open watches the directory dir below root, and takes root over.
func Open(root *saferoot.Root, dir string, o Options) (*Watcher, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, errors.Join(kernelError(err), root.Close())
	}
	w := &Watcher{
		root: root, dir: dir, o: o, inotify: os.NewFile(uintptr(fd), "inotify"),
		names: map[int]string{}, announced: map[string]struct{}{}, buffer: make([]byte, bufferSize),
	}
	if err := w.add(".", func(Event) {}); err != nil {
		return nil, errors.Join(err, w.Close())
	}
	clear(w.announced)
	return w, nil
}

// Close ends the watching, and a Next that waits.
func (w *Watcher) Close() error { return errors.Join(w.inotify.Close(), w.root.Close()) }

// Next waits for events and returns them, at least one, in their order. After an error other than ctx's the watcher is
// of no more use.
func (w *Watcher) Next(ctx context.Context) ([]Event, error) {
	defer w.interruptBy(ctx)()
	for {
		if w.end != nil {
			return nil, w.end
		}
		n, err := w.inotify.Read(w.buffer)
		if ctx.Err() != nil && n <= 0 {
			return nil, context.Cause(ctx)
		}
		if err != nil {
			return nil, protocol.Errorf(protocol.ReasonInternal, "read the events: %v", err)
		}
		if events := w.translate(w.buffer[:n]); len(events) > 0 {
			return events, nil
		}
	}
}

// interruptBy makes the end of ctx end a Read, until the returned function is called.
func (w *Watcher) interruptBy(ctx context.Context) func() {
	interrupted := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		_ = w.inotify.SetReadDeadline(time.Now())
		close(interrupted)
	})
	return func() {
		if !stop() {
			<-interrupted
			_ = w.inotify.SetReadDeadline(time.Time{})
		}
	}
}

// translate turns the kernel's events into ours and follows the tree as it changes.
func (w *Watcher) translate(raw []byte) []Event {
	var events []Event
	emit := func(e Event) { events = append(events, e) }
	before, full := w.announced, len(raw) > bufferSize-maxKernelEvent
	w.announced, w.scanned = map[string]struct{}{}, 0
	for len(raw) > 0 && w.end == nil {
		var k kernelEvent
		if k, raw = parse(raw); k.mask&unix.IN_IGNORED == 0 {
			w.end = w.take(k, before, emit)
		}
	}
	if full {
		// The kernel may hold more that happened before the announcements.
		for name := range before {
			w.announced[name] = struct{}{}
		}
	}
	return events
}

// take handles one event. Entries in before were announced when their directory was found; their creation is old news.
func (w *Watcher) take(k kernelEvent, before map[string]struct{}, emit func(Event)) error {
	if k.mask&unix.IN_Q_OVERFLOW != 0 {
		return protocol.Errorf(
			protocol.ReasonTooLarge,
			"events arrived faster than they were read, and some were lost; watch again",
		)
	}
	dir, known := w.names[k.wd]
	if !known {
		return nil // of a directory that has left the tree
	}
	if k.name == "" {
		return w.takeOwn(k, dir, emit)
	}
	name := path.Join(dir, k.name)
	if w.takeLanding(k, name, before, emit) {
		return nil
	}
	_, old := before[name]
	switch {
	case k.mask&(unix.IN_CREATE|unix.IN_MOVED_TO) != 0 && old:
	case k.mask&(unix.IN_CREATE|unix.IN_MOVED_TO) != 0:
		emit(Event{name, Created})
		if w.o.Recursive && k.mask&unix.IN_ISDIR != 0 {
			return w.add(name, emit)
		}
	case k.mask&unix.IN_DELETE != 0:
		delete(before, name)
		emit(Event{name, Removed})
	case k.mask&unix.IN_MOVED_FROM != 0:
		delete(before, name)
		w.drop(name)
		emit(Event{name, Renamed})
	case k.mask&unix.IN_MODIFY != 0:
		emit(Event{name, Written})
	case k.mask&unix.IN_ATTRIB != 0:
		emit(Event{name, Attributes})
	}
	return nil
}

// landing is the renaming of a file that the guest has written to the file's own name: the second half is still to
// come.
type landing struct {
	cookie uint32
	isNew  bool
}

// takeLanding tells of a file that the guest writes as if it were written in its place. It answers false for other
// events.
func (w *Watcher) takeLanding(k kernelEvent, name string, before map[string]struct{}, emit func(Event)) bool {
	switch {
	case temporary(k.name):
		if k.mask&unix.IN_MOVED_FROM != 0 {
			w.landing = landing{k.cookie, strings.HasPrefix(k.name, protocol.TempNew)}
		}
		return true
	case k.mask&unix.IN_MOVED_TO == 0 || k.cookie == 0 || k.cookie != w.landing.cookie:
		return false
	}
	if _, old := before[name]; w.landing.isNew && !old {
		emit(Event{name, Created})
	}
	emit(Event{name, Written})
	return true
}

func temporary(name string) bool {
	return strings.HasPrefix(name, protocol.TempNew) || strings.HasPrefix(name, protocol.TempReplace)
}

// takeOwn handles what happened to a watched directory itself. Of all but the outermost its parent tells as well.
func (w *Watcher) takeOwn(k kernelEvent, dir string, emit func(Event)) error {
	gone := k.mask&(unix.IN_DELETE_SELF|unix.IN_UNMOUNT) != 0
	switch {
	case dir != "." && gone:
		delete(w.names, k.wd)
	case dir != ".":
	case gone:
		emit(Event{".", Removed})
		return protocol.Errorf(protocol.ReasonFileNotFound, "the watched directory is gone")
	case k.mask&unix.IN_MOVE_SELF != 0:
		emit(Event{".", Renamed})
	case k.mask&unix.IN_ATTRIB != 0:
		emit(Event{".", Attributes})
	}
	return nil
}

// add watches a directory and, in a recursive watcher, those below it; it announces what it finds in it.
func (w *Watcher) add(dir string, emit func(Event)) error {
	if len(w.names) >= maxDirs {
		return protocol.Errorf(protocol.ReasonTooLarge, "more than %d directories cannot be watched at one time", maxDirs)
	}
	f, err := w.root.OpenDir(path.Join(w.dir, dir))
	if err != nil {
		return w.unwatchable(dir, err)
	}
	defer f.Close()
	if dir == "." && !w.o.NetworkMounts && onNetwork(f) {
		return protocol.Errorf(
			protocol.ReasonInvalid,
			"the directory is on a network file system, where events are not reliable; allow network mounts to watch it",
		)
	}
	wd, err := w.watch(f)
	if err != nil {
		return w.unwatchable(dir, err)
	}
	w.names[wd] = dir
	if !w.o.Recursive {
		return nil
	}
	return w.scan(f, dir, emit)
}

// watch goes by the descriptor: code in the sandbox may have put a link in the directory's place.
func (w *Watcher) watch(f *os.File) (wd int, err error) {
	err = w.control(func(fd int) error {
		wd, err = unix.InotifyAddWatch(fd, "/proc/self/fd/"+strconv.Itoa(int(f.Fd())), watched)
		return err
	})
	return wd, err
}

// control runs f with inotify's descriptor, which is open meanwhile.
func (w *Watcher) control(f func(fd int) error) error {
	raw, err := w.inotify.SyscallConn()
	if err != nil {
		return err
	}
	var inner error
	err = raw.Control(func(fd uintptr) { inner = f(int(fd)) })
	return errors.Join(err, inner)
}

func (w *Watcher) scan(f *os.File, dir string, emit func(Event)) error {
	entries, err := f.ReadDir(maxScanned - w.scanned + 1)
	if w.scanned += len(entries); w.scanned > maxScanned {
		return protocol.Errorf(protocol.ReasonTooLarge, "more than %d entries appeared at one time", maxScanned)
	}
	if len(entries) == 0 && err != nil {
		return nil // empty, or gone
	}
	for _, e := range entries {
		if temporary(e.Name()) {
			continue
		}
		name := path.Join(dir, e.Name())
		w.announced[name] = struct{}{}
		emit(Event{name, Created})
		if !e.IsDir() {
			continue
		}
		if err := w.add(name, emit); err != nil {
			return err
		}
	}
	return nil
}

// unwatchable passes over directories below the outermost that have gone meanwhile or may not be read.
func (w *Watcher) unwatchable(dir string, err error) error {
	passing := errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) || errors.Is(err, unix.ENOTDIR) ||
		errors.Is(err, unix.ELOOP)
	if dir != "." && passing {
		return nil
	}
	return kernelError(err)
}

// drop forgets a directory that has left its place, with all below it.
func (w *Watcher) drop(dir string) {
	for wd, name := range w.names {
		if name == dir || strings.HasPrefix(name, dir+"/") {
			_ = w.control(func(fd int) error { // it may be gone
				_, err := unix.InotifyRmWatch(fd, uint32(wd))
				return err
			})
			delete(w.names, wd)
		}
	}
}
