"""Uses the tools that a sandbox serves itself, with the official client of the Model Context Protocol.

Arguments: the API's URL, and the edge's address. Every case prints one line; the exit code says whether all went well.
"""

import asyncio
import base64
import sys
import traceback
from urllib.parse import urlsplit

import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

API, EDGE = sys.argv[1:3]
cases = []


def case(f):
    cases.append(f)
    return f


def at_edge(url):
    """The URL at the edge's address, and the Host that the URL names: Python does not resolve names below localhost."""
    parts = urlsplit(url)
    return f"http://{EDGE}{parts.path}?{parts.query}", parts.netloc


class Talk:
    def __init__(self, url):
        url, host = at_edge(url)
        self.http = httpx2.AsyncClient(headers={"Host": host}, timeout=60)
        self.client = Client(streamable_http_client(url, http_client=self.http))

    async def __aenter__(self):
        await self.http.__aenter__()
        await self.client.__aenter__()
        return self

    async def __aexit__(self, *error):
        await self.client.__aexit__(*error)
        await self.http.__aexit__(*error)

    async def call(self, tool, **arguments):
        result = await self.client.call_tool(tool, arguments)
        text = "\n".join(c.text for c in result.content if c.type == "text")
        assert not result.is_error, f"{tool}: {text}"
        return text, result.structured_content

    async def refused(self, tool, **arguments):
        result = await self.client.call_tool(tool, arguments)
        assert result.is_error, f"{tool} was not refused: {result}"
        return result.structured_content["error"]


@case
async def the_port_needs_its_grant(url):
    bare, host = at_edge(url.split("?")[0])
    ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    headers = {"Host": host, "Accept": "application/json, text/event-stream"}
    async with httpx2.AsyncClient(headers=headers) as http:
        assert (await http.post(bare, json=ping)).status_code in (401, 403)
        assert (await http.post(bare + "&sandyard_token=pt_wrong", json=ping)).status_code in (401, 403)
        answer = await http.post(at_edge(url)[0], json=ping)
        assert answer.status_code == 200, answer.text
        page = await http.post(at_edge(url)[0], json=ping, headers={"Origin": "http://" + host})
        assert page.status_code == 403, page.text


@case
async def files(url):
    async with Talk(url) as t:
        assert len((await t.client.list_tools()).tools) == 30
        await t.call("file_write", file="src/a.txt", content="one\ntwo\n")
        await t.call("file_write", file="src/a.txt", content="end\n", append=True)
        await t.call("file_edit", file="src/a.txt", old_str="two", new_str="zwei")
        text, fields = await t.call("file_read", file="src/a.txt")
        assert text == fields["content"] == "one\nzwei\nend\n", fields
        _, fields = await t.call("file_search", file="src", regex="z.ei")
        assert fields["matches"][0]["line"] == 2, fields
        finders = {"file_find": {"glob": "a.*"}, "glob": {"pattern": "src/*"}, "file_list": {"recursive": True}}
        for tool, arguments in finders.items():
            text, _ = await t.call(tool, **arguments)
            assert "src/a.txt" in text, text
        await t.call("file_upload", file="raw", content_base64=base64.b64encode(b"\0\xff").decode())
        _, fields = await t.call("file_download", file="raw")
        assert base64.b64decode(fields["content_base64"]) == b"\0\xff", fields
        await t.call("file_delete", file="raw")
        assert (await t.refused("file_read", file="raw"))["code"] == "file_not_found"
        assert (await t.refused("file_read", file="/etc/shadow"))["code"] == "invalid_path"
        assert (await t.refused("file_read", path="raw"))["code"] == "invalid_request"
        assert (await t.refused("file_write", file="x", content="=", encoding="base64"))["code"] == "invalid_request"


