"""Drives a Sandyard server's tools with the official client of the Model Context Protocol.

The environment says where it is: MCP_URL, and MCP_KEY for the header. Every case prints one line; the exit code says
whether all went well.
"""

import asyncio
import base64
import hashlib
import json
import os
import sys
import traceback

import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

URL = os.environ["MCP_URL"]

cases = []
called = set()


def case(f):
    cases.append(f)
    return f


class Talk:
    """One conversation; query is added to the server's URL."""

    def __init__(self, query=""):
        self.http = httpx2.AsyncClient(headers={"Authorization": "Bearer " + os.environ["MCP_KEY"]}, timeout=60)
        self.client = Client(streamable_http_client(URL + query, http_client=self.http))

    async def __aenter__(self):
        await self.http.__aenter__()
        await self.client.__aenter__()
        return self

    async def __aexit__(self, *error):
        await self.client.__aexit__(*error)
        await self.http.__aexit__(*error)

    async def call(self, tool, **arguments):
        called.add(tool)
        result = await self.client.call_tool(tool, arguments)
        text = "\n".join(c.text for c in result.content if c.type == "text")
        assert not result.is_error, f"{tool}: {text}"
        return text, result.structured_content

    async def refused(self, tool, **arguments):
        called.add(tool)
        result = await self.client.call_tool(tool, arguments)
        assert result.is_error, f"{tool} was not refused: {result}"
        return result.structured_content["error"]


@case
async def tools_have_schemas():
    async with Talk() as t:
        tools = (await t.client.list_tools()).tools
        assert len(tools) == 15, [x.name for x in tools]
        assert all(x.input_schema["type"] == "object" and x.annotations for x in tools)


@case
async def files():
    async with Talk() as t:
        await t.call("file_write", file="src/app.py", content="print('Hello!')\n")
        await t.call("file_write", file="src/app.py", content="# end ä\n", append=True)
        text, fields = await t.call("file_read", file="src/app.py")
        assert fields["content"] == "print('Hello!')\n# end ä\n" == text, fields
        await t.call("file_edit", file="src/app.py", old_str="Hello", new_str="Bye")
        text, fields = await t.call("shell_exec", command="python3 src/app.py; ls /nothing; exit 4")
        assert fields["stdout"].startswith("Bye!\n") and "/nothing" in fields["stdout"] and fields["exit_code"] == 4, fields
        text, fields = await t.call("file_list", path=".", recursive=True)
        assert any(e["path"].endswith("src/app.py") for e in fields["entries"]), fields
        text, fields = await t.call("file_search", file="src", regex="B.e")
        assert fields["matches"][0]["line"] == 1, fields
        error = await t.refused("file_read", file="/etc/../../etc/shadow")
        assert error["code"] in ("invalid_path", "permission_denied"), error
        await t.call("file_write", file="dot.png", encoding="base64", content=PIXEL)
        result = await t.client.call_tool("file_read", {"file": "dot.png"})
        assert [c.data for c in result.content if c.type == "image"] == [PIXEL], result


PIXEL = base64.b64encode(bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010806000000"
    "1f15c4890000000d49444154789c6360000002000001e527defc0000000049454e44ae426082"
)).decode()


@case
async def python_keeps_its_variables():
    async with Talk() as t:
        await t.call("python_exec", code="x = 20\nprint('set')")
        text, fields = await t.call("python_exec", code="x + 22")
        assert fields["results"][0]["data"]["text/plain"] == "42" and "42" in text, fields
        text, fields = await t.call("python_exec", code="1 / 0")
        assert fields["error"]["name"] == "ZeroDivisionError" and "ZeroDivisionError" in text, fields


