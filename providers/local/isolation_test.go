package local_test

import (
	"strings"
	"testing"
)

// attempts are calls a sandbox must not get through, as Python expressions of their result.
const attempts = `
import ctypes, os, errno
libc = ctypes.CDLL(None, use_errno=True)
def call(name, *args):
    ctypes.set_errno(0)
    result = libc.syscall(*[ctypes.c_long(a) for a in args])
    print(name, errno.errorcode.get(ctypes.get_errno(), "none") if result < 0 else "allowed")
call("vsock", 41, 40, 1, 0)
call("alg", 41, 38, 5, 0)
call("packet", 41, 17, 3, 0)
call("can", 41, 29, 3, 1)
call("unix", 41, 1, 1, 0)
call("inet", 41, 2, 1, 0)
call("io_uring", 425, 4, 0)
call("ptrace_init", 101, 16, 1, 0, 0)
call("ptrace_me", 101, 0, 0, 0, 0)
call("vm_readv_init", 310, 1, 0, 0, 0, 0, 0)
call("vm_readv_self", 310, os.getpid(), 0, 0, 0, 0, 0)
call("prlimit_other", 302, 1, 7, 0, 0)
call("prlimit_self", 302, 0, 7, 0, 0)
call("unshare_user", 272, 0x10000000)
call("mount", 165, 0, 0, 0, 0, 0)
call("bpf", 321, 0, 0, 0)
call("keyctl", 250, 0, 0, 0)
call("kexec", 246, 0, 0, 0, 0)
call("x32_getpid", 0x40000000 + 39)
call("fsopen", 430, 0, 0)
call("open_by_handle_at", 304, 0, 0, 0)
call("userfaultfd", 323, 0)
call("clone_newuser", 56, 0x10000000, 0, 0, 0, 0)
call("clone3", 435, 0, 0)
call("personality_32", 135, 8)
`

func TestSeccomp(t *testing.T) {
	t.Parallel()
	p := newYard(t).open(t)
	_, box := create(t, p)
	got := shell(t, box, "python3 - <<'END'"+attempts+"END")
	want := `vsock EPERM
alg EPERM
packet EPERM
can EPERM
unix allowed
inet allowed
io_uring EPERM
ptrace_init EPERM
ptrace_me EPERM
vm_readv_init EPERM
vm_readv_self EPERM
prlimit_other EPERM
prlimit_self allowed
unshare_user EPERM
mount EPERM
bpf EPERM
keyctl EPERM
kexec EPERM
x32_getpid EPERM
fsopen EPERM
open_by_handle_at EPERM
userfaultfd EPERM
clone_newuser EPERM
clone3 ENOSYS
personality_32 allowed`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

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
		`ls /proc/[0-9]*/exe 2>/dev/null | grep -c keeper`:              "0",
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
