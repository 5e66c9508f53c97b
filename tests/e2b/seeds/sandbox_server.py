"""Drives the SandboxClient of the sandbox server's document, as it stands there, through its eight methods.

Arguments: the file that holds the client's code, and the URL of a server, with or without a key in it."""

import asyncio
import sys

import httpx

code, url = sys.argv[1:]
names = {}
with open(code) as f:
    exec(compile(f.read(), code, "exec"), names)  # the client, unmodified


def same(got, want):
    assert got == want, f"{got!r} is not {want!r}"


async def main():
    client = names["SandboxClient"](url + "/")
    box = await client.create_sandbox("user123")
    same(await client.run_command(box, "pwd; echo $HOME; echo two >&2"), "/home/user\n/home/user\ntwo\n")
    same(await client.run_command(box, "exit 3"), "")
    for path, content in {"/home/user/app/main.py": "print('hällo')\n", "empty.txt": ""}.items():
        await client.write_file(box, path, content)
        same(await client.read_file(box, path), content)
    same(await client.run_command(box, "python3 app/main.py"), "hällo\n")
    same(await client.run_command(box, "cd /home/user/app && python3 -m http.server 8000", background=True), "")
    public = await client.expose_port(box, 8000)
    same(await client.expose_port(box, 8000), public)
    port = httpx.URL(public)
    async with httpx.AsyncClient() as web:
        for _ in range(600):
            page = await web.get(f"http://127.0.0.1:{port.port}/main.py", headers={"Host": port.netloc.decode()})
            if page.status_code == 200:
                break
            await asyncio.sleep(0.1)
    same(page.text, "print('hällo')\n")
    await client.schedule_timeout(box, 120)
    await client.connect_sandbox(box)
    same(await client.run_command(box, "cat app/main.py"), "print('hällo')\n")
    other = await client.create_sandbox(user_id="user123", template_id="python")
    assert other != box, "two creates made one sandbox"
    for gone in (box, other, box, "user123_0badc0de"):
        await client.delete_sandbox(gone)
    try:
        await client.run_command(box, "true")
    except httpx.HTTPStatusError as e:
        same(e.response.status_code, 404)
        assert "create another one" in e.response.json()["detail"], e.response.text
    else:
        raise AssertionError("a deleted sandbox still takes commands")
    print("ok: the client of the sandbox server, at", httpx.URL(url).host)


asyncio.run(main())
