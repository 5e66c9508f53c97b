"""Drives a Sandyard server with E2B's own client.

The environment says where it is: E2B_API_URL, E2B_SANDBOX_URL and E2B_API_KEY. Every case prints one line; the exit
code says whether all went well.
"""

import asyncio
import datetime
import hashlib
import os
import sys
import time
import traceback
import urllib.parse
import uuid

import httpx
from e2b import (
    AsyncSandbox,
    CommandExitException,
    FileType,
    NotFoundException,
    PtySize,
    Sandbox,
    SandboxException,
    SandboxQuery,
    SandboxState,
    TimeoutException,
)

cases = []


def case(f):
    cases.append(f)
    return f


def raises(kind, f, *args, **kwargs):
    try:
        f(*args, **kwargs)
    except kind as e:
        return e
    raise AssertionError(f"{kind.__name__} was not raised")


class State:
    sandbox: Sandbox


s = State()


@case
def create():
    s.sandbox = Sandbox.create(timeout=300, metadata={"suite": "python"}, envs={"GREETING": "hello"})
    assert s.sandbox.is_running()


@case
def command():
    out = []
    done = s.sandbox.commands.run(
        "echo $GREETING $EXTRA; pwd; echo problem >&2", envs={"EXTRA": "more"}, cwd="/tmp", on_stdout=out.append
    )
    assert done.stdout == "hello more\n/tmp\n", done
    assert done.stderr == "problem\n", done
    assert "".join(out) == done.stdout


@case
def command_that_fails():
    e = raises(CommandExitException, s.sandbox.commands.run, "echo partial; exit 7")
    assert (e.exit_code, e.stdout) == (7, "partial\n"), e


@case
def command_as_a_user():
    assert s.sandbox.commands.run("id -u").stdout == "1000\n"
    raises(Exception, s.sandbox.commands.run, "id -u", user="root")


@case
def command_timeout():
    raises(TimeoutException, s.sandbox.commands.run, "sleep 300", timeout=0.7)


@case
def command_in_the_background():
    cat = s.sandbox.commands.run("cat", background=True, stdin=True)
    s.sandbox.commands.send_stdin(cat.pid, "line\n")
    s.sandbox.commands.close_stdin(cat.pid)
    assert cat.wait().stdout == "line\n"
    sleep = s.sandbox.commands.run("sleep 300", background=True)
    assert sleep.pid in [p.pid for p in s.sandbox.commands.list()]
    assert s.sandbox.commands.kill(sleep.pid)
    raises(CommandExitException, sleep.wait)
    assert not s.sandbox.commands.kill(sleep.pid)


@case
def commands_that_nobody_reads():
    """They end by kill and by their timeout, and go on without a client that had lagged behind."""
    commands = s.sandbox.commands
    killed = commands.run("yes", background=True, timeout=0)
    late = commands.run("yes", background=True, timeout=3)
    left = commands.run("yes | head -c 40000000; touch over", background=True, timeout=0)
    terminal = s.sandbox.pty.create(PtySize(rows=24, cols=80), timeout=0)
    s.sandbox.pty.send_stdin(terminal.pid, b"yes\n")
    time.sleep(4)  # long enough for all that lies between to be full
    raises(SandboxException, commands.send_stdin, terminal.pid, "to a terminal")
    assert commands.kill(killed.pid)
    assert s.sandbox.pty.kill(terminal.pid)
    left.disconnect()
    assert raises(CommandExitException, killed.wait).error == "signal: killed"
    raises(TimeoutException, late.wait)
    deadline = time.monotonic() + 60
    while not s.sandbox.files.exists("over"):
        assert time.monotonic() < deadline, "it stands still"
        time.sleep(0.1)
    running = [p.pid for p in commands.list()]
    assert killed.pid not in running and late.pid not in running and terminal.pid not in running, running


@case
def command_joined_by_a_second_client():
    first = s.sandbox.commands.run("read word; echo got $word", background=True, stdin=True)
    first.disconnect()
    other = Sandbox.connect(s.sandbox.sandbox_id)
    again = other.commands.connect(first.pid)
    other.commands.send_stdin(first.pid, "it\n")
    assert "got it" in again.wait().stdout


@case
def files():
    f = s.sandbox.files
    written = f.write("dir/a.txt", "grüße\n")
    assert f.read("dir/a.txt") == "grüße\n"
    assert f.exists("dir/a.txt") and not f.exists("dir/b.txt")
    [entry] = f.list("dir")
    assert (entry.name, entry.type, entry.path) == ("a.txt", FileType.FILE, written.path), entry
    assert f.get_info("dir/a.txt").size == 8
    f.rename("dir/a.txt", "dir/b.txt")
    assert f.make_dir("dir/deeper") and not f.make_dir("dir/deeper")
    f.remove("dir")
    assert not f.exists("dir")
    raises(NotFoundException, f.read, "dir/b.txt")


