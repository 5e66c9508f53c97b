"""Drives a Sandyard server with E2B's own client.

The environment says where it is: E2B_API_URL, E2B_SANDBOX_URL and E2B_API_KEY. Every case prints one line; the exit
code says whether all went well.
"""

import asyncio
import hashlib
import os
import sys
import time
import traceback

from e2b import (
    AsyncSandbox,
    CommandExitException,
    FileType,
    NotFoundException,
    PtySize,
    Sandbox,
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
def command_timeout():
    began = time.monotonic()
    raises(TimeoutException, s.sandbox.commands.run, "sleep 30", timeout=0.7)
    assert time.monotonic() - began < 10


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
def files_watched_by_polling():
    f = s.sandbox.files
    f.make_dir("watched")
    watcher = f.watch_dir("watched", include_entry=True)
    f.write("watched/f.txt", "text", metadata={"author": "some one"})
    seen = []
    deadline = time.monotonic() + 20
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
    data = os.urandom(1 << 16) * 320  # 20 MiB
    s.sandbox.files.write("large.bin", data)
    digest = hashlib.sha256()
    for part in s.sandbox.files.read("large.bin", format="stream"):
        digest.update(part)
    assert digest.digest() == hashlib.sha256(data).digest()
    assert s.sandbox.commands.run("sha256sum large.bin").stdout[:64] == digest.hexdigest()
    s.sandbox.files.remove("large.bin")


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
    deadline = time.monotonic() + 20
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
