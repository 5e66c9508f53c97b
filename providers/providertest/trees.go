package providertest

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"sandyard/dev/testenv"
	"sandyard/providers"
	"sandyard/providers/providertest/fixture"
)

// trees checks directories as tar archives, in one sandbox, each case in a folder of its own.
func trees(t *testing.T, s *fixture.Suite) {
	if s.Caps.Files == providers.Unsupported {
		t.Skip("skipped: the provider declares files unsupported")
	}
	r := s.NewRoom(t)
	t.Run("there and back", func(t *testing.T) { t.Parallel(); roundTrip(t, r) })
	t.Run("links stay links", func(t *testing.T) { t.Parallel(); s.NeedsSystem(t); linksStay(t, r) })
	t.Run("rights", func(t *testing.T) { t.Parallel(); s.NeedsSystem(t); rights(t, r) })
	t.Run("what changes meanwhile", func(t *testing.T) { t.Parallel(); s.NeedsSystem(t); changing(t, r) })
	t.Run("hostile", func(t *testing.T) { t.Parallel(); hostileTrees(t, s, r) })
	t.Run("replaced, not written through", func(t *testing.T) { t.Parallel(); s.NeedsSystem(t); notThrough(t, r) })
	t.Run("broken", func(t *testing.T) { t.Parallel(); brokenTrees(t, s, r) })
	t.Run("refused", func(t *testing.T) {
		t.Parallel()
		fixture.MustWrite(t, r, "no tree/f", "x")
		for path, class := range map[string]providers.Class{
			"none": providers.FileNotFound, "no tree/f": providers.NotADir, "..": providers.InvalidPath,
			"": providers.InvalidPath,
		} {
			_, err := r.OpenTree(fixture.Within(t), path, false)
			fixture.WantClass(t, err, class)
		}
		for path, class := range map[string]providers.Class{
			"no tree/f": providers.NotADir, "../x": providers.InvalidPath,
			"": providers.InvalidPath,
		} {
			_, err := r.SaveTree(fixture.Within(t), path, archive(t))
			fixture.WantClass(t, err, class, providers.FileExists)
		}
	})
}

// entry is one of an archive's.
type entry struct {
	tar.Header

	content string
}

func file(name, content string) entry {
	return entry{
		tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: int64(len(content)), ModTime: time.Unix(1e9, 0)},
		content,
	}
}

func dir(name string, mode int64) entry {
	return entry{tar.Header{Typeflag: tar.TypeDir, Name: name, Mode: mode}, ""}
}

func link(flag byte, name, target string) entry {
	return entry{tar.Header{Typeflag: flag, Name: name, Linkname: target, Mode: 0o777}, ""}
}

func archive(t *testing.T, entries ...entry) *bytes.Buffer {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range entries {
		if err := w.WriteHeader(&e.Header); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, e.content); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return &b
}

func zipped(t *testing.T, plain []byte) *bytes.Buffer {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := z.Write(plain); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return &b
}

// unpacked reads the archive of a directory: name → what it holds, for a link "-> " and its target.
func unpacked(t *testing.T, r fixture.Room, path string, zip bool) map[string]string {
	t.Helper()
	stream, err := r.OpenTree(fixture.Within(t), path, zip)
	if err != nil {
		t.Fatalf("open the tree %s: %v", path, err)
	}
	defer stream.Close()
	var plain io.Reader = stream
	if zip {
		if plain, err = gzip.NewReader(stream); err != nil {
			t.Fatal(err)
		}
	}
	found := map[string]string{}
	for in := tar.NewReader(plain); ; {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return found
		}
		if err != nil {
			t.Fatalf("read the tree %s: %v", path, err)
		}
		b, err := io.ReadAll(in)
		if err != nil {
			t.Fatal(err)
		}
		found[h.Name] = string(b)
		if h.Typeflag == tar.TypeSymlink {
			found[h.Name] = "-> " + h.Linkname
		}
	}
}

func roundTrip(t *testing.T, r fixture.Room) {
	long := strings.Repeat("long name ", 20) + "/" + strings.Repeat("n", 200)
	entries := []entry{
		dir("d/", 0o755),
		file("d/f", "content"),
		file("e/without/parents", ""),
		file("./dot", "dot"),
		file(long, "ü"),
		file("big", string(fixture.Pattern(300<<10))),
	}
	want := map[string]string{
		"d/": "", "d/f": "content", "e/": "", "e/without/": "", "e/without/parents": "", "dot": "dot",
		"big": string(fixture.Pattern(300 << 10)),
		long:  "ü", strings.Repeat("long name ", 20) + "/": "",
	}
	plain := archive(t, entries...)
	for i, body := range []io.Reader{zipped(t, plain.Bytes()), onlyReader{plain}} {
		at := fmt.Sprintf("trees/round %d", i)
		made, err := r.SaveTree(fixture.Within(t), at, body)
		if err != nil || made.Files != 5 || made.Directories != 1 || made.Bytes != 300<<10+7+3+2 || made.Stripped != nil {
			t.Errorf("save: %+v, %v", made, err)
		}
		for _, zip := range []bool{false, true} {
			if got := unpacked(t, r, at, zip); !maps.Equal(got, want) {
				t.Errorf("zip %v: %d entries came back of %d", zip, len(got), len(want))
			}
		}
		if info, err := r.Stat(fixture.Within(t), at+"/d/f"); err != nil || !info.ModifiedAt.Equal(time.Unix(1e9, 0)) {
			t.Errorf("the file's time is %+v, %v", info, err)
		}
	}
}