@case
async def commands(url):
    async with Talk(url) as t:
        _, fields = await t.call("shell_exec", command="echo 1; echo 2 >&2; echo 3; exit 4")
        assert (fields["stdout"], fields["exit_code"]) == ("1\n2\n3\n", 4), fields
        slow = "for i in 1 2 3; do echo $i; sleep 0.5; done; seq 1 20000"
        _, fields = await t.call("shell_exec", command=slow, wait=0.2)
        assert fields["running"], fields
        got, id = fields["stdout"], fields["exec_id"]
    async with Talk(url) as t:  # another connection
        while fields["running"] or fields.get("more"):
            _, fields = await t.call("shell_wait", exec_id=id, cursor=fields["cursor"])
            got += fields["stdout"]
        assert got == "1\n2\n3\n" + "".join(f"{n}\n" for n in range(1, 20001)), len(got)
        await t.call("shell_interactive", command="cat")
        text, _ = await t.call("shell_write", input="hello")
        assert "hello" in text, text
        await t.call("shell_kill")
        assert (await t.refused("shell_wait", exec_id="run_nothing"))["code"] == "exec_not_found"
        assert (await t.refused("shell_exec", command="true", cwd="/nowhere"))["code"] == "cwd_not_found"
        text, _ = await t.call("shell_exec", command="env")
        assert "sy_" not in text and "KEY" not in text, text  # there is no key inside


@case
async def code_and_variables(url):
    async with Talk(url) as t:
        await t.call("env_set", name="WORD", value="it's set")
        for command in ("echo $WORD", "sh -c 'echo $WORD'"):
            _, fields = await t.call("shell_exec", command=command)
            assert fields["stdout"] == "it's set\n", fields
        await t.call("python_exec", code="import os, sys\nx = os.environ['WORD']")
        _, fields = await t.call("python_exec", code="print('1'); print('2', file=sys.stderr); print('3'); x")
        assert fields["stdout"] == "1\n2\n3\n", fields
        assert fields["results"][0]["data"]["text/plain"] == repr("it's set"), fields
        _, fields = await t.call("python_exec", code="1 / 0")
        assert fields["error"]["name"] == "ZeroDivisionError", fields
        _, fields = await t.call("python_exec", code="import time; time.sleep(1); 7", wait=0.2)
        assert fields["running"], fields
        _, fields = await t.call("shell_wait", exec_id=fields["exec_id"])
        assert fields["results"][0]["data"]["text/plain"] == "7", fields
        error = await t.refused("javascript_execute", code="1")
        assert error["code"] == "command_not_found" and "node" in error["message"], error
        await t.call("shell_exec", command="sleep 1004", background=True)
        _, fields = await t.call("process_list")
        found = [p for p in fields["processes"] if p["command"] == "sleep 1004"]
        await t.call("process_signal", pid=found[0]["pid"], start=found[0]["start"], signal="KILL")


@case
async def programs(url):
    async with Talk(url) as t:
        await t.call("shell_exec", command="python3 -m http.server 8000", background=True)
        await t.call("shell_exec", command="until curl -s localhost:8000 >/dev/null; do sleep 0.1; done")
        _, fields = await t.call("http_request", url="http://localhost:8000/nothing")
        assert fields["status"] == 404, fields
        await t.call("shell_exec", command="git init -q repo; echo a >repo/a")
        await t.call("git_commit", path="repo", message="first")
        text, _ = await t.call("git_status", path="repo")
        assert "a" in text, text
        text, fields = await t.call("git_clone", url="http://198.51.100.1/x.git")
        assert fields["exit_code"] != 0 and "egress policy" in text, text


async def main():
    async with httpx2.AsyncClient(base_url=API, timeout=120) as http:
        login = await http.post("/api/v1/auth/login/swagger", params={"username": "agent", "password": "TestPass123!"})
        http.headers["Authorization"] = "Bearer " + login.json()["access_token"]
        wish = {"user_id": "me", "sandbox_template_id": "tools"}
        made = (await http.post("/agent/sandboxes/sandboxes/create", json=wish)).json()
        assert made["code"] == 200, made
        id, failed = made["data"]["sandbox_id"], 0
        while (await http.get(f"/agent/sandboxes/sandboxes/{id}/status")).json()["data"]["status"] == "creating":
            await asyncio.sleep(0.1)
        for f in cases:
            try:
                await f(made["data"]["mcp_url"])
                print("ok  ", f.__name__)
            except Exception:
                failed += 1
                print("FAIL", f.__name__)
                traceback.print_exc(file=sys.stdout)
        await http.delete(f"/agent/sandboxes/sandboxes/{id}")
    sys.exit(f"{failed} cases failed" if failed else 0)


asyncio.run(main())
