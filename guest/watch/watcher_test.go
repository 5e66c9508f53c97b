package watch_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"sandyard/guest/protocol"
	"sandyard/guest/saferoot"
	"sandyard/guest/watch"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// box is a directory that is watched.
type box struct {
	*testing.T
	dir string
	w   *watch.Watcher
}

// newBox fills a directory with prepare before it watches it.
func newBox(t *testing.T, recursive bool, prepare ...string) *box {
	t.Helper()
	parent := t.TempDir()
	b := &box{T: t, dir: filepath.Join(parent, "watched")}
	must(t, os.Mkdir(b.dir, 0o755))
	for _, dir := range prepare {
		b.mkdir(dir)
	}
	root, err := saferoot.Open(parent)
	must(t, err)
	b.w, err = watch.Open(root, "watched", watch.Options{Recursive: recursive})
	must(t, err)
	t.Cleanup(func() { must(t, b.w.Close()) })
	return b
}

func (b *box) path(name string) string { return filepath.Join(b.dir, name) }
func (b *box) mkdir(name string)       { b.Helper(); must(b.T, os.MkdirAll(b.path(name), 0o755)) }
func (b *box) remove(name string)      { b.Helper(); must(b.T, os.RemoveAll(b.path(name))) }
func (b *box) move(from, to string)    { b.Helper(); must(b.T, os.Rename(b.path(from), b.path(to))) }

func (b *box) write(name, text string) {
	b.Helper()
	must(b.T, os.WriteFile(b.path(name), []byte(text), 0o644))
}

func words(events []watch.Event) []string {
	var list []string
	for _, e := range events {
		op := map[watch.Op]string{
			watch.Created: "+", watch.Written: "=", watch.Removed: "-", watch.Renamed: ">", watch.Attributes: "@",
		}[e.Op]
		list = append(list, op+e.Name)
	}
	return list
}

// expect waits until these events, and no others, have come in this order. Writes count once, however the kernel
// divides them.
func (b *box) expect(want string) {
	b.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var got []string
	for len(got) < len(strings.Fields(want)) {
		events, err := b.w.Next(ctx)
		if err != nil {
			b.Fatalf("got %v and then %v, want %s", got, err, want)
		}
		got = slices.Compact(append(got, words(events)...))
	}
	if strings.Join(got, " ") != want {
		b.Errorf("got %v, want %s", got, want)
	}
}

// quiet says that nothing more comes: what follows is the next event.
func (b *box) quiet() {
	b.Helper()
	b.write("marker", "")
	b.expect("+marker")
}

func TestEventsOfOneDirectory(t *testing.T) {
	t.Parallel()
	b := newBox(t, false, "sub")
	b.write("f", "text")
	b.expect("+f =f")
	must(t, os.Chmod(b.path("f"), 0o600))
	b.expect("@f")
	b.move("f", "g")
	b.expect(">f +g")
	b.remove("g")
	b.expect("-g")
	b.mkdir("d")
	b.expect("+d")
	b.write("d/unseen", "x")
	b.write("sub/unseen", "x")
	b.quiet()
}

func TestEventsOfATree(t *testing.T) {
	t.Parallel()
	b := newBox(t, true, "a/b")
	b.write("a/b/f", "text")
	b.expect("+a/b/f =a/b/f")
	b.mkdir("c/d/e")
	b.expect("+c +c/d +c/d/e")
	b.write("c/d/e/f", "")
	b.expect("+c/d/e/f")
	b.move("c/d", "moved")
	b.expect(">c/d +moved +moved/e +moved/e/f")
	b.write("moved/e/g", "")
	b.expect("+moved/e/g")
	b.remove("moved")
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var got []string
	for !slices.Contains(got, "-moved") {
		events, err := b.w.Next(ctx)
		must(t, err)
		got = append(got, words(events)...)
	}
	slices.Sort(got)
	if want := "-moved -moved/e -moved/e/f -moved/e/g"; strings.Join(slices.Compact(got), " ") != want {
		t.Errorf("got %v, want %s", got, want)
	}
	b.quiet()
}

func TestADirectoryThatLeavesIsWatchedNoMore(t *testing.T) {
	t.Parallel()
	b := newBox(t, true, "in")
	must(t, os.Rename(b.path("in"), filepath.Join(filepath.Dir(b.dir), "out")))
	b.expect(">in")
	must(t, os.WriteFile(filepath.Join(filepath.Dir(b.dir), "out", "f"), nil, 0o644))
	b.quiet()
}

// Everything that appears in new directories is announced once, however the making races with the watching.
func TestNothingIsMissedInNewDirectories(t *testing.T) {
	t.Parallel()
	b := newBox(t, true)
	var want []string
	for i := range 20 {
		dir := fmt.Sprintf("d%d", i)
		for j := range 5 {
			dir = filepath.Join(dir, fmt.Sprintf("e%d", j))
			b.mkdir(dir)
			b.write(dir+"/f", "")
			want = append(want, "+"+dir, "+"+dir+"/f")
		}
		want = append(want, fmt.Sprintf("+d%d", i))
	}
	b.write("last", "")
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	seen := map[string]int{}
	for seen["+last"] == 0 || len(seen) <= len(want) {
		events, err := b.w.Next(ctx)
		if err != nil {
			t.Fatalf("%v after %d of %d", err, len(seen), len(want))
		}
		for _, word := range words(events) {
			seen[word]++
		}
	}
	for _, word := range want {
		if seen[word] != 1 {
			t.Errorf("%s came %d times", word, seen[word])
		}
	}
}

func reason(err error) string {
	var refused *protocol.Error
	errors.As(err, &refused)
	if refused == nil {
		return fmt.Sprint(err)
	}
	return refused.Reason
}

func TestTheEndOfTheWatchedDirectory(t *testing.T) {
	t.Parallel()
	b := newBox(t, true, "sub")
	must(t, os.RemoveAll(b.dir))
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var got []string
	for {
		events, err := b.w.Next(ctx)
		got = append(got, words(events)...)
		if err == nil {
			continue
		}
		if reason(err) != protocol.ReasonFileNotFound {
			t.Errorf("got %v", err)
		}
		break
	}
	if !slices.Contains(got, "-sub") || got[len(got)-1] != "-." {
		t.Errorf("got %v", got)
	}
}

func TestLimits(t *testing.T) {
	t.Parallel()
	b := newBox(t, true)
	for i := range 4200 {
		must(t, os.Mkdir(b.path(fmt.Sprint(i)), 0o755))
	}
	root, err := saferoot.Open(b.dir)
	must(t, err)
	if _, err := watch.Open(root, ".", watch.Options{Recursive: true}); reason(err) != protocol.ReasonTooLarge {
		t.Errorf("opened too large a tree: %v", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for err = nil; err == nil; {
		_, err = b.w.Next(ctx)
	}
	if reason(err) != protocol.ReasonTooLarge {
		t.Errorf("a tree that grew: %v", err)
	}
	if _, again := b.w.Next(ctx); reason(again) != protocol.ReasonTooLarge {
		t.Errorf("and again: %v", again)
	}
}

func TestNextEndsWithItsContext(t *testing.T) {
	t.Parallel()
	b := newBox(t, false)
	for range 3 {
		ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
		if _, err := b.w.Next(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		cancel()
	}
	b.write("f", "")
	b.expect("+f")
}