@case
async def errors_stand_between_the_output():
    async with Talk() as t:
        cell = "import subprocess, traceback\nprint('before')\ntry: 1 / 0\nexcept ZeroDivisionError: traceback.print_exc()\n" \
            "subprocess.run('echo below >&2', shell=True)\nprint('after')"
        text, fields = await t.call("python_exec", code=cell)
        at = [fields["stdout"].find(word) for word in ("before", "ZeroDivisionError", "below", "after")]
        assert at == sorted(at) and at[0] == 0 and fields["stderr"] == "", fields
        text, fields = await t.call("shell_exec", command="echo 1; echo 2 >&2; echo 3; sh -c 'echo 4 >&2'; echo 5")
        assert fields["stdout"] == "1\n2\n3\n4\n5\n" and fields["stderr"] == "", fields


@case
async def a_long_command_is_followed():
    async with Talk("?session=long") as t:
        text, fields = await t.call("shell_exec", command="for i in 1 2 3 4 5 6; do echo line $i; sleep 1; done; exit 7", wait=2)
        got = fields["stdout"]
        assert fields["running"] and "shell_wait" in text, fields
    async with Talk("?session=long") as t:  # another client of the conversation
        while fields["running"]:
            text, fields = await t.call("shell_wait", exec_id=fields["exec_id"], cursor=fields["cursor"], seconds=1)
            got += fields["stdout"]
        assert got == "".join(f"line {i}\n" for i in range(1, 7)) and fields["exit_code"] == 7, (got, fields)


@case
async def long_output_is_read_in_pieces():
    async with Talk() as t:
        text, fields = await t.call("shell_exec", command="seq 1 20000")
        assert fields["stdout_tail"].endswith("20000\n") and len(text) < 40000, len(text)
        got = fields["stdout"]
        while fields.get("more"):
            _, fields = await t.call("shell_wait", exec_id=fields["exec_id"], cursor=fields["cursor"])
            got += fields["stdout"]
        assert got == "".join(f"{i}\n" for i in range(1, 20001)), len(got)


@case
async def far_too_much_output():
    async with Talk() as t:
        text, fields = await t.call("shell_exec", command="head -c 100000000 /dev/zero | tr '\\0' x")
        assert fields["exit_code"] == 0 and fields["dropped"] > 90_000_000 and "were not kept" in text, fields["dropped"]


@case
async def a_server_in_the_background():
    async with Talk() as t:
        _, fields = await t.call("shell_exec", command="python3 -m http.server 8000", background=True)
        assert fields["running"], fields
        _, answer = await t.call(
            "shell_exec", command="for i in $(seq 100); do curl -sf localhost:8000 >/dev/null && break; sleep 0.1; done; echo $i"
        )
        text, answer = await t.call("http_request", url="http://localhost:8000/nothing")
        assert answer["status"] == 404 and "404" in text, answer
        _, processes = await t.call("process_list")
        server = next(p for p in processes["processes"] if "http.server" in p["command"])
        assert server["exec_id"] == fields["exec_id"] and not any(p["pid"] == 1 for p in processes["processes"]), processes
        _, port = await t.call("port_url", port=8000)
        assert port["url"].startswith("http") and "sandyard_token" in port["url"] and port["listening"], port


@case
async def the_policy_is_named():
    async with Talk("?session=closed") as t:
        _, box = await t.call("sandbox_get")
        text, fields = await t.call("http_request", url="http://10.1.2.3/")
        assert "egress policy" in text, text
        text, fields = await t.call("git_clone", url="http://10.1.2.3/a.git")
        assert fields["exit_code"] != 0 and "egress policy" in text, text


