"""What a program with an older client does. E2B_API_URL, E2B_SANDBOX_URL and E2B_API_KEY say where.

A sandbox that such a client has connected to is left out: it tells E2B_SANDBOX_URL no id there.
"""
import sys

from e2b import CommandExitException, Sandbox

box = Sandbox.create(timeout=300, metadata={"suite": "older"}, envs={"GREETING": "hello"})
try:
    assert box.commands.run("echo $GREETING").stdout == "hello\n"
    try:
        box.commands.run("exit 7")
        sys.exit("a failed command is no error")
    except CommandExitException as error:
        assert error.exit_code == 7
    written = box.files.write("dir/a.txt", "grüße\n")
    assert (written.name, written.path) == ("a.txt", "/workspace/dir/a.txt"), written
    more = box.files.write_files([{"path": "dir/b", "data": b"b"}, {"path": "dir/c", "data": "c"}])
    assert [f.name for f in more] == ["b", "c"], more
    assert box.files.read("dir/a.txt") == "grüße\n"
    assert sorted(e.name for e in box.files.list("dir")) == ["a.txt", "b", "c"]
    assert box.files.get_info("dir/a.txt").size == 8
    assert box.files.rename("dir/b", "dir/d").name == "d"
    box.files.remove("dir/d")
    assert not box.files.exists("dir/d")
    process = box.commands.run("read line; echo got $line", background=True, stdin=True)
    box.commands.send_stdin(process.pid, "it\n")
    assert process.wait().stdout == "got it\n"
    assert box.get_info().metadata == {"suite": "older"}
    assert any(i.sandbox_id == box.sandbox_id for i in Sandbox.list().next_items())
    assert box.is_running()
finally:
    assert box.kill()