@case
def paths_as_in_e2b():
    f, commands = s.sandbox.files, s.sandbox.commands
    assert f.write("~/home/a.txt", "at home").path == "/workspace/home/a.txt"
    assert f.read("/home/user/home/a.txt", user="user") == "at home"
    assert [e.name for e in f.list("~/home")] == ["a.txt"]
    assert "home" in [e.name for e in f.list("")]
    for home in ["~", "/home/user"]:
        assert commands.run("cat home/a.txt; id -u", cwd=home, user="user").stdout == "at home1000\n"
    assert f.read("/etc/hostname") == commands.run("cat /etc/hostname").stdout
    assert "usr" in [e.name for e in f.list("/")]
    assert f.exists("/usr/bin/python3") and not f.exists("/usr/bin/no-such-program")
    for refused in ["/etc/new", "/usr/bin/new"]:
        raises(SandboxException, f.write, refused, "x")
    for process in ["/proc/1/environ", "/proc/self/mem", "/dev/stdin"]:
        raises(SandboxException, f.read, process)
    f.remove("~/home")


@case
def files_watched_by_polling():
    f = s.sandbox.files
    f.make_dir("watched")
    watcher = f.watch_dir("watched", include_entry=True)
    f.write("watched/f.txt", "text", metadata={"author": "some one"})
    seen = []
    deadline = time.monotonic() + 60
    while len(seen) < 2 and time.monotonic() < deadline:
        seen += watcher.get_new_events()
    assert [(e.type.value, e.name) for e in seen] == [("create", "f.txt"), ("write", "f.txt")], seen
    assert seen[1].entry.metadata == {"author": "some one"}, seen
    watcher.stop()
    raises(NotFoundException, f.watch_dir, "absent")


@case
def files_of_every_byte():
    data = bytes(range(256)) * 1000
    s.sandbox.files.write("bytes.bin", data)
    assert bytes(s.sandbox.files.read("bytes.bin", format="bytes")) == data


@case
def large_file():
    data = os.urandom(50_000) * 2000  # 100 MB
    s.sandbox.files.write("large.bin", data)
    digest = hashlib.sha256()
    for part in s.sandbox.files.read("large.bin", format="stream"):
        digest.update(part)
    assert digest.digest() == hashlib.sha256(data).digest()
    assert s.sandbox.commands.run("sha256sum large.bin").stdout[:64] == digest.hexdigest()
    s.sandbox.files.remove("large.bin")


def through_the_edge(method, url, port=49983, **options):
    """Asks the edge for what a URL of the client leads to: in a deployment its host is the edge's."""
    parts = urllib.parse.urlsplit(url)
    target = os.environ["E2B_SANDBOX_URL"] + parts.path + (f"?{parts.query}" if parts.query else "")
    headers = {"E2b-Sandbox-Id": s.sandbox.sandbox_id, "E2b-Sandbox-Port": str(port), **options.pop("headers", {})}
    return httpx.request(method, target, headers=headers, timeout=30, **options)


@case
def signed_urls():
    f = s.sandbox
    up = through_the_edge("POST", f.upload_url("/workspace/signed.txt"), files={"file": ("signed.txt", b"through a URL")})
    assert up.status_code == 200, up.text
    url = f.download_url("/workspace/signed.txt", use_signature_expiration=60)
    assert through_the_edge("GET", url).text == "through a URL"
    assert through_the_edge("GET", url, headers={"Range": "bytes=8-9"}).text == "a "
    assert through_the_edge("GET", url.replace("signed.txt", "other.txt")).status_code == 401
    late = f.download_url("/workspace/signed.txt", use_signature_expiration=-5)
    assert through_the_edge("GET", late).status_code == 401


@case
def ports():
    token = {"e2b-traffic-access-token": s.sandbox.traffic_access_token}
    closed = through_the_edge("GET", "/", port=8999, headers=token)
    assert (closed.status_code, closed.json()["port"]) == (502, 8999), closed.text
    s.sandbox.files.write("site/page.txt", "served\n")
    s.sandbox.commands.run("python3 -m http.server 8001 --bind 127.0.0.1 --directory site", background=True, timeout=0)
    deadline = time.monotonic() + 60
    while (page := through_the_edge("GET", "/page.txt", port=8001, headers=token)).status_code != 200:
        assert time.monotonic() < deadline, page.text
    assert page.text == "served\n"
    by_host = httpx.get(os.environ["E2B_SANDBOX_URL"] + "/page.txt", headers={"Host": s.sandbox.get_host(8001), **token})
    assert by_host.text == "served\n", by_host.text
    assert through_the_edge("GET", "/page.txt", port=8001).status_code == 403