@case
async def an_interactive_program():
    async with Talk("?tools=all") as t:
        _, shell = await t.call("shell_interactive")
        _, fields = await t.call("shell_write", input="cd /tmp; x=6")
        _, fields = await t.call("shell_write", input="echo $PWD $((x * 7))", wait=20)
        assert fields["stdout"] == "/tmp 42\n", fields
        _, fields = await t.call("shell_write", input="echo par", press_enter=False, wait=0.1)
        assert fields["stdout"] == "", fields
        _, fields = await t.call("shell_write", input="tial", wait=20)
        assert fields["stdout"] == "partial\n", fields
        _, fields = await t.call("shell_view", exec_id=shell["exec_id"])
        assert fields["stdout"] == "/tmp 42\npartial\n" and fields["running"], fields
        _, fields = await t.call("shell_kill")
        assert fields["exec_id"] == shell["exec_id"], fields
        assert (await t.refused("shell_view", exec_id=shell["exec_id"]))["code"] == "exec_not_found"
        _, cat = await t.call("exec_start", argv=["cat"], stdin_open=True)
        await t.call("exec_stdin", exec_id=cat["exec_id"], data="fed", eof=True)
        _, fields = await t.call("exec_output", exec_id=cat["exec_id"])
        while fields["running"]:
            _, fields = await t.call("exec_output", exec_id=cat["exec_id"], seconds=1)
        assert fields["stdout"] == "fed" and fields["exit_code"] == 0, fields
        _, sleep = await t.call("exec_start", command="sleep 1000")
        await t.call("exec_signal", exec_id=sleep["exec_id"], signal="SIGTERM")
        while sleep["running"]:
            _, sleep = await t.call("shell_wait", exec_id=sleep["exec_id"], seconds=1)
        assert sleep["signal"] == "SIGTERM", sleep
        _, two = await t.call("exec_start", command="sleep 1003 & sleep 1004; echo killed; wait")
        while not (found := [p for p in (await t.call("process_list"))[1]["processes"] if p["command"] == "sleep 1004"]):
            pass
        await t.call("process_signal", pid=found[0]["pid"], start=found[0]["start"], signal="KILL")
        while "killed" not in (await t.call("exec_output", exec_id=two["exec_id"], seconds=1))[1]["stdout"]:
            pass
        assert (await t.refused("process_signal", pid=found[0]["pid"], start=found[0]["start"]))["code"] == "process_not_found"


@case
async def variables_for_later_commands():
    async with Talk("?tools=all") as t:
        value = "it's \\ $HOME\n\"x\""
        await t.call("env_set", name="TRICKY", value=value)
        await t.call("env_set", name="GONE", value="1")
        await t.call("env_set", name="GONE")
        _, fields = await t.call("shell_exec", command='printf %s "$TRICKY"; echo "[$GONE]"; TRICKY=own bash -c "echo \\$TRICKY"')
        assert fields["stdout"] == value + "[]\nown\n", fields
        _, fields = await t.call("shell_exec", command="echo $TRICKY", env={"TRICKY": "call"})
        assert fields["stdout"] == "call\n", fields
        for command in ('sh -c \'printf %s "$TRICKY"\'', "env -i sh -c : ; python3 -c 'import os; print(os.environ[\"TRICKY\"], end=\"\")'"):
            _, fields = await t.call("shell_exec", command=command)
            assert fields["stdout"] == value, fields
        _, begun = await t.call("exec_start", argv=["printenv", "TRICKY"])
        _, fields = await t.call("shell_wait", exec_id=begun["exec_id"])
        assert fields["stdout"] == value + "\n", fields
        _, fields = await t.call("python_exec", code="import os; os.environ['TRICKY']")
        assert fields["results"][0]["data"]["text/plain"] == repr(value), fields
        text, fields = await t.call("env_get", name="TRICKY")
        assert fields["env"] == {"TRICKY": value}, fields
        _, fields = await t.call("env_get")
        assert fields["env"]["TRICKY"] == value and "HOME" in fields["env"] and "GONE" not in fields["env"], fields
        error = await t.refused("env_set", name="A B", value="x")
        assert error["code"] == "invalid_request", error


@case
async def a_repository():
    async with Talk("?tools=all") as t:
        await t.call("shell_exec", command="git init -q --bare there.git; git init -q here; cd here; git remote add origin ../there.git")
        await t.call("file_write", file="here/a.txt", content="a")
        text, fields = await t.call("git_status", path="here")
        assert "?? a.txt" in text, text
        text, fields = await t.call("git_commit", path="here", message="It's a \"first\" commit\n\nwith two lines")
        assert fields["exit_code"] == 0, text
        text, fields = await t.call("git_push", path="here")
        assert fields["exit_code"] == 0, text
        _, fields = await t.call("shell_exec", command="git -C there.git log --all --format='%an %s'")
        assert fields["stdout"] == "agent It's a \"first\" commit\n", fields


