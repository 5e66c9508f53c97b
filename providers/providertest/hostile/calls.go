package hostile

import (
	"slices"
	"strings"
	"testing"

	"sandyard/providers"
	"sandyard/providers/providertest/fixture"
)

// calls are system calls by number, as x86-64 has them, and what a sandbox hears of each. It is one that the processor
// of another kind must not know, so there they are not tried.
const calls = `
import ctypes, os, errno, platform, struct, sys, time
if platform.machine() != "x86_64": sys.exit(3)
libc, first = ctypes.CDLL(None, use_errno=True), os.getpid()
kept = []
def at(data):
    kept.append(ctypes.create_string_buffer(data, len(data) + 1))
    return ctypes.addressof(kept[-1])
def call(name, *args):
    ctypes.set_errno(0)
    result = libc.syscall(*[ctypes.c_long(a) for a in args])
    if result == 0 and name == "clone_newuser" and os.getpid() != first: os._exit(0)
    print(name, errno.errorcode.get(ctypes.get_errno(), "none") if result < 0 else "allowed", flush=True)
call("vsock", 41, 40, 1, 0)
call("alg", 41, 38, 5, 0)
call("packet", 41, 17, 3, 0)
call("raw", 41, 2, 3, 1)
call("can", 41, 29, 3, 1)
call("unix", 41, 1, 1, 0)
call("inet", 41, 2, 1, 0)
call("io_uring", 425, 4, 0)
call("ptrace_init", 101, 16, 1, 0, 0)
call("ptrace_me", 101, 0, 0, 0, 0)
call("vm_readv_init", 310, 1, 0, 0, 0, 0, 0)
call("vm_readv_self", 310, os.getpid(), 0, 0, 0, 0, 0)
call("prlimit_self", 302, 0, 7, 0, 0)
call("prlimit_other", 302, 1, 7, 0, 0)
call("unshare_user", 272, 0x10000000)
call("unshare_net", 272, 0x40000000)
call("setns", 308, os.open("/proc/self/ns/net", os.O_RDONLY) if os.path.exists("/proc/self/ns/net") else 0, 0)
call("mount", 165, at(b"none"), at(b"/tmp"), at(b"tmpfs"), 0, at(b"size=1m"))
call("umount", 166, at(b"/tmp"), 2)
call("pivot_root", 155, at(b"/workspace"), at(b"/workspace"))
call("chroot", 161, at(b"/"))
call("swapon", 167, at(b"/workspace/swap"), 0)
call("reboot", 169, 0xfee1dead, 0x28121969, 0, 0) # forbids Ctrl-Alt-Del to reboot
call("bpf", 321, 0, at(struct.pack("IIII", 2, 4, 4, 1) + bytes(56)), 72) # makes an array
call("perf_event", 298, at(struct.pack("IIQ", 1, 112, 0) + bytes(96)), 0, -1, -1, 0)
call("keyctl", 250, 0, -3, 1)
call("add_key", 248, at(b"user"), at(b"name"), at(b"x"), 1, -3)
call("kexec", 246, 0, 0, 0, 0)
call("init_module", 175, at(b"\\x7fELF"), 4, at(b""))
call("finit_module", 313, os.open("/bin/true", os.O_RDONLY), at(b""), 0)
call("delete_module", 176, at(b"none"), 0x800)
call("fsopen", 430, at(b"tmpfs"), 0)
call("open_by_handle_at", 304, os.open("/", os.O_RDONLY), at(struct.pack("Ii", 8, 1) + bytes(8)), 0)
call("userfaultfd", 323, 0)
call("iopl", 172, 3)
call("settime", 227, 0, at(struct.pack("qq", int(time.time()), 0)))
call("clone3", 435, 0, 0)
call("clone_newuser", 56, 0x10000000 | 17, 0, 0, 0, 0)
child = os.fork() # some filters end who calls by the other table of x86-64
if child == 0:
    call("x32_getpid", 0x40000000 + 39)
    os._exit(0)
if os.waitpid(child, 0)[1] != 0: print("x32_getpid EPERM")
`

