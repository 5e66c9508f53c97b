package daytona_test

import (
	"bytes"
	"errors"
	"os"
	"strings"
	"testing"

	"sandyard/providers"
	"sandyard/providers/providertest/fixture"
	"sandyard/providers/remote/remotetest"
)

// TestCommandsSeeTheSandboxsEnvironment: no variable of the line that runs a script has the name of one of the
// sandbox's.
func TestCommandsSeeTheSandboxsEnvironment(t *testing.T) {
	for _, name := range []string{"T", "W", "u"} {
		t.Setenv(name, "theirs")
	}
	v := newVendor(t)
	box, dir := opened(t, v)
	cmd := providers.Command{Name: "env" + dir[len("/tmp/sandyard-test-"):], Shell: `printf %s "$T $W $u"`, Dir: dir}
	res, err := box.Run(t.Context(), cmd)
	if err != nil || string(res.Stdout) != "theirs theirs theirs" {
		t.Errorf("the command saw %.100q, %v", res.Stdout, err)
	}
	if err := box.Forget(t.Context(), cmd.Name); err != nil {
		t.Error(err)
	}
}

// TestATenantsLabelsAreNotOurs: what a tenant calls a sandbox does not say where its files are.
func TestATenantsLabelsAreNotOurs(t *testing.T) {
	t.Parallel()
	v := newVendor(t)
	p := v.open()
	spec := providers.Spec{ID: "box1", Labels: map[string]string{
		"sandyard_home": "/etc", "sandyard_dir": "/etc", "sandyard_sandbox": "box2", "sandyard_fleet": "another",
	}}
	if _, err := p.Create(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	box, err := p.Open(t.Context(), "box1")
	if err != nil {
		t.Fatal(err)
	}
	_, err = box.Stat(t.Context(), "/etc/hostname")
	fixture.WantClass(t, err, providers.InvalidPath)
}

// TestAnUploadThatIsNotThere: the toolbox says that it has a file which it does not have, or has a part of it.
func TestAnUploadThatIsNotThere(t *testing.T) {
	t.Parallel()
	v := newVendor(t)
	box, dir := opened(t, v)
	v.fault("files/bulk-upload", remotetest.Refusing(200, `{"files":[],"errors":["failed"]}`))
	data := bytes.Repeat([]byte("x"), 100_000)
	_, err := box.WriteFile(t.Context(), dir+"/f", data, 0)
	fixture.WantClass(t, err, providers.Unavailable)
	if _, err := box.WriteFile(t.Context(), dir+"/f", data, 0); err != nil {
		t.Errorf("once more: %v", err)
	}
}

// TestALinkThatGoesMeanwhile: a program removes a link after its description, and the other's target stays its own.
func TestALinkThatGoesMeanwhile(t *testing.T) {
	t.Parallel()
	v := newVendor(t)
	box, dir := opened(t, v)
	if err := errors.Join(os.Symlink("first", dir+"/a"), os.Symlink("second", dir+"/b")); err != nil {
		t.Fatal(err)
	}
	for gone, stays := range map[string]string{"a": "second", "b": "first"} {
		const ask = `[ ! -L "$l" ] ||`
		v.change(func() { v.edit = strings.NewReplacer(ask, ask+` [ "$l" = ./`+gone+` ] ||`) })
		list, err := box.ListDir(t.Context(), dir, 1)
		if err != nil || len(list) != 2 {
			t.Fatalf("listed %+v, %v", list, err)
		}
		for _, f := range list {
			if want := map[bool]string{false: stays}[f.Name == gone]; f.SymlinkTarget != want {
				t.Errorf("%s is gone, and %s leads to %q, want %q", gone, f.Name, f.SymlinkTarget, want)
			}
		}
	}
}