func linksStay(t *testing.T, r fixture.Room) {
	fixture.Shell(
		t,
		r,
		"mkdir -p links/d && cd links && echo x >d/f && ln -s d/f in && ln -s /etc/passwd out && "+
			"ln -s ../../../etc up && ln -s nowhere dangling && ln -s . loop && mkfifo pipe && ln d/f hard",
	)
	want := map[string]string{
		"d/": "", "d/f": "x\n", "hard": "x\n", "in": "-> d/f", "out": "-> /etc/passwd", "up": "-> ../../../etc",
		"dangling": "-> nowhere", "loop": "-> .",
	}
	if got := unpacked(t, r, "links", false); !maps.Equal(got, want) {
		t.Errorf("got %v", got)
	}
	stream, err := r.OpenTree(fixture.Within(t), "links", true)
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	if made, err := r.SaveTree(fixture.Within(t), "links again", stream); err != nil || made.Links != 5 ||
		made.Files != 2 {
		t.Errorf("save: %+v, %v", made, err)
	}
	if got := unpacked(t, r, "links again", false); !maps.Equal(got, want) {
		t.Errorf("once more: %v", got)
	}
}

func rights(t *testing.T, r fixture.Room) {
	odd := func(name string, flag byte, mode int64) entry {
		return entry{tar.Header{Typeflag: flag, Name: name, Mode: mode}, ""}
	}
	made, err := r.SaveTree(fixture.Within(t), "rights", archive(
		t,
		odd("closed", tar.TypeDir, 0o500),
		odd("closed/suid", tar.TypeReg, 0o4755),
		odd("closed/deeper", tar.TypeDir, 0o555),
		odd(
			"closed/deeper/sgid",
			tar.TypeReg,
			0o2711,
		),
		odd("sticky", tar.TypeDir, 0o1777),
		odd("secret", tar.TypeReg, 0o600),
	))
	if err != nil || fmt.Sprint(made.Stripped) != "[closed/suid closed/deeper/sgid sticky]" {
		t.Errorf("save: %+v, %v", made, err)
	}
	got := fixture.Shell(
		t,
		r,
		"cd rights && find closed closed/suid closed/deeper closed/deeper/sgid sticky secret -maxdepth 0 "+
			"-printf '%p %m\\n'; "+
			"chmod -R u+w .",
	)
	want := "closed 500\nclosed/suid 755\nclosed/deeper 555\nclosed/deeper/sgid 711\nsticky 777\nsecret 600\n"
	if string(got.Stdout) != want {
		t.Errorf("got %s", fixture.Show(got))
	}
}

// changing packs a directory while files in it come and go: the archive is whole, or says that it is not.
func changing(t *testing.T, r fixture.Room) {
	fixture.Shell(t, r, "mkdir changing; for i in $(seq 100); do echo $i >changing/$i; done; "+
		"(for n in $(seq 5); do for i in $(seq 100); do rm -f changing/$i; echo $i >changing/$i; done; done; "+
		"touch changed) >/dev/null 2>&1 &")
	for {
		for name, content := range unpacked(t, r, "changing", false) {
			if content != name+"\n" && content != "" {
				t.Errorf("%s holds %q", name, content)
			}
		}
		if _, err := r.Stat(fixture.Within(t), "changed"); err == nil {
			return
		}
	}
}