// systemCalls tries those that lead out of a sandbox or to its guest, and those that have been ways in.
func systemCalls(t *testing.T, s *fixture.Suite) {
	s.NeedsSystem(t)
	res := fixture.Run(t, s.NewRoom(t), python(calls))
	if res.ExitCode == 3 {
		t.Skip("skipped: the numbers of the system calls are those of x86-64")
	}
	allowed := []string{"unix", "inet", "prlimit_self"}
	if s.OwnKernel { // these reach no further than that
		allowed = append(
			allowed,
			"ptrace_me",
			"vm_readv_self",
			"unshare_user",
			"unshare_net",
			"clone_newuser",
			"setns",
			"prlimit_other",
			"io_uring",
			"vm_readv_init",
			"chroot",
		) // by the rights in the user namespace that it has made
	}
	for line := range strings.Lines(string(res.Stdout)) {
		name, answer, _ := strings.Cut(strings.TrimSpace(line), " ")
		if answer == "allowed" && !slices.Contains(allowed, name) {
			t.Errorf("%s is allowed", name)
		}
		if answer != "allowed" && !s.OwnKernel && slices.Contains(allowed, name) {
			t.Errorf("%s answers %s, but programs need it", name, answer)
		}
		if answer != "allowed" && answer != "EPERM" && answer != "ENOSYS" && !s.OwnKernel && !slices.Contains(allowed, name) {
			t.Errorf("%s got as far as %s", name, answer)
		}
	}
	if n := strings.Count(string(res.Stdout), "\n"); n < 39 {
		t.Errorf("only %d calls were tried: %s", n, fixture.Show(res))
	}
}

// machines is a program that opens, for writing, what belongs to the machine, and makes devices.
const machines = `
import os, errno, stat
def attempt(name, do):
    try: do(); print(name, "allowed")
    except OSError as e: print(name, errno.errorcode[e.errno])
def write(path): os.close(os.open(path, os.O_WRONLY))
def disk(): # a real one of the machine's, whose number everybody may read
    names = os.listdir("/sys/block") if os.path.isdir("/sys/block") else []
    real = [n for n in names if not n.startswith(("loop", "ram", "zram", "dm-"))]
    try: return os.makedev(*map(int, open("/sys/block/%s/dev" % real[0]).read().split(":")))
    except (OSError, IndexError): return os.makedev(254, 0)
def create(path): os.close(os.open(path, os.O_WRONLY | os.O_CREAT))
for path in ["/proc/sysrq-trigger", "/proc/sys/kernel/core_pattern", "/proc/sys/kernel/hostname", "/proc/sys/vm/drop_caches", "/proc/kcore",
    "/proc/1/mem", "/proc/1/oom_score_adj", "/proc/1/environ", "/sys/kernel/uevent_helper", "/sys/power/state", "/dev/kmsg", "/dev/mem", "/dev/kvm",
    "/dev/fuse", "/dev/net/tun", "/dev/sda", "/dev/vda", "/dev/loop-control", "/etc/passwd", "/etc/shadow", "/etc/resolv.conf", "/.sandyard/guest"]:
    attempt(path, lambda: write(path))
for dir in ["/", "/etc", "/usr/bin", "/.sandyard", "/sys", "/proc", "/sys/fs/cgroup", "/dev", "/root"]:
    attempt(dir + "/new", lambda: create(dir + "/new"))
attempt("read-environ", lambda: open("/proc/1/environ").read())
attempt("read-mem", lambda: open("/proc/1/mem", "rb").read(1))
attempt("read-kcore", lambda: open("/proc/kcore", "rb").read(1)[0])
attempt("read-kmsg", lambda: os.read(os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK), 1)[0])
attempt("block-device", lambda: os.mknod("/workspace/disk", stat.S_IFBLK | 0o666, disk()))
attempt("char-device", lambda: os.mknod("/workspace/mem", stat.S_IFCHR | 0o666, os.makedev(1, 1)))
# A node that could be made must lead nowhere.
attempt("open-block-device", lambda: os.open("/workspace/disk", os.O_RDONLY | os.O_NONBLOCK))
attempt("open-char-device", lambda: os.open("/workspace/mem", os.O_RDWR | os.O_NONBLOCK))
attempt("chown", lambda: (open("/workspace/own", "w").close(), os.chown("/workspace/own", 0, 0)))
`

