"""Drives a Sandyard server with Daytona's official client.

The environment says where it is: DAYTONA_API_URL and DAYTONA_API_KEY. Every case prints one line; the exit code says
whether all went well.
"""

import asyncio
import os
import sys
import tempfile
import time
import traceback
import urllib.error
import urllib.request

from daytona import CreateSandboxFromSnapshotParams, Daytona, FileUpload, ListSandboxesQuery, SessionExecuteRequest
from daytona import DaytonaError, DaytonaNotFoundError

client = Daytona()
cases = []


def case(f):
    cases.append(f)
    return f


def refused(kind, part, call, *args, **named):
    try:
        call(*args, **named)
    except kind as e:
        assert part in str(e), f"refused with {e!r}, not with {part!r}"
        return e
    raise AssertionError(f"{call} was not refused")


@case
def life(box):
    assert box.state == "started" and box.name == "first" and box.labels["team"] == "a" and box.auto_stop_interval == 15, box
    again = client.get("first")
    assert again.id == box.id and again.env["GREETING"] == "hello", again
    refused(DaytonaError, "exists already", client.create, CreateSandboxFromSnapshotParams(name="first"))
    refused(DaytonaNotFoundError, "no such sandbox", client.get, "nobody")
    refused(DaytonaError, "secrets is not supported", client.create, CreateSandboxFromSnapshotParams(secrets={"A": "b"}))
    assert [b.id for b in client.list(ListSandboxesQuery(labels={"team": "a"}))] == [box.id]
    assert list(client.list(ListSandboxesQuery(labels={"team": "b"}))) == []
    assert box.set_labels({"team": "b"}) == {"team": "b"}
    assert [b.id for b in client.list(ListSandboxesQuery(labels={"team": "b"}))] == [box.id]
    box.set_autostop_interval(30)
    box.set_auto_delete_interval(60)
    box.refresh_data()
    assert box.auto_stop_interval == 30 and box.auto_delete_interval == 60, box
    box.refresh_activity()


@case
def commands(box):
    run = box.process.exec("echo $GREETING; echo $MORE >&2; pwd; exit 3", cwd="/tmp", env={"MORE": "more"})
    assert run.exit_code == 3 and run.result == "hello\nmore\n/tmp\n", run
    refused(DaytonaError, "timeout", box.process.exec, "sleep 60", timeout=1)
    run = box.process.code_run("import sys\nprint(6 * 7, 'ä')\nsys.exit(2)")
    assert run.exit_code == 2 and run.result == "42 ä\n", run
    assert box.get_work_dir().startswith("/") and box.get_user_home_dir().startswith("/")


@case
def sessions(box):
    p = box.process
    p.create_session("one")
    refused(DaytonaError, "already", p.create_session, "one")
    p.execute_session_command("one", SessionExecuteRequest(command="cd /tmp; X=5"))
    done = p.execute_session_command("one", SessionExecuteRequest(command="echo $X $PWD\necho no >&2\n(exit 4)"))
    assert (done.stdout, done.stderr, done.exit_code) == ("5 /tmp\n", "no\n", 4), done
    asked = p.execute_session_command("one", SessionExecuteRequest(command='read x; echo "got $x"', run_async=True))
    assert p.get_session_command("one", asked.cmd_id).exit_code is None
    out, err = [], []
    follow = p.get_session_command_logs_async("one", asked.cmd_id, out.append, err.append)

    async def both():
        reading = asyncio.create_task(follow)
        await asyncio.to_thread(p.send_session_command_input, "one", asked.cmd_id, "this\n")
        await reading

    asyncio.run(both())
    assert "".join(out) == "got this\n" and err == [], (out, err)
    assert p.get_session_command("one", asked.cmd_id).exit_code == 0
    logs = p.get_session_command_logs("one", asked.cmd_id)
    assert logs.stdout == "got this\n" and logs.stderr == "", logs
    assert [c.id for c in p.get_session("one").commands][-1] == asked.cmd_id
    assert [s.session_id for s in p.list_sessions()] == ["one"]
    gone = p.execute_session_command("one", SessionExecuteRequest(command="exit 7"))
    assert gone.exit_code == 7, gone
    refused(DaytonaError, "session has ended", p.execute_session_command, "one", SessionExecuteRequest(command="true"))
    p.delete_session("one")
    refused(DaytonaNotFoundError, "no such session", p.get_session, "one")


