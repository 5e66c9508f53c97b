package docker_test

import (
	"bytes"
	"strings"
	"testing"

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
		`ulimit -c; ulimit -Hn`:                                       "0\n4096",
		`kill -9 1; kill -STOP 1; echo lives`:                         "lives",
		`df -k --output=size,itotal /workspace | tail -1 | tr -s ' '`: "262144 102400",
		`cat /proc/1/comm`:                                            "guest",
	} {
		got := shell(t, box, script)
		if sorted(got) != sorted(want) {
			t.Errorf("%s\ngot  %q\nwant %q", script, got, want)
		}
	}
}

// TestSetuidProgramGivesNothing has a program in the image that anybody may run as root, without a word.
func TestSetuidProgramGivesNothing(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	p := y.open(t)
	b := y.building(t, "cp /usr/bin/id /usr/bin/python3 /opt/ && chmod 4755 /opt/id /opt/python3")
	if err := p.Build(t.Context(), b, &bytes.Buffer{}); err != nil {
		t.Fatal(err)
	}
	id := newID()
	if _, err := p.Create(t.Context(), providers.Spec{ID: id, Image: b.Image}); err != nil {
		t.Fatal(err)
	}
	const script = `stat -c '%a %u' /opt/id; /opt/id -u; /opt/python3 -c 'import os; print(os.getresuid())'`
	if got := shell(t, open(t, p, id), script); got != "4755 0\n1000\n(1000, 1000, 1000)" {
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