func hostileTrees(t *testing.T, s *fixture.Suite, r fixture.Room) {
	cases := map[string][]entry{
		"up":         {file("../evil", "x")},
		"deep up":    {file("a/../../evil", "x")},
		"up within":  {file("a/../evil", "x")},
		"absolute":   {file("/tmp/evil", "x")},
		"device":     {link(tar.TypeChar, "evil", "")},
		"block":      {link(tar.TypeBlock, "evil", "")},
		"pipe":       {link(tar.TypeFifo, "evil", "")},
		"unknown":    {link('Z', "evil", "")},
		"hard up":    {link(tar.TypeLink, "evil", "../victim")},
		"hard out":   {link(tar.TypeLink, "evil", "/etc/passwd")},
		"hard none":  {link(tar.TypeLink, "evil", "none")},
		"hard a dir": {dir("d", 0o755), link(tar.TypeLink, "evil", "d")},
	}
	if s.System {
		fixture.Shell(t, r, "mkdir -p hostile && echo safe >hostile/victim && ln -s /tmp hostile/there")
		maps.Copy(cases, map[string][]entry{
			"through a link":      {link(tar.TypeSymlink, "l", "/tmp"), file("l/evil", "x")},
			"through a link up":   {link(tar.TypeSymlink, "l", ".."), file("l/evil", "x")},
			"through two":         {link(tar.TypeSymlink, "k", "."), link(tar.TypeSymlink, "l", "k"), file("l/evil", "x")},
			"a directory's link":  {link(tar.TypeSymlink, "evil", "/tmp"), dir("evil/", 0o755)},
			"a directory below":   {link(tar.TypeSymlink, "l", "/tmp"), dir("l/evil/", 0o755)},
			"a link below":        {link(tar.TypeSymlink, "l", "/tmp"), link(tar.TypeSymlink, "l/evil", "x")},
			"hard to a link":      {link(tar.TypeSymlink, "l", "/etc/passwd"), link(tar.TypeLink, "evil", "l")},
			"hard through a link": {link(tar.TypeSymlink, "l", "/etc"), link(tar.TypeLink, "evil", "l/passwd")},
			"over a directory":    {dir("evil", 0o755), file("evil", "x")},
			"a link to nothing":   {link(tar.TypeSymlink, "evil", "")},
		})
	}
	for name, entries := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			at := "hostile/" + strings.ReplaceAll(name, " ", "-")
			_, err := r.SaveTree(fixture.Within(t), at, archive(t, append([]entry{file("first", "x")}, entries...)...))
			fixture.WantClass(t, err, providers.BadArchive)
			if e := providers.AsError(err); err == nil || !strings.Contains(e.Message, "'"+entries[len(entries)-1].Name+"'") {
				t.Errorf("the entry is not named: %v", err)
			}
			fixture.WantFile(t, r, at+"/first", "x")
		})
	}
	t.Cleanup(func() {
		for _, p := range []string{"/tmp/evil", "hostile/evil", "evil"} {
			if info, err := r.Stat(fixture.Within(t), p); err == nil {
				t.Errorf("it got out: %+v", info)
			}
		}
	})
}

// notThrough checks that what is in the way is replaced, and nothing that has another name is changed.
func notThrough(t *testing.T, r fixture.Room) {
	fixture.Shell(
		t,
		r,
		"mkdir -p thru && cd thru && echo safe >../thru-victim && ln -s ../thru-victim link && ln ../thru-victim hard && "+
			"echo old >old",
	)
	_, err := r.SaveTree(
		fixture.Within(t),
		"thru",
		archive(
			t,
			file("link", "new"),
			file("hard", "new"),
			link(tar.TypeSymlink, "old", "link"),
			file(
				"target",
				"t",
			),
			link(tar.TypeLink, "same", "target"),
			link(tar.TypeLink, "same", "target"),
			link(tar.TypeLink, "target", "target"),
		),
	)
	if err != nil {
		t.Errorf("save: %v", err)
	}
	fixture.WantFile(t, r, "thru-victim", "safe\n")
	want := map[string]string{"link": "new", "hard": "new", "old": "-> link", "target": "t", "same": "t"}
	if got := unpacked(t, r, "thru", false); !maps.Equal(got, want) {
		t.Errorf("got %v", got)
	}
}

func brokenTrees(t *testing.T, s *fixture.Suite, r fixture.Room) {
	whole := archive(t, file("first", "x"), file("second", string(fixture.Pattern(100<<10)))).Bytes()
	for _, body := range map[string]io.Reader{
		"empty": strings.NewReader(""), "noise": bytes.NewReader(fixture.Pattern(5000)),
		"cut":     bytes.NewReader(whole[:50<<10]),
		"cut zip": bytes.NewReader(zipped(t, whole).Bytes()[:500]),
	} {
		_, err := r.SaveTree(fixture.Within(t), "broken tree", body)
		fixture.WantClass(t, err, providers.BadArchive)
	}
	fixture.WantClass(t, saveHalf(t, s, r, "broken tree", whole[:50<<10]), providers.Invalid, providers.BadArchive)
	fixture.WantFile(t, r, "broken tree/first", "x")
	// The caller has its error at once; the sandbox notices the end of the upload later.
	testenv.Eventually(t, "nothing is left of the upload", func() bool { return len(halves(t, r, "broken tree")) == 0 })
}

// saveHalf uploads an archive whose source fails. In a real system it does so when a part of a file is there.
func saveHalf(t *testing.T, s *fixture.Suite, r fixture.Room, at string, half []byte) error {
	t.Helper()
	ctx := fixture.Within(t)
	from, to := io.Pipe()
	answer := make(chan error, 1)
	go func() {
		_, err := r.SaveTree(ctx, at, from)
		_ = from.Close()
		answer <- err
	}()
	if _, err := to.Write(half); err != nil {
		t.Errorf("the upload ended early: %v", err)
	}
	if s.System {
		testenv.Eventually(t, "a part of the upload is there", func() bool { return len(halves(t, r, at)) > 0 })
	}
	_ = to.CloseWithError(errFailing)
	return <-answer
}

// halves lists what is there of the archives of brokenTrees beside their whole file.
func halves(t *testing.T, r fixture.Room, at string) []string {
	t.Helper()
	return slices.DeleteFunc(fixture.Paths(t, r, at, 2), func(p string) bool {
		return !strings.Contains(p, "second") && !strings.Contains(p, ".sandyard")
	})
}
