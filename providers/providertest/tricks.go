package providertest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"testing"

	"sandyard/dev/testenv"
	"sandyard/providers"
	"sandyard/providers/providertest/fixture"
)

// tricks attacks the file calls from inside: whoever wrote the code in a sandbox also laid out its files.
func tricks(t *testing.T, s *fixture.Suite) {
	if s.Caps.Files == providers.Unsupported {
		t.Skip("skipped: the provider declares files unsupported")
	}
	s.NeedsSystem(t)
	t.Run("a directory that becomes a link and back", func(t *testing.T) { t.Parallel(); swapped(t, s) })
	t.Run("hard links", func(t *testing.T) { t.Parallel(); hardLinks(t, s) })
	t.Run("what is no file, and odd names", func(t *testing.T) { t.Parallel(); oddities(t, s) })
	t.Run("a crowd of files", func(t *testing.T) { t.Parallel(); crowd(t, s) })
}

// outside is a directory that the sandbox's user can write to and that is below no root.
const outside = "/dev/shm/outside"

const swapper = `mkdir ` + outside + ` && printf secret >` + outside + `/f && printf x >` + outside + `/only-outside || exit 9
mkdir d && printf inside >d/f && ln -s ` + outside + ` evil
setsid python3 -c '
import ctypes, os
libc, here, exchange = ctypes.CDLL(None, use_errno=True), -100, 2
open("begun", "w").close()
while not os.path.exists("stop"):
    with open("` + outside + `/only-outside", "r+") as f: f.write("x") # who watches it is told
    if libc.renameat2(here, b"d", here, b"evil", exchange) == 0: continue
    try: # a kernel without exchange
        os.rename("d", "real"); os.rename("evil", "d"); os.rename("d", "evil"); os.rename("real", "d")
    except OSError: pass
open("stopped", "w").close()' >/dev/null 2>&1 </dev/null &`