@case
async def more_of_files():
    async with Talk("?tools=all") as t:
        content = os.urandom(500_000)
        _, up = await t.call("file_upload", file="d/bytes.bin", content_base64=base64.b64encode(content).decode())
        got, fields = b"", {"next_offset": 0}
        while "next_offset" in fields:
            _, fields = await t.call("file_download", file="d/bytes.bin", offset=fields["next_offset"])
            got += base64.b64decode(fields["content_base64"])
        assert got == content and fields["sha256"] == up["sha256"] == hashlib.sha256(content).hexdigest()
        await t.call("file_write", file="d/e/x.py", content="import os\nprint(1)\n")
        _, fields = await t.call("file_find", glob="*.py")
        assert [e["path"].endswith("/d/e/x.py") for e in fields["entries"]] == [True], fields
        _, fields = await t.call("glob", pattern="d/**/*.py")
        assert fields["total"] == 1, fields
        text, _ = await t.call("grep", pattern="PRINT", case_insensitive=True, context=1, file_glob="*.py")
        assert "x.py-1-import os" in text and "x.py:2:print(1)" in text, text
        uri = f"sandyard://sandboxes/{fields['sandbox_id']}/files{fields['entries'][0]['path']}"
        assert (await t.client.read_resource(uri)).contents[0].text == "import os\nprint(1)\n"
        await t.call("file_delete", file="d")
        assert (await t.refused("file_read", file="d/e/x.py"))["code"] == "file_not_found"


@case
async def sandboxes_and_jobs():
    async with Talk("?tools=all") as t:
        _, box = await t.call("sandbox_create", key="mine", labels={"for": "test"})
        assert (await t.call("sandbox_create", key="mine"))[1]["id"] == box["id"]
        _, run = await t.call("shell_exec", command="echo there", sandbox=box["id"])
        assert run["sandbox_id"] == box["id"] and run["stdout"] == "there\n", run
        assert box["id"] in (await t.call("sandbox_list"))[0]
        _, fields = await t.call("sandbox_pause", sandbox=box["id"])
        assert fields["state"] == "paused", fields
        _, fields = await t.call("sandbox_resume", sandbox=box["id"])
        assert fields["state"] == "running", fields
        _, longer = await t.call("sandbox_extend", sandbox=box["id"], seconds=80000)
        assert longer["expires_at"] > box["expires_at"], longer
        _, fields = await t.call("job_get", job_id=run["exec_id"])
        assert fields["state"] == "succeeded" and fields["kind"] == "exec", fields
        assert run["exec_id"] in (await t.call("job_list", sandbox=box["id"]))[0]
        _, sleep = await t.call("shell_exec", command="sleep 1000", sandbox=box["id"], wait=0.2)
        await t.call("job_cancel", job_id=sleep["exec_id"])
        assert (await t.refused("shell_wait", exec_id=sleep["exec_id"]))["code"] == "cancelled"
        _, fields = await t.call("workspace_info", sandbox=box["id"])
        assert fields["directory"] == "/workspace" and int(fields["free_kb"]) > 1000 and "python3" in fields, fields
        assert (await t.call("workspace_health", sandbox=box["id"]))[1]["healthy"] is True
        assert "python" in (await t.call("template_list"))[0]
        _, fields = await t.call("usage_limits")
        limits = {one["limit"]: one for one in fields["limits"]}
        assert 0 < limits["max_sandboxes"]["used"] < limits["max_sandboxes"]["max"], fields
        assert limits["max_cpus"]["used"] > 0 and "max" not in limits["max_cpus"], fields
        uris = {str(r.uri) for r in (await t.client.list_resources()).resources}
        assert uris == {"sandyard://sandboxes", "sandyard://templates"}, uris
        assert box["id"] in (await t.client.read_resource("sandyard://sandboxes")).contents[0].text
        assert "there" in (await t.client.read_resource(f"sandyard://jobs/{run['exec_id']}/output")).contents[0].text
        await t.call("sandbox_delete", sandbox=box["id"])
        assert (await t.refused("shell_exec", command="true", sandbox=box["id"]))["code"] == "not_found"