@case
def files(box):
    fs = box.fs
    fs.create_folder("dir/sub", "750")
    fs.upload_file(b"one\ntwo\n", "dir/sub/a.txt")
    binary = bytes(range(256)) * 100
    fs.upload_files([FileUpload(binary, "dir/b.bin"), FileUpload(b"three\n", "dir/new/c ä.txt")])
    assert fs.download_file("dir/b.bin") == binary
    fs.upload_files([FileUpload(str(n).encode(), f"many/{n}") for n in range(120)])  # all paths before the first file
    assert len(fs.list_files("many")) == 120 and fs.download_file("many/119") == b"119"
    with tempfile.TemporaryDirectory() as local:
        fs.download_file("dir/sub/a.txt", local + "/a")
        assert open(local + "/a", "rb").read() == b"one\ntwo\n"
    refused(DaytonaNotFoundError, "does not exist", fs.download_file, "dir/nothing")
    assert {f.name: f.is_dir for f in fs.list_files("dir")} == {"sub": True, "new": True, "b.bin": False}
    info = fs.get_file_info("dir/sub")
    assert info.is_dir and info.mode == "drwxr-x---", info
    refused(DaytonaNotFoundError, "", fs.get_file_info, "dir/nothing")
    found = fs.find_files("dir", "two")
    assert [(m.line, m.content) for m in found] == [(2, "two")], found
    assert [f.endswith("dir/new/c ä.txt") for f in fs.search_files("dir", "c*.txt").files] == [True]
    assert [r.success for r in fs.replace_in_files(["dir/sub/a.txt", "dir/none"], "two", "2")] == [True, False]
    fs.move_files("dir/sub/a.txt", "dir/d.txt")
    assert fs.download_file("dir/d.txt") == b"one\n2\n"
    refused(DaytonaError, "recursive", fs.delete_file, "dir")
    fs.delete_file("dir", recursive=True)
    refused(DaytonaNotFoundError, "", fs.get_file_info, "dir")


@case
def git(box):
    g = box.git
    if box.process.exec("command -v git").exit_code != 0:
        refused(DaytonaError, "no git", g.status, ".")
        print("     the image has no git: only its refusal was looked at")
        return
    box.process.exec("git init -q -b main repo && echo a >repo/a")
    assert [(f.name, f.staging) for f in g.status("repo").file_status] == [("a", "Untracked")]
    g.add("repo", ["a"])
    assert len(g.commit("repo", "first", "A B", "a@example.com").sha) == 40
    g.create_branch("repo", "next")
    listed = g.branches("repo")
    assert sorted(listed.branches) == ["main", "next"], listed
    g.checkout_branch("repo", "next")
    status = g.status("repo")
    assert status.current_branch == "next" and status.file_status == [], status
    g.clone("repo", "copy")
    assert g.status("copy").branch_published
    refused(DaytonaError, "", g.status, "/tmp")


def fetch(url, token=None):
    """Asks the edge itself, whatever the name in the URL resolves to here."""
    edge = os.environ["E2B_SANDBOX_URL"]
    host, _, rest = url.removeprefix("http://").partition("/")
    request = urllib.request.Request(edge + "/" + rest, headers={"Host": host})
    if token:
        request.add_header("x-daytona-preview-token", token)
    try:
        return urllib.request.urlopen(request, timeout=30).status
    except urllib.error.HTTPError as e:
        return e.code


@case
def previews(box):
    box.process.create_session("web")
    box.process.execute_session_command("web", SessionExecuteRequest(command="python3 -m http.server 8000", run_async=True))
    until = time.monotonic() + 60
    while box.process.exec("python3 -c 'import socket; socket.create_connection((\"127.0.0.1\", 8000))'").exit_code != 0:
        assert time.monotonic() < until, "no server came up"
    link = box.get_preview_link(8000)
    assert fetch(link.url, link.token) == 200 and fetch(link.url) in (401, 403), link
    assert box.get_preview_link(8000).token == link.token
    signed = box.create_signed_preview_url(8000, 600)
    assert fetch(signed.url) == 200, signed
    box.expire_signed_preview_url(8000, signed.token)
    while fetch(signed.url) == 200:  # the edge may know of the revocation a moment later
        assert time.monotonic() < until, "the signed URL still opens the port"


@case
def stops(box):
    box.process.exec("echo kept >kept; (sleep 1000 >/dev/null 2>&1 &)")
    box.stop()
    assert box.state == "stopped", box.state
    refused(DaytonaError, "start it first", box.process.exec, "true")
    box.start()
    assert box.state == "started", box.state
    assert box.process.exec("cat kept").result == "kept\n"
    box.delete()
    refused(DaytonaNotFoundError, "no such sandbox", client.get, box.id)
    brief = client.create(CreateSandboxFromSnapshotParams(ephemeral=True, network_block_all=True))
    assert brief.auto_delete_interval == 0 and brief.network_block_all, brief
    brief.stop()
    refused(DaytonaNotFoundError, "no such sandbox", client.get, brief.id)


def main():
    failed = 0
    box = client.create(CreateSandboxFromSnapshotParams(name="first", labels={"team": "a"}, env_vars={"GREETING": "hello"}))
    for f in cases:
        began = time.monotonic()
        try:
            f(box)
            print(f"ok   {f.__name__} {time.monotonic() - began:.1f} s", flush=True)
        except Exception:
            failed += 1
            print(f"FAIL {f.__name__}: {traceback.format_exc()}", flush=True)
    for left in client.list():
        left.delete()
    print(f"{failed} of {len(cases)} failed" if failed else f"all {len(cases)} cases passed")
    return 1 if failed else 0


sys.exit(main())
