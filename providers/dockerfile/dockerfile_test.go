package dockerfile_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"sandyard/providers"
	"sandyard/providers/dockerfile"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// context makes a tar of files, whose names hold their types: a name that ends in @ is a link.
func context(t *testing.T, names ...string) []byte {
	t.Helper()
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, name := range names {
		h := &tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: int64(len(name))}
		if link, is := strings.CutSuffix(name, "@"); is {
			h = &tar.Header{Typeflag: tar.TypeSymlink, Name: link, Linkname: "/etc/passwd"}
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if h.Typeflag == tar.TypeReg {
			if _, err := w.Write([]byte(name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

// files lists the regular files in a step's tar, as name=content, with owner and mode where those are not usual.
func files(t *testing.T, archive []byte) []string {
	t.Helper()
	var found []string
	for r := tar.NewReader(bytes.NewReader(archive)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return found
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.Typeflag == tar.TypeDir {
			continue
		}
		data, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		entry := h.Name + "=" + string(data)
		if h.Uid != 0 || h.Mode != 0o644 {
			entry += fmt.Sprintf(" %d:%d %o", h.Uid, h.Gid, h.Mode)
		}
		found = append(found, entry)
	}
}

func TestDockerfile(t *testing.T) {
	t.Parallel()
	r := dockerfile.Recipe{Dockerfile: `# syntax=anything
ARG TAG=12
FROM debian:$TAG AS one
ENV A=1 B="two words" PATH=/opt/bin:$PATH
ARG NAME=world
RUN echo hello \
    # a comment among the lines
    $NAME
WORKDIR /opt/app
COPY --chown=1000:1000 --chmod=755 src/*.py ./
COPY src/sub lib/
RUN ["python3", "-m", "compileall", "."]
USER 1000
LABEL team=$A
CMD ["sleep"]
EXPOSE 80
`}
	if from, err := r.Base(); err != nil || from != "debian:12" {
		t.Errorf("base %q, %v", from, err)
	}
	plan, err := r.Plan(providers.ImageConfig{Env: map[string]string{"PATH": "/bin"}}, context(t, "src/a.py", "src/b.py", "src/c.txt", "src/sub/d", "src/sub/e/f"))
	if err != nil {
		t.Fatal(err)
	}
	if len(plan.Steps) != 5 {
		t.Fatalf("steps: %+v", plan.Steps)
	}
	hello := plan.Steps[0]
	if !slices.Equal(hello.Argv, []string{"/bin/sh", "-c", "echo hello     $NAME"}) || hello.User != "0:0" || hello.Dir != "/" || hello.Text != "RUN echo hello     $NAME" {
		t.Errorf("the first step: %+v", hello)
	}
	if e := hello.Env; e["A"] != "1" || e["B"] != "two words" || e["PATH"] != "/opt/bin:/bin" || e["NAME"] != "world" {
		t.Errorf("its environment: %v", e)
	}
	if got := files(t, plan.Steps[2].Files); !slices.Equal(got, []string{"opt/app/a.py=src/a.py 1000:1000 755", "opt/app/b.py=src/b.py 1000:1000 755"}) {
		t.Errorf("copied: %q", got)
	}
	if got := files(t, plan.Steps[3].Files); !slices.Equal(got, []string{"opt/app/lib/d=src/sub/d", "opt/app/lib/e/f=src/sub/e/f"}) {
		t.Errorf("copied: %q", got)
	}
	if last := plan.Steps[4]; !slices.Equal(last.Argv, []string{"python3", "-m", "compileall", "."}) || last.Dir != "/opt/app" {
		t.Errorf("the last step: %+v", last)
	}
	if c := plan.Config; c.User != "1000" || c.WorkDir != "/opt/app" || c.Env["NAME"] != "" || plan.Labels["team"] != "1" {
		t.Errorf("the result: %+v, %v", c, plan.Labels)
	}
}

func TestScript(t *testing.T) {
	t.Parallel()
	plan, err := dockerfile.Recipe{Script: "cp tool /usr/local/bin/", From: "base"}.Plan(providers.ImageConfig{User: "1000:1000"}, context(t, "tool"))
	if err != nil || len(plan.Steps) != 1 || plan.Config.User != "1000:1000" {
		t.Fatalf("%+v, %v", plan, err)
	}
	if got := files(t, plan.Steps[0].Files); plan.Steps[0].Dir != "/tmp/build" || !slices.Equal(got, []string{"tmp/build/tool=tool"}) {
		t.Errorf("in %s it finds %q", plan.Steps[0].Dir, got)
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	for text, says := range map[string]string{
		"":                                     "exactly one",
		"RUN x":                                "must be FROM",
		"FROM scratch":                         "scratch",
		"FROM a\nFROM b":                       "multi-stage",
		"FROM --platform=linux/arm64 a":        "no options",
		"FROM a\nRUN --mount=type=bind x":      "--mount",
		"FROM a\nRUN <<EOF\necho":              "unterminated heredoc",
		"FROM a\nCOPY <<.. /x/\nEOF\n..":       "no name of a file",
		"FROM a\nCOPY a <<EOF\nEOF":            "cannot accept a heredoc as a destination",
		"FROM a\nCOPY --link file /y":          "--link",
		"FROM a\nCOPY --parents file /y":       "--parents",
		"FROM a\nADD --checksum=x file /y":     "--checksum",
		"FROM a\nENV A=${B:?$C}":               "${NAME:-default}",
		"FROM a\nENV A=${B##x}":                "not supported",
		"FROM a\nENV A=${B%x}":                 "not supported",
		"FROM a\nENV A=${B/x/y}":               "not supported",
		"FROM a\nENV A=${B":                    "unsupported modifier",
		"FROM a\nENV A=${B:-'}":                "missing '}'",
		"FROM a\nSHELL bash":                   "SHELL",
		"FROM a\nRUN [\"a\", 1]":               "strings only",
		"# escape=x\nFROM a":                   "escape",
		"FROM a\nBOGUS x":                      "BOGUS is not supported",
		"#":                                    "no instructions",
		"FROM a\nCOPY --from=b /x /y":          "--from",
		"FROM a\nCOPY missing /y":              "not among the files",
		"FROM a\nCOPY ../../etc/passwd /y":     "not among the files",
		"FROM a\nADD https://example.test/ /y": "no network",
		"FROM a\nLABEL sandyard.fleet=x":       "platform",
		"FROM a\nENV A=\"b":                    "quote",
		"FROM a\nENV A='b":                     "quote",
		"FROM a\nONBUILD RUN x":                "ONBUILD",
		"FROM a\nRUN":                          "is empty",
		"FROM a\nENV []":                       "two arguments",
		"FROM a\nENV a=b c":                    "name=value",
	} {
		err := dockerfile.Recipe{Dockerfile: text}.Check(context(t, "file"))
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v, want %q", text, err, says)
		}
	}
	for name, says := range map[string]string{"../x": "leaves", "a/../../x": "leaves", "link@": "neither a file"} {
		if err := (dockerfile.Recipe{Script: "x"}).Check(context(t, name)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("a context with %s: %v", name, err)
		}
	}
	if err := (dockerfile.Recipe{Script: "x", Image: "y"}).Check(nil); err == nil {
		t.Error("two ways at once are taken")
	}
}

// TestReservedPathsAreRefused as written, with variables put in, by "..", and where the base image gives them.
func TestReservedPathsAreRefused(t *testing.T) {
	t.Parallel()
	on := providers.ImageConfig{Env: map[string]string{"P": "/proc", "D": "dev", "UP": "../.."}}
	sent := context(t, "a")
	for _, line := range []string{
		"WORKDIR /proc/self/fd/8", "WORKDIR /x\nWORKDIR ../proc", "WORKDIR ${P}/self", "WORKDIR /$D", "WORKDIR //sys//fs", "WORKDIR ../../sys/fs",
		"WORKDIR /srv/a\nWORKDIR $UP/dev", "WORKDIR /.sandyard", "WORKDIR /.sandyard/x", `WORKDIR "/proc"`, "WORKDIR /dev/shm/..",
		"COPY a /proc/a", "COPY a $P/a", "COPY a /x/../sys/a", "COPY a ../dev/", "COPY a /.sandyard/guest", "ADD a /dev/a", "COPY --chown=1:1 a /${D}/a",
		"COPY [\"a\", \"/proc/\"]", "VOLUME /proc", "VOLUME /data $P", "VOLUME [\"/data\", \"/sys/x\"]", "VOLUME ../dev",
	} {
		_, err := dockerfile.Recipe{Dockerfile: "FROM a\n" + line}.Plan(on, sent)
		if err == nil || !strings.Contains(err.Error(), "below /proc, /sys, /dev") {
			t.Errorf("%q: %v", line, err)
		}
	}
	for _, line := range []string{"WORKDIR /process", "COPY a /srv/proc/", "WORKDIR /device", "VOLUME /data", "VOLUME [\"/data\"]", "COPY a /x/../y"} {
		if _, err := (dockerfile.Recipe{Dockerfile: "FROM a\n" + line}).Plan(on, sent); err != nil {
			t.Errorf("%q: %v", line, err)
		}
	}
	if _, err := (dockerfile.Recipe{Dockerfile: "FROM a\nRUN x"}).Plan(providers.ImageConfig{WorkDir: "/proc/self/fd/8"}, nil); err == nil {
		t.Error("the base image's work directory is taken")
	}
}

// TestErrorsHoldNoVariables: what an image's environment holds is nobody's to read in an error.
func TestErrorsHoldNoVariables(t *testing.T) {
	t.Parallel()
	const secret = "hunter2"
	on := providers.ImageConfig{Env: map[string]string{"SECRET": secret, "URL": "http://" + secret + "/x", "PROC": "/proc/" + secret, "LONG": secret + strings.Repeat("x", 5000)}}
	for _, line := range []string{
		"COPY ${SECRET:-a} /a", "COPY $URL /a", "COPY *$SECRET* /a", "ADD [\"$SECRET\", \"/a\"]", "COPY a $PROC", "WORKDIR $PROC", "WORKDIR /$LONG",
		"COPY a /$LONG", "VOLUME $PROC", "COPY --chown=$SECRET a /a", "COPY --$SECRET a /a", "ENV A=$SECRET B", "ARG", "FROM $SECRET", "USER",
		"ENV A=" + strings.Repeat("$LONG", 10), "COPY a$SECRET* /b", "COPY $SECRET", "RUN --mount=$SECRET x", "SHELL $SECRET",
	} {
		_, err := dockerfile.Recipe{Dockerfile: "FROM a\n" + line}.Plan(on, context(t, "a"))
		if err == nil || strings.Contains(err.Error(), secret) {
			t.Errorf("%q: %v", line, err)
		}
	}
}