// swapped makes every call through a directory that is a link to the outside half of the time.
func swapped(t *testing.T, s *fixture.Suite) {
	const rounds = 12
	if !s.Confined() {
		t.Skip("skipped: the provider declares confined unsupported")
	}
	r := s.NewRoom(t)
	if res := fixture.Shell(t, r, swapper); res.ExitCode != 0 {
		t.Fatalf("the attack did not begin: %s", fixture.Show(res))
	}
	testenv.Eventually(t, "the attack runs", func() bool { _, err := r.Stat(t.Context(), "begun"); return err == nil })
	ctx := fixture.Within(t)
	for range rounds {
		for name, call := range callsThrough(r, "d") {
			told, err := call(ctx)
			if strings.Contains(told, "secret") || strings.Contains(told, "only-outside") {
				t.Errorf("%s read what is outside: %q", name, told)
			}
			if err != nil && !harmless(err) {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	fixture.MustWrite(t, r, "stop", "")
	testenv.Eventually(t, "the attack has ended", func() bool {
		_, err := r.Stat(t.Context(), "stopped")
		if err != nil && !harmless(err) {
			t.Fatal(err)
		}
		return err == nil
	})
	if res := fixture.Shell(t, r, "cd "+outside+"; ls -A; cat *"); string(res.Stdout) != "f\nonly-outside\nsecretx" {
		t.Errorf("what is outside has changed: %s", fixture.Show(res))
	}
}

// harmless says whether an error is one that a path may have which is something else at every moment.
func harmless(err error) bool {
	for _, c := range []providers.Class{
		providers.InvalidPath, providers.FileNotFound, providers.NotADir, providers.NotAFile, providers.FileExists,
		providers.FileDenied, providers.Busy, providers.NoMatch,
	} {
		if errors.Is(err, &providers.Error{Class: c}) {
			return true
		}
	}
	return false
}

// callsThrough makes each file call on what is in a directory, and answers with all that it told.
func callsThrough(r fixture.Room, dir string) map[string]func(context.Context) (string, error) {
	tell := func(v any, err error) (string, error) { return fmt.Sprintf("%s", v), err }
	all := map[string]func(context.Context) (string, error){
		"read":   func(ctx context.Context) (string, error) { return tell(r.ReadFile(ctx, dir+"/f", 1000)) },
		"write":  func(ctx context.Context) (string, error) { return tell(r.WriteFile(ctx, dir+"/new", []byte("n"), 0)) },
		"stat":   func(ctx context.Context) (string, error) { return tell(r.Stat(ctx, dir+"/only-outside")) },
		"list":   func(ctx context.Context) (string, error) { return tell(r.ListDir(ctx, dir, 2)) },
		"mkdir":  func(ctx context.Context) (string, error) { return tell(r.MakeDir(ctx, dir+"/made")) },
		"move":   func(ctx context.Context) (string, error) { return tell(r.Move(ctx, dir+"/new", dir+"/moved")) },
		"remove": func(ctx context.Context) (string, error) { return tell("", r.Remove(ctx, dir+"/only-outside")) },
		"edit": func(ctx context.Context) (string, error) {
			return tell(
				toolsOf(r).Edit(ctx, providers.Edit{Path: dir + "/f", Edits: []providers.Replacement{replace("secret", "broken")}}),
			)
		},
		"glob": func(ctx context.Context) (string, error) {
			return tell(toolsOf(r).Glob(ctx, providers.Glob{Path: ".", Pattern: dir + "/**", Hidden: true, Limit: 100}))
		},
		"grep": func(ctx context.Context) (string, error) {
			return tell(toolsOf(r).Grep(ctx, providers.Grep{Path: ".", Pattern: ".", Include: "**/f", Limit: 100}))
		},
		"read many": func(ctx context.Context) (string, error) {
			read, err := toolsOf(r).ReadFiles(ctx, []string{dir + "/f"}, 1000)
			return tell(read, errors.Join(err, outcome(read)))
		},
		"write many": func(ctx context.Context) (string, error) {
			written, err := toolsOf(r).WriteFiles(ctx, []providers.FileWrite{{Path: dir + "/f2", Data: []byte("n")}})
			return tell(written, errors.Join(err, outcome(written)))
		},
	}
	maps.Copy(all, streamsThrough(r, dir))
	maps.Copy(all, guestCallsThrough(r, dir))
	return all
}

// streamsThrough are the calls that go on for as long as there is something to tell.
func streamsThrough(r fixture.Room, dir string) map[string]func(context.Context) (string, error) {
	all := map[string]func(context.Context) (string, error){
		"open file": func(ctx context.Context) (string, error) {
			f, err := r.OpenFile(ctx, dir+"/f", 0, -1)
			return fixture.ReadAll(f, err)
		},
		"save file": func(ctx context.Context) (string, error) {
			info, err := r.SaveFile(ctx, dir+"/saved", strings.NewReader("n"), 1, 0)
			return info.Name, err
		},
		"open tree": func(ctx context.Context) (string, error) { return fixture.ReadAll(r.OpenTree(ctx, dir, false)) },
		"save tree": func(ctx context.Context) (string, error) {
			told, err := r.SaveTree(ctx, dir, fixture.TarOf("packed", "n"))
			return fmt.Sprintf("%+v", told), err
		},
	}
	if w, ok := r.Sandbox.(providers.Watcher); ok {
		all["watch"] = func(ctx context.Context) (string, error) { return fixture.WatchAWhile(ctx, w, dir) }
	}
	return all
}

// hardLinks checks that a call changes the name it was given and no other name of the same file.
func hardLinks(t *testing.T, s *fixture.Suite) {
	r := s.NewRoom(t)
	fixture.Shell(t, r, "printf one >a; ln a b; ln a c; ln a e; mkdir d; ln a d/f")
	fixture.MustWrite(t, r, "a", "two")
	if _, err := toolsOf(r).Edit(fixture.Within(t), providers.Edit{
		Path:  "c",
		Edits: []providers.Replacement{replace("one", "three")},
	}); err != nil {
		t.Error(err)
	}
	written, err := toolsOf(r).WriteFiles(fixture.Within(t), []providers.FileWrite{{Path: "e", Data: []byte("four")}})
	if err := errors.Join(err, outcome(written)); err != nil {
		t.Error(err)
	}
	for path, want := range map[string]string{"a": "two", "b": "one", "c": "three", "e": "four", "d/f": "one"} {
		fixture.WantFile(t, r, path, want)
	}
	if _, err := r.Move(fixture.Within(t), "a", "b"); err != nil {
		t.Error(err)
	}
	if err := r.Remove(fixture.Within(t), "b"); err != nil {
		t.Error(err)
	}
	fixture.WantFile(t, r, "d/f", "one")
	if res := fixture.Shell(t, r, "ln /etc/passwd stolen || ln -L /proc/1/exe stolen"); res.ExitCode == 0 {
		t.Errorf("a file from outside was linked into the work directory: %s", fixture.Show(res))
	}
}

const oddScript = `mkfifo pipe; ln -s loop loop; ln -s . here; ln -s .. up; ln -s /etc out; mkdir sub; printf 'a needle\n' >sub/plain
truncate -s 1T sparse 2>/dev/null; mkdir closed; printf 'needle' >closed/f; chmod 000 closed; printf needle >unreadable; chmod 000 unreadable
python3 -c '
import os, socket
socket.socket(socket.AF_UNIX).bind("socket")
for name in (b"new\nline", b"\xff\xfe bytes", b"n" * 255, b"[*]?{,}", b"-rf"):
    with open(name, "w") as f: f.write("needle\n")
os.mkdir("deep"); os.chdir("deep")
for _ in range(3000): os.mkdir("d"); os.chdir("d")'`

func oddities(t *testing.T, s *fixture.Suite) {
	r := s.NewRoom(t)
	if res := fixture.Shell(t, r, oddScript); res.ExitCode != 0 {
		t.Fatalf("not laid out: %s", fixture.Show(res))
	}
	tools := toolsOf(r)
	if s.Caps.FileTools == providers.Native {
		searchesOddities(t, tools)
	} else {
		t.Log("not searched: the provider's file tools are emulated, a round trip for each of 3000 directories")
	}
	for _, path := range []string{"pipe", "socket"} {
		_, err := tools.Edit(fixture.Within(t), providers.Edit{Path: path, Edits: []providers.Replacement{replace("a", "b")}})
		fixture.WantClass(t, err, providers.NotAFile, providers.InvalidPath, providers.Internal)
		_, err = r.WriteFile(fixture.Within(t), path, []byte("x"), 0)
		fixture.WantClass(t, err, providers.NotAFile)
		_, err = r.ListDir(fixture.Within(t), path, 1)
		fixture.WantClass(t, err, providers.NotADir)
	}
	paths := []string{"pipe", "loop", "new\nline", "\xff\xfe bytes"}
	if s.Confined() {
		paths = append(paths, "out/passwd")
	}
	read, err := tools.ReadFiles(fixture.Within(t), paths, 1000)
	if err != nil || len(read) != len(paths) || string(read[2].Data) != "needle\n" || string(read[3].Data) != "needle\n" ||
		read[0].Err == nil || read[1].Err == nil || s.Confined() && read[4].Err == nil {
		t.Errorf("read many: %+v, %v", read, err)
	}
	if err := r.Remove(fixture.Within(t), "deep"); err != nil {
		t.Errorf("remove a deep directory: %v", err)
	}
}

func searchesOddities(t *testing.T, tools providers.FileTools) {
	t.Helper()
	found, err := tools.Grep(fixture.Within(t), providers.Grep{Path: ".", Pattern: "needle", Limit: 100})
	if err != nil || len(found.Matches) != 6 || found.Unreadable < 2 {
		t.Errorf("grep: %+v, %v", found, err)
	}
	globbed, err := tools.Glob(fixture.Within(t), providers.Glob{Path: ".", Pattern: "**", Hidden: true, Limit: 10_000})
	if err != nil || !globbed.Truncated || len(globbed.Entries) < 200 {
		t.Errorf("glob: %d entries, truncated %v, %v", len(globbed.Entries), globbed.Truncated, err)
	}
	for _, pattern := range []string{"new\nline", `\[\*\]\?\{,\}`, "-rf", "pipe", "loop", "up"} {
		if found, err := tools.Glob(fixture.Within(t), providers.Glob{Path: ".", Pattern: pattern, Limit: 10}); err != nil ||
			len(found.Entries) != 1 {
			t.Errorf("glob %q: %+v, %v", pattern, found, err)
		}
	}
	for _, path := range []string{"pipe", "socket"} {
		_, err = tools.Grep(fixture.Within(t), providers.Grep{Path: path, Pattern: "x", Limit: 1})
		fixture.WantClass(t, err, providers.NotAFile, providers.InvalidPath, providers.Internal)
	}
}

// crowd searches among very many files, after which the guest must not have grown.
func crowd(t *testing.T, s *fixture.Suite) {
	const many = 50_000
	if s.Caps.FileTools != providers.Native {
		t.Skip(
			"skipped: the provider's file tools are emulated; a directory of more than 10,000 entries is too large for them",
		)
	}
	r := s.NewRoom(t)
	res := fixture.Shell(
		t,
		r,
		fmt.Sprintf(
			`mkdir crowd; python3 -c 'for i in range(%d): open(f"crowd/f{i:05}.txt", "w").write("needle" if i == 49000 else "")'`,
			many,
		),
	)
	if res.ExitCode != 0 {
		t.Fatalf("not laid out: %s", fixture.Show(res))
	}
	tools := toolsOf(r)
	all, err := tools.Glob(fixture.Within(t), providers.Glob{Path: ".", Pattern: "**/*.txt", Limit: 10_000})
	if err != nil || !all.Truncated || len(all.Entries) < 1000 || all.Entries[999].Name != "f00999.txt" {
		t.Errorf("%d entries, truncated %v, %v", len(all.Entries), all.Truncated, err)
	}
	last, err := tools.Glob(fixture.Within(t), providers.Glob{Path: "crowd", Pattern: "f4999?.txt", Limit: 100})
	if err != nil || last.Truncated || len(last.Entries) != 10 || last.Entries[9].Name != "f49999.txt" {
		t.Errorf("%+v, %v", last, err)
	}
	found, err := tools.Grep(fixture.Within(t), providers.Grep{Path: ".", Pattern: "needle", Include: "f49*", Limit: 10})
	if err != nil || found.Truncated || len(found.Matches) != 1 || found.Searched != 1000 {
		t.Errorf("%+v, %v", found, err)
	}
	if _, err := r.ListDir(fixture.Within(t), "crowd", 1); err == nil ||
		providers.AsError(err).Class != providers.TooLarge {
		t.Errorf("list: %v", err)
	}
	testenv.Eventually(t, "the guest's own memory is below 10 MiB", func() bool { return ownMemory(t, r) < 10<<10 })
}

// ownMemory is what the first process of the sandbox shares with nobody, in KiB.
func ownMemory(t *testing.T, r fixture.Room) int {
	t.Helper()
	text, err := r.Run(
		fixture.Within(t),
		providers.Command{Name: fixture.NewID(t), Argv: []string{"grep", "-h", "RssAnon", "/proc/1/status"}},
	)
	if err != nil {
		t.Fatal(err)
	}
	fields := strings.Fields(string(text.Stdout))
	if len(fields) < 2 {
		t.Logf("the kernel of this sandbox does not say what the guest holds: %s", fixture.Show(text))
		return 0
	}
	kib, err := strconv.Atoi(fields[1])
	if err != nil {
		t.Fatal(err)
	}
	return kib
}