@case
async def what_the_template_has_and_has_not():
    async with Talk("?tools=all") as t:
        _, fields = await t.call("python_execute", code="6 * 7")
        assert fields["results"][0]["data"]["text/plain"] == "42", fields
        assert (await t.refused("javascript_execute", code="1"))["code"] == "command_not_found"
        _, fields = await t.call("pip_install", packages="no-such-package", timeout=20)
        assert fields["exit_code"] != 0, fields
        for tool, arguments in {
            "browser_open": {"url": "http://localhost:8000/"},
            "browser_info": {},
            "browser_screenshot": {},
            "browser_action": {"action_type": "text"},
        }.items():
            assert (await t.refused(tool, **arguments))["code"] == "no_browser"


# A server for one tool, which answers whatever it is asked.
SERVER = """import json, sys
for line in sys.stdin:
    m = json.loads(line)
    if "id" in m:
        print(json.dumps({"jsonrpc": "2.0", "id": m["id"], "result": {
            "protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": {"name": "s", "version": "1"},
            "tools": [{"name": "t", "inputSchema": {"type": "object"}}],
            "content": [{"type": "text", "text": "got " + str(m.get("params", {}).get("arguments"))}]}}), flush=True)
"""


@case
async def other_servers():
    async with Talk("?tools=all") as t:
        assert (await t.refused("mcp_list_servers"))["code"] == "mcp_failed"
        await t.call("file_write", file="s.py", content=SERVER)
        config = {"mcpServers": {"s": {"command": "python3", "args": ["s.py"]}}}
        await t.call("file_write", file=".mcp.json", content=json.dumps(config))
        _, fields = await t.call("mcp_list_servers")
        assert [s["name"] for s in fields["servers"]] == ["s"], fields
        _, fields = await t.call("mcp_list_tools", server_name="s")
        assert [tool["name"] for tool in fields["tools"]] == ["t"], fields
        text, _ = await t.call("mcp_execute", server_name="s", tool_name="t", arguments={"a": 1})
        assert text == "got {'a': 1}\n", text


@case
async def a_job_is_waited_for():
    async with Talk("?tools=all") as t:
        _, exec = await t.call("exec_start", command="sleep 600")
        await t.call("exec_signal", exec_id=exec["exec_id"], signal="SIGKILL")
        _, job = await t.call("job_wait", job_id=exec["exec_id"])
        assert job["state"] == "succeeded", job


@case
async def every_tool_was_called():
    async with Talk("?tools=all") as t:
        left = {tool.name for tool in (await t.client.list_tools()).tools} - called
        assert not left, sorted(left)


async def clear():
    """Deletes the sandboxes of all conversations, which would otherwise end by their timeouts."""
    base = URL.removesuffix("/mcp") + "/v1/sandboxes"
    async with httpx2.AsyncClient(headers={"X-API-Key": os.environ["MCP_KEY"]}) as http:
        for box in (await http.get(base)).json()["sandboxes"]:
            (await http.delete(f"{base}/{box['id']}?force=true&wait=30s")).raise_for_status()


async def main():
    failed = 0
    for f in cases:
        try:
            async with asyncio.timeout(120):
                await f()
            print(f"ok   {f.__name__}", flush=True)
        except BaseException:
            failed += 1
            print(f"FAIL {f.__name__}: {traceback.format_exc()}", flush=True)
    await clear()
    print(f"{failed} of {len(cases)} failed" if failed else f"all {len(cases)} cases passed")
    return 1 if failed else 0


sys.exit(asyncio.run(main()))