@case
def terminal():
    async def drive():
        sandbox = await AsyncSandbox.connect(s.sandbox.sandbox_id)
        seen = bytearray()
        t = await sandbox.pty.create(PtySize(rows=33, cols=91), on_data=seen.extend)
        await sandbox.pty.send_stdin(t.pid, b"stty size\n")
        await until(lambda: b"33 91" in seen)
        await sandbox.pty.resize(t.pid, PtySize(rows=20, cols=70))
        await sandbox.pty.send_stdin(t.pid, b"stty size\n")
        await until(lambda: b"20 70" in seen)
        assert await t.kill()

    asyncio.run(drive())


async def until(ok):
    deadline = time.monotonic() + 60
    while not ok():
        assert time.monotonic() < deadline, "waited in vain"
        await asyncio.sleep(0.02)


@case
def many_at_once():
    async def drive():
        sandbox = await AsyncSandbox.connect(s.sandbox.sandbox_id)
        done = await asyncio.gather(*(sandbox.commands.run(f"echo {i}") for i in range(30)))
        assert [d.stdout for d in done] == [f"{i}\n" for i in range(30)]

    asyncio.run(drive())


@case
def pause_and_connect():
    counter = s.sandbox.commands.run("read first; echo $first; read second; echo $first $second", background=True, stdin=True, timeout=0)
    s.sandbox.commands.send_stdin(counter.pid, "kept\n")
    counter.disconnect()
    assert s.sandbox.pause()
    assert not s.sandbox.is_running()
    assert s.sandbox.get_info().state == SandboxState.PAUSED
    resumed = Sandbox.connect(s.sandbox.sandbox_id, timeout=300)
    again = resumed.commands.connect(counter.pid)
    resumed.commands.send_stdin(counter.pid, "now\n")
    assert "kept now" in again.wait().stdout


@case
def info_and_timeout():
    info = s.sandbox.get_info()
    assert (info.state, info.metadata) == (SandboxState.RUNNING, {"suite": "python"}), info
    s.sandbox.set_timeout(600)
    left = s.sandbox.get_info().end_at.timestamp() - time.time()
    assert 585 < left < 615, left


def ends_in(sandbox_id, seconds):
    left = Sandbox.get_info(sandbox_id).end_at.timestamp() - time.time()
    assert abs(left - seconds) < 30, left


@case
def create_and_connect_without_a_timeout():
    box = Sandbox.create()
    try:
        ends_in(box.sandbox_id, 300)
        box.set_timeout(900)
        Sandbox.connect(box.sandbox_id)
        ends_in(box.sandbox_id, 900)
        box.pause()
        resumed = Sandbox.connect(box.sandbox_id)
        ends_in(box.sandbox_id, 300)
        assert resumed.commands.run("echo on").stdout == "on\n"
    finally:
        box.kill()


@case
def create_repeated_under_its_key():
    key = str(uuid.uuid4())
    first = Sandbox.create(timeout=120, idempotency_key=key)
    try:
        assert Sandbox.create(timeout=120, idempotency_key=key).sandbox_id == first.sandbox_id
        raises(Exception, Sandbox.create, timeout=121, idempotency_key=key)
    finally:
        first.kill()


@case
def timeout_ends_the_sandbox():
    short = Sandbox.create(timeout=2)
    deadline = time.monotonic() + 60
    while short.is_running():
        assert time.monotonic() < deadline, "it runs on"
        time.sleep(0.2)
    raises(Exception, short.commands.run, "true")
    raises(NotFoundException, Sandbox.connect, short.sandbox_id)


@case
def timeout_pauses_and_traffic_resumes():
    box = Sandbox.create(timeout=120, lifecycle={"on_timeout": "pause", "auto_resume": True})
    try:
        assert box.get_info().lifecycle == {"on_timeout": "pause", "auto_resume": True}, box.get_info()
        box.commands.run("echo kept >/tmp/note")
        box.set_timeout(1)
        deadline = time.monotonic() + 60
        while Sandbox.get_info(box.sandbox_id).state != SandboxState.PAUSED:
            assert time.monotonic() < deadline, "it runs on"
            time.sleep(0.2)
        Sandbox.connect(box.sandbox_id, timeout=120)
        box.pause()
        assert box.commands.run("cat /tmp/note").stdout == "kept\n"  # which wakes it
        assert Sandbox.get_info(box.sandbox_id).state == SandboxState.RUNNING
    finally:
        box.kill()


