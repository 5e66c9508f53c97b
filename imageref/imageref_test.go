package imageref_test

import (
	"strings"
	"testing"

	"go.uber.org/goleak"

	"sandyard/imageref"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestNamesAreReadAsEnginesReadThem(t *testing.T) {
	t.Parallel()
	sum := "sha256:" + strings.Repeat("ab", 32)
	for text, want := range map[string][2]string{
		"python":                           {"docker.io/library/python:latest", "python:latest"},
		"python:3.12":                      {"docker.io/library/python:3.12", "python:3.12"},
		"sandyard/base:default":            {"docker.io/sandyard/base:default", "sandyard/base:default"},
		"docker.io/sandyard/build:bld_1":   {"docker.io/sandyard/build:bld_1", "sandyard/build:bld_1"},
		"index.docker.io/library/debian:1": {"docker.io/library/debian:1", "debian:1"},
		"localhost:5000/a/b:c":             {"localhost:5000/a/b:c", "localhost:5000/a/b:c"},
		"debian@" + sum:                    {"docker.io/library/debian@" + sum, "debian@" + sum},
		"5":                                {"docker.io/library/5:latest", "5:latest"},
		"cafe":                             {"docker.io/library/cafe:latest", "cafe:latest"},
	} {
		n, err := imageref.Parse(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if n.Full() != want[0] || n.String() != want[1] || !n.Is(text) || !strings.Contains(n.Full(), "/") {
			t.Errorf("%s is %s and %s, want %v", text, n.Full(), n, want)
		}
	}
}

func TestWhatIsNoNameIsRefused(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"", "../containers/victim", "a/../b", "a:..", "..", "a/..", "/a", "a/", "a b", "a\nb", "a\x00", "a\x7f", "a?b", "a#b", "a%2e%2e/b",
		`a\b`, "A", "a:", "a@", "a@sha256:12", "sha256:", "sha256:5", "sha256:abc", "sha256:latest", "sha256", "sha256@sha256:" + strings.Repeat("a", 64),
		"510cee4364f9", strings.Repeat("a", 64), "sha256:" + strings.Repeat("a", 64), strings.Repeat("a", 300), strings.Repeat("a/", 400) + "a",
		"a:" + strings.Repeat("t", 129), "é", "docker.io/library/sha256:abc",
	} {
		n, err := imageref.Parse(text)
		if err == nil {
			t.Errorf("%q is taken for %s", text, n.Full())
			continue
		}
		if !strings.Contains(err.Error(), "REPOSITORY:TAG") || len(err.Error()) > 400 || strings.ContainsAny(err.Error(), "\n\x00\x7f") {
			t.Errorf("%q: the error is %q", text, err)
		}
	}
}

func TestGlobs(t *testing.T) {
	t.Parallel()
	for pattern, names := range map[string]struct{ yes, no []string }{
		"*":                {yes: []string{"a", "ghcr.io/a/b:c", "5"}},
		"python:*":         {yes: []string{"python", "docker.io/library/python:3"}, no: []string{"python-x:1", "evil/python:1", "ghcr.io/library/python:1"}},
		"ghcr.io/acme/*":   {yes: []string{"ghcr.io/acme/a:1", "ghcr.io/acme/a/b"}, no: []string{"ghcr.io/acmes/a", "acme/a"}},
		"sandyard/*:def*t": {yes: []string{"sandyard/base:default"}, no: []string{"sandyard/base:other"}},
		"a:1":              {yes: []string{"a:1"}, no: []string{"a:10", "a"}},
		"a*a*a:1":          {yes: []string{"aaa:1", "abaca:1"}, no: []string{"aa:1"}},
		"*:aa":             {no: []string{"aa:a"}},
	} {
		for want, list := range map[bool][]string{true: names.yes, false: names.no} {
			for _, text := range list {
				n, err := imageref.Parse(text)
				if err != nil {
					t.Fatal(err)
				}
				if got := (imageref.Globs{"never", pattern}).Match(n); got != want {
					t.Errorf("%s and %s: %v", pattern, n, got)
				}
			}
		}
	}
	for _, bad := range []string{"", "a b", "a?", "[a]"} {
		if (imageref.Globs{bad}).Check() == nil {
			t.Errorf("%q is taken", bad)
		}
	}
	if err := (imageref.Globs{"*", "ghcr.io/acme/*", "a:1"}).Check(); err != nil {
		t.Error(err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add("python:3.12")
	f.Add("../containers/x")
	f.Add("localhost:5000/a@sha256:0")
	f.Fuzz(func(t *testing.T, text string) {
		n, err := imageref.Parse(text)
		if err != nil {
			return
		}
		if !strings.Contains(n.Full(), "/") || strings.Contains(n.Full(), "..") || strings.ContainsAny(n.Full(), "?#%\\ ") || !n.Is(n.Full()) || !n.Is(n.String()) {
			t.Errorf("%q is %q, %q", text, n.Full(), n)
		}
	})
}
