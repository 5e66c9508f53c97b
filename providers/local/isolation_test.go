package local_test

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"sandyard/providers"
)

func TestConfinement(t *testing.T) {
	t.Parallel()
	p := newYard(t).open(t)
	_, box := create(t, p)
	for script, want := range map[string]string{
		`id -u; id -g`: "1000\n1000",
		`grep -E '^(CapEff|CapBnd|CapAmb|NoNewPrivs|Seccomp):' /proc/self/status | tr -d '\t'`:                                      "CapBnd:0000000000000000\nCapAmb:0000000000000000\nNoNewPrivs:1\nSeccomp:2\nCapEff:0000000000000000",
		`touch /etc/x 2>&1 | grep -o 'Read-only.*'`:                                                                                 "Read-only file system",
		`touch /.sandyard/x 2>&1 | grep -o 'Read-only.*'`:                                                                           "Read-only file system",
		`cat /proc/1/environ 2>&1 | grep -o 'Permission denied'`:                                                                    "Permission denied",
		`(: >/proc/1/fd/1) 2>&1 | grep -o 'Permission denied'`:                                                                      "Permission denied",
		`(exec 3<>/proc/1/mem) 2>&1 | grep -o 'Permission denied'`:                                                                  "Permission denied",
		`for f in /proc/sysrq-trigger /proc/sys/kernel/core_pattern /sys/fs/cgroup/*; do [ -w "$f" ] && echo "$f"; done; echo none`: "none",
		`ulimit -c; ulimit -Hn`:                                         "0\n4096",
		`kill -9 1; kill -STOP 1; echo lives`:                           "lives",
		`df -k --output=size,itotal /workspace | tail -1 | tr -s ' '`:   "262144 102400",
		`cat /proc/1/comm`:                                              "guest",
		`echo $LANG; uname -n | grep -c '^t'; cat /etc/hosts | head -1`: "C.UTF-8\n1\n127.0.0.1\tlocalhost",
		`ls /proc/[0-9]*/exe 2>/dev/null | grep -c shim`:                "0",
		`ls /dev`: "fd\nfull\nmqueue\nnull\nptmx\npts\nrandom\nshm\nstderr\nstdin\nstdout\ntty\nurandom\nzero",
		`(: >/dev/x) 2>&1 | grep -o 'Read-only.*'`:                                                                                      "Read-only file system",
		`head -c1 /proc/keys /proc/kallsyms /proc/timer_list | grep -v '^$' | wc -l; ls /sys/firmware | wc -l`:                          "3\n0",
		`cut -d: -f3 /proc/self/cgroup | sort -u`:                                                                                       "/",
		`cat /proc/sys/kernel/hostname >/dev/null; (echo x >/proc/sys/kernel/hostname) 2>&1 | grep -Eo 'Permission denied|Read-only.*'`: "Read-only file system",
		`grep -c ' / / ' /proc/self/mountinfo; awk '{print $4}' /proc/self/mountinfo | grep -c "sandyard/local/images"`:                 "1\n0",
	} {
		got := shell(t, box, script)
		if sorted(got) != sorted(want) {
			t.Errorf("%s\ngot  %q\nwant %q", script, got, want)
		}
	}
}

// TestFilesOfTheWorkersParentStayOutside has something open that this process's children get, as from a shell.
func TestFilesOfTheWorkersParentStayOutside(t *testing.T) {
	t.Parallel()
	fd, err := unix.Open(filepath.Join(t.TempDir(), "lock"), unix.O_CREAT|unix.O_RDWR, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	_, box := create(t, newYard(t).open(t))
	if got := shell(t, box, "ls /proc/self/fd"); got != "0\n1\n2\n3" {
		t.Errorf("a program has %q open", got)
	}
}

// TestSetuidProgramGivesNothing has a program in the image that anybody may run as root, without a word.
func TestSetuidProgramGivesNothing(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	const name = "setuid"
	made := filepath.Join(y.dir, "images", name)
	script := `mkdir "$1" && cp -a "$0/env" "$1/" && cp -al "$0/tree" "$1/tree" && cp "$0/tree/usr/bin/id" "$1/tree/usr/bin/rootid" && chmod 4755 "$1/tree/usr/bin/rootid"`
	if out, err := exec.Command("sh", "-c", script, filepath.Join(y.dir, "images", imageFile), made).CombinedOutput(); err != nil {
		t.Fatalf("make the image: %v: %s", err, out)
	}
	p, id := y.open(t), newID()
	if _, err := p.Create(t.Context(), providers.Spec{ID: id, Image: name}); err != nil {
		t.Fatal(err)
	}
	if got := shell(t, open(t, p, id), `stat -c '%a %u' /usr/bin/rootid; rootid -u`); got != "4755 0\n1000" {
		t.Errorf("got %q", got)
	}
}

func sorted(lines string) string {
	all := strings.Split(strings.TrimSpace(lines), "\n")
	for i := range all {
		for j := i + 1; j < len(all); j++ {
			if all[j] < all[i] {
				all[i], all[j] = all[j], all[i]
			}
		}
	}
	return strings.Join(all, "\n")
}