@case
def paused_it_outlives_its_timeout():
    box, twin = Sandbox.create(timeout=5), Sandbox.create(timeout=6)
    try:
        box.files.write("note", "kept")
        box.pause()
        deadline = time.monotonic() + 60
        while twin.is_running():
            assert time.monotonic() < deadline, "its twin runs on"
            time.sleep(0.2)
        assert Sandbox.get_info(box.sandbox_id).state == SandboxState.PAUSED
        assert Sandbox.connect(box.sandbox_id, timeout=120).files.read("note") == "kept"
        ends_in(box.sandbox_id, 120)
    finally:
        box.kill()


@case
def metrics():
    hour = datetime.timedelta(hours=1)
    now = datetime.datetime.now(datetime.timezone.utc)
    samples = s.sandbox.get_metrics(start=now - hour, end=now)
    assert samples
    for m in samples:
        assert 0 < m.mem_used <= m.mem_total and 0 <= m.disk_used <= m.disk_total and m.cpu_count >= 1, m
        assert 0 <= m.cpu_used_pct <= 100, m
    assert s.sandbox.get_metrics(end=now - hour) == []


@case
def what_is_not_offered():
    refused = [
        s.sandbox.create_snapshot,
        s.sandbox.fork,
        lambda: s.sandbox.pause(mode="filesystem"),
        lambda: Sandbox.list_snapshots().next_items(),
        lambda: Sandbox.create(network={"mask_request_host": "localhost:${PORT}"}),
        lambda: Sandbox.create(lifecycle={"on_timeout": {"action": "pause", "mode": "filesystem"}}),
    ]
    for f in refused:
        e = raises(SandboxException, f)
        assert str(e).startswith(("400: ", "501: ")), e
    assert s.sandbox.is_running()


@case
def list_by_template_order_and_start():
    mark = f"50% + a/b=&ä {os.urandom(6).hex()}"
    made = []
    try:
        for template in ["base", "python", "base"]:
            made.append(Sandbox.create(template, timeout=120, metadata={"mark": mark}))
        made[1].pause()

        def found(order=None, **query):
            pages, boxes = Sandbox.list(limit=2, order=order, query=SandboxQuery(metadata={"mark": mark}, **query)), []
            while pages.has_next:
                boxes += pages.next_items()
            return boxes

        def ids(*args, **query):
            return [b.sandbox_id for b in found(*args, **query)]

        oldest = [b.sandbox_id for b in made]
        assert ids("asc") == oldest, ids("asc")
        assert ids() == oldest[::-1], ids()
        assert ids("asc", state=[SandboxState.RUNNING, SandboxState.PAUSED]) == oldest
        assert ids("asc", state=[SandboxState.RUNNING]) == [oldest[0], oldest[2]]
        assert ids("asc", template="base") == oldest
        assert ids(template="no-such-template") == []
        assert ids("asc", started_after=found("asc")[1].started_at) == oldest[1:]
    finally:
        for b in made:
            b.kill()


@case
def list_with_pages():
    mark = os.urandom(6).hex()
    made = [Sandbox.create(timeout=120, metadata={"mark": mark}) for _ in range(2)]
    try:
        pages = Sandbox.list(limit=1, query=SandboxQuery(metadata={"mark": mark}))
        found = []
        while pages.has_next:
            found += [b.sandbox_id for b in pages.next_items()]
        assert sorted(found) == sorted(b.sandbox_id for b in made), found
    finally:
        for b in made:
            b.kill()


@case
def errors():
    e = raises(Exception, Sandbox.create, "no-such-template")
    assert "not found" in str(e), e
    raises(Exception, Sandbox.create, api_key="e2b_" + "0" * 40)
    raises(NotFoundException, Sandbox.connect, "sbnone")


@case
def kill():
    assert s.sandbox.kill()
    assert not s.sandbox.is_running()
    assert not Sandbox.kill(s.sandbox.sandbox_id)
    raises(Exception, s.sandbox.commands.run, "true")


def main():
    failed = 0
    for f in cases:
        began = time.monotonic()
        try:
            f()
            print(f"ok   {f.__name__} ({(time.monotonic() - began) * 1000:.0f} ms)", flush=True)
        except BaseException:
            failed += 1
            print(f"FAIL {f.__name__}: {traceback.format_exc()}", flush=True)
    print(f"{failed} of {len(cases)} failed" if failed else f"all {len(cases)} cases passed")
    return 1 if failed else 0


sys.exit(main())
