package docker_test

import (
	"archive/tar"
	"bytes"
	"strings"
	"testing"

	"sandyard/dev/testenv"
	"sandyard/providers"
)

func root(script, dir string) providers.Step {
	return providers.Step{Text: "a step", Argv: []string{"sh", "-c", script}, User: "0:0", Dir: dir}
}

// TestWhatAStepStartedEndsWithIt: neither the next step nor a copy finds it running, however it has left its parent.
func TestWhatAStepStartedEndsWithIt(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	p := y.open(t)
	b := y.building(t, "")
	b.Steps = []providers.Step{
		root("sleep 1001 & setsid sh -c 'trap \"\" HUP TERM; while :; do sleep 0.01; done' </dev/null >/dev/null 2>&1 & "+
			"(nohup sleep 1002 >/dev/null 2>&1 &); echo begun", "/"),
		root(`for f in /proc/[0-9]*; do n=${f#/proc/}; [ $n = 1 ] || [ $n = $$ ] || { c=$(tr '\0' ' ' <$f/cmdline); [ -z "$c" ] || echo "left: $c"; }; done; echo looked`, "/"),
	}
	var log bytes.Buffer
	if err := p.Build(t.Context(), b, &log); err != nil {
		t.Fatalf("%v: %s", err, log.String())
	}
	for line := range strings.Lines(log.String()) {
		if strings.Contains(line, "sleep 100") || strings.Contains(line, "while :") {
			t.Errorf("a process has outlived its step: %s", line)
		}
	}
	if !strings.Contains(log.String(), "begun\n") || !strings.HasSuffix(log.String(), "looked\n") {
		t.Errorf("the log: %s", log.String())
	}
}

// TestStepsStayOutOfTheKernelsDirectories, also where a link of the image leads there.
func TestStepsStayOutOfTheKernelsDirectories(t *testing.T) {
	testenv.Long(t, "it takes many seconds")
	t.Parallel()
	y := newYard(t)
	p := y.open(t)
	links := root("mkdir -p /opt; ln -s /proc/self/fd /opt/fd; ln -s /proc /opt/proc; ln -s /sys /opt/sys; ln -s /dev /opt/dev; ln -s /.sandyard /opt/guest; ln -s / /opt/root", "/")
	for _, dir := range []string{
		"/proc/self/fd/8", "/proc/self/fd/3", "/proc", "/sys/fs", "/dev", "/.sandyard", "/opt/fd", "/opt/proc/1", "/opt/sys", "/opt/dev", "/opt/guest", "/opt/root/proc",
		"/opt/root/opt/fd/../../proc",
	} {
		b := y.building(t, "")
		b.Steps = []providers.Step{links, root("echo inside; pwd -P; ls", dir)}
		var log bytes.Buffer
		err := p.Build(t.Context(), b, &log)
		if classOf(err) != providers.BuildFailed || strings.Contains(log.String(), "inside") || !strings.Contains(err.Error(), "work directory") {
			t.Errorf("in %s: %v, %s", dir, err, log.String())
		}
	}
	b := y.building(t, "")
	b.Steps = []providers.Step{links, root("pwd -P", "/opt/root/tmp")}
	var log bytes.Buffer
	if err := p.Build(t.Context(), b, &log); err != nil || !strings.Contains(log.String(), "\n/tmp\n") {
		t.Errorf("a link to another directory: %v, %s", err, log.String())
	}
}

// TestCopiesThroughLinksReachNothing: files are put into the image's own tree, in which nothing of the kernel's is mounted.
func TestCopiesThroughLinksReachNothing(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	p := y.open(t)
	for target, path := range map[string]string{"/proc": "/opt/x/sys/kernel/core_pattern", "/sys": "/opt/x/evil", "/dev": "/opt/x/evil", "/.sandyard": "/opt/x/guest", "/proc/1/root": "/opt/x/evil"} {
		var archive bytes.Buffer
		w := tar.NewWriter(&archive)
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: strings.TrimPrefix(path, "/"), Mode: 0o755, Size: 4}); err != nil {
			t.Fatal(err)
		}
		_, _ = w.Write([]byte("evil"))
		_ = w.Close()
		b := y.building(t, "")
		b.Steps = []providers.Step{
			root("mkdir -p /opt; ln -s "+target+" /opt/x", "/"),
			{Text: "COPY", Files: archive.Bytes(), Dir: "/"},
			root("cat /proc/sys/kernel/core_pattern; ls -A /sys /dev; head -c 4 /.sandyard/guest", "/"),
		}
		var log bytes.Buffer
		err := p.Build(t.Context(), b, &log)
		if strings.Contains(log.String(), "evil") {
			t.Errorf("through a link to %s: %v, %s", target, err, log.String())
		}
		if err != nil && strings.Contains(err.Error(), path) {
			t.Errorf("the error quotes the path: %v", err)
		}
	}
}

// TestErrorsOfStepsHoldNoVariables: the engine's words quote users and paths with their variables put in.
func TestErrorsOfStepsHoldNoVariables(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	p := y.open(t)
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "etc/passwd/hunter2", Mode: 0o644}); err != nil {
		t.Fatal(err)
	}
	_ = w.Close()
	for name, s := range map[string]providers.Step{
		"user":  {Text: "USER $SECRET", Argv: []string{"true"}, User: "hunter2", Dir: "/"},
		"group": {Text: "USER 0:$SECRET", Argv: []string{"true"}, User: "0:hunter2", Dir: "/"},
		"dir":   {Text: "WORKDIR $SECRET", Argv: []string{"true"}, User: "0:0", Dir: "/etc/passwd/hunter2"},
		"copy":  {Text: "COPY a /etc/passwd/$SECRET", Files: archive.Bytes(), Dir: "/"},
	} {
		b := y.building(t, "")
		b.Steps = []providers.Step{s}
		var log bytes.Buffer
		err := p.Build(t.Context(), b, &log)
		if classOf(err) != providers.BuildFailed || strings.Contains(err.Error()+log.String(), "hunter2") {
			t.Errorf("%s: %v, %s", name, err, log.String())
		}
	}
}