// machinesFiles tries to write to /proc, /sys, devices and the image, and to make devices.
func machinesFiles(t *testing.T, s *fixture.Suite) {
	s.NeedsSystem(t)
	res := fixture.Run(t, s.NewRoom(t), python(machines))
	if res.ExitCode != 0 {
		t.Errorf("the program got %s", fixture.Show(res))
	}
	for name, answer := range said(res) {
		if own := s.OwnKernel && slices.Contains(ownKernels(), name); answer == "allowed" && !own {
			t.Errorf("%s is allowed", name)
		}
	}
}

// ownKernels are things that a kernel of its own gives to a sandbox, and that lead to no device or secret: process 1
// has the environment of every command, and its device nodes are names for nothing.
func ownKernels() []string {
	return []string{"read-environ", "char-device", "block-device", "/dev/fuse", "/dev/net/tun", "/proc/1/oom_score_adj"}
}

// becomingRoot tries to gain rights, by calls and by the programs of the image that would give them.
func becomingRoot(t *testing.T, s *fixture.Suite) {
	s.NeedsSystem(t)
	res := fixture.Run(t, s.NewRoom(t), python(`
import os, subprocess
def attempt(name, do):
    try: do(); print(name, "allowed")
    except OSError as e: print(name, "refused")
attempt("setuid", lambda: os.setuid(0))
attempt("setresuid", lambda: os.setresuid(0, 0, 0))
attempt("setgid", lambda: os.setgid(0))
attempt("setgroups", lambda: os.setgroups([0]))
attempt("nice", lambda: os.nice(-10))
print("ids", *os.getresuid(), *os.getresgid())
status = dict(l.split(":\t") for l in open("/proc/self/status").read().splitlines() if ":\t" in l)
for name in ["CapEff", "CapPrm", "CapAmb", "NoNewPrivs"]: print(name, status.get(name, "1").strip())
find = "find / -xdev -perm -4000 -user root -type f 2>/dev/null"
for program in subprocess.run(["bash", "-c", find], capture_output=True, text=True).stdout.split():
    done = subprocess.run(["bash", "-c", "exec -a x %s -c 'id -u' root </dev/null" % program], capture_output=True, text=True, timeout=60)
    print("program", program, "root" if done.stdout.strip() == "0" else "nothing")
`))
	got := said(res)
	want := map[string]string{
		"setuid": "refused", "setresuid": "refused", "setgid": "refused", "setgroups": "refused", "nice": "refused",
		"ids": "1000 1000 1000 1000 1000 1000", "CapEff": "0000000000000000", "CapPrm": "0000000000000000",
		"CapAmb": "0000000000000000", "NoNewPrivs": "1",
	}
	if s.OwnKernel {
		delete(want, "nice")   // its scheduler has no priorities
		delete(want, "CapAmb") // nor does it tell
	}
	for name, value := range want {
		if got[name] != value {
			t.Errorf("%s is %q, want %q: %s", name, got[name], value, fixture.Show(res))
		}
	}
	if strings.Contains(string(res.Stdout), " root\n") {
		t.Errorf("a program of the image gives root: %s", res.Stdout)
	}
}

func noNetwork(t *testing.T, s *fixture.Suite) {
	s.NeedsSystem(t)
	if s.Caps.Network == providers.Native {
		t.Skip("skipped: the provider declares a network of the sandbox's own")
	}
	r := s.NewRoom(t)
	res := fixture.Shell(t, r, "tail -n +3 /proc/net/dev | tr -d ' ' | cut -d: -f1")
	if string(res.Stdout) != "lo\n" {
		t.Errorf("interfaces: %q", res.Stdout)
	}
	res = fixture.Run(t, r, python(`
import socket
for kind in ["AF_INET", "AF_INET6"]:
    try:
        s = socket.socket(getattr(socket, kind), socket.SOCK_DGRAM)
        s.connect(("192.0.2.1" if kind == "AF_INET" else "2001:db8::1", 9))
        print(kind, "allowed")
    except OSError as e: print(kind, "refused")`))
	if got := said(res); got["AF_INET"] != "refused" || got["AF_INET6"] != "refused" {
		t.Errorf("there is a way outside: %v", got)
	}
}
