"""Talks to the MCP servers that .mcp.json of this directory names. JSON on standard input says what for; JSON on standard
output has that, or error."""
import http.client
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request

CONFIG = ".mcp.json"
VERSION = "2025-06-18"
MOST_READ = 6 << 20  # of one message
EXAMPLE = '{"mcpServers": {"NAME": {"command": "PROGRAM", "args": []}, "OTHER": {"url": "https://…"}}}'


class Failed(Exception):
    pass


def configured():
    try:
        with open(CONFIG, encoding="utf-8") as f:
            servers = json.load(f).get("mcpServers")
    except FileNotFoundError:
        raise Failed(f"{os.getcwd()} has no {CONFIG}; write one such as {EXAMPLE}") from None
    except (OSError, ValueError, AttributeError) as error:
        raise Failed(f"{os.getcwd()}/{CONFIG} cannot be read: {error}") from None
    if not isinstance(servers, dict) or not all(isinstance(one, dict) for one in servers.values()):
        raise Failed(f"{CONFIG} must have mcpServers, such as {EXAMPLE}")
    return servers


def kind(server):
    return "http" if "url" in server else "stdio"


def filled(value):
    """The value with ${NAME} and ${NAME:-default} replaced by variables of the environment."""
    def variable(found):
        name, default = found[1], found[2]
        if name not in os.environ and default is None:
            raise Failed(f"{CONFIG} names the environment variable {name}, which is not set")
        return os.environ.get(name, default)
    return re.sub(r"\$\{(\w+)(?::-([^}]*))?\}", variable, str(value))


class Stdio:
    """A server that is started for this call."""

    def __init__(self, server):
        argv = [filled(server.get("command", "")), *(filled(a) for a in server.get("args") or [])]
        env = {**os.environ, **{name: filled(v) for name, v in (server.get("env") or {}).items()}}
        self.said = tempfile.TemporaryFile()
        try:
            self.program = subprocess.Popen(
                argv, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.said, start_new_session=True)
        except OSError as error:
            raise Failed(f"the server's program {argv[0]!r} does not start: {error}") from None

    def write(self, message):
        try:
            self.program.stdin.write(json.dumps(message).encode() + b"\n")
            self.program.stdin.flush()
        except OSError:
            raise self.ended() from None

    def ask(self, message):
        self.write(message)
        while True:
            line = self.program.stdout.readline(MOST_READ + 1)
            if not line:
                raise self.ended()
            if len(line) > MOST_READ:
                raise Failed(f"the server has sent a message of more than {MOST_READ} bytes")
            try:
                came = json.loads(line)
            except ValueError:
                continue  # what programs print by mistake
            if answers(came, message, self.write):
                return came

    def ended(self):
        try:
            code = self.program.wait(5)
        except subprocess.TimeoutExpired:
            code = "unknown"
        self.said.seek(max(0, self.said.seek(0, os.SEEK_END) - 2000))
        return Failed(f"the server has ended with exit code {code}: {self.said.read().decode(errors='replace')}")

    def close(self):
        try:
            self.program.stdin.close()
            self.program.wait(2)
        except (OSError, subprocess.TimeoutExpired):
            pass
        try:
            os.killpg(self.program.pid, signal.SIGKILL)
        except OSError:
            pass


class HTTP:
    """A server at a URL (streamable HTTP)."""

    def __init__(self, server):
        if server.get("type", "http") not in ("http", "streamable-http"):
            raise Failed(f"type {server['type']!r} is not supported; use http, with a URL of streamable HTTP")
        self.url = filled(server["url"])
        self.headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
        self.headers.update({name: filled(v) for name, v in (server.get("headers") or {}).items()})
        if not re.match(r"https?://", self.url):
            raise Failed("the server's url must begin with http:// or https://")

    def send(self, message):
        request = urllib.request.Request(self.url, json.dumps(message).encode(), self.headers, method="POST")
        try:
            answer = urllib.request.urlopen(request)
        except urllib.error.HTTPError as error:
            text = error.read(500).decode(errors="replace")
            raise Failed(f"the server answers status {error.code}: {text}") from None
        if session := answer.headers.get("Mcp-Session-Id"):
            self.headers["Mcp-Session-Id"] = session
        return answer

    def write(self, message):
        self.send(message).close()

    def ask(self, message):
        with self.send(message) as answer:
            if answer.headers.get_content_type() == "text/event-stream":
                found = self.event(answer, message)
            else:
                body = answer.read(MOST_READ + 1)
                if len(body) > MOST_READ:
                    raise Failed(f"the server has sent a message of more than {MOST_READ} bytes")
                found = json.loads(body)
        if message["method"] == "initialize":
            self.headers["MCP-Protocol-Version"] = str(found.get("result", {}).get("protocolVersion", VERSION))
        return found

    def event(self, answer, message):
        data, size = [], 0
        while line := answer.readline(MOST_READ + 1):
            size += len(line)
            if size > MOST_READ:
                raise Failed(f"the server has sent more than {MOST_READ} bytes")
            line = line.rstrip(b"\r\n")
            if line.startswith(b"data:"):
                data.append(line[5:])
            elif not line and data:
                came, data = json.loads(b"\n".join(data)), []
                if answers(came, message, self.write):
                    return came
        raise Failed("the server has ended its answer too early")

    def close(self):
        if "Mcp-Session-Id" in self.headers:
            try:
                end = urllib.request.Request(self.url, headers=self.headers, method="DELETE")
                urllib.request.urlopen(end, timeout=2).close()
            except OSError:
                pass


def answers(came, message, write):
    """Whether what came is the answer to the message. A request of the server gets an answer: there is nothing here."""
    if not isinstance(came, dict):
        return False
    if "method" in came:
        if "id" in came:
            no = {"error": {"code": -32601, "message": "not supported"}}
            write({"jsonrpc": "2.0", "id": came["id"], **({"result": {}} if came["method"] == "ping" else no)})
        return False
    return came.get("id") == message["id"]


class Talk:
    def __init__(self, link):
        self.link, self.last = link, 0
        self.ask("initialize", {
            "protocolVersion": VERSION, "capabilities": {}, "clientInfo": {"name": "sandyard", "version": "1"}})
        link.write({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def ask(self, method, params):
        self.last += 1
        answer = self.link.ask({"jsonrpc": "2.0", "id": self.last, "method": method, "params": params})
        if "error" in answer:
            raise Failed(f"the server refuses {method}: {json.dumps(answer['error'], ensure_ascii=False)[:2000]}")
        if not isinstance(answer.get("result"), dict):
            raise Failed(f"the server answers {method} without a result")
        return answer["result"]

    def tools(self):
        found, params = [], {}
        while len(found) < 1000:
            page = self.ask("tools/list", params)
            found += page.get("tools", [])
            if not page.get("nextCursor"):
                break
            params = {"cursor": page["nextCursor"]}
        return found


def list_servers():
    def target(s):
        return str(s.get("url") or " ".join(map(str, [s.get("command", ""), *(s.get("args") or [])])))
    return {"servers": [
        {"name": name, "transport": kind(s), "target": target(s)} for name, s in configured().items()
    ]}


def talk(asked):
    servers = configured()
    server = servers.get(asked["server_name"])
    if server is None:
        raise Failed(f"{CONFIG} has no server {asked['server_name']!r}; it has {', '.join(servers) or 'none'}")
    link = (HTTP if kind(server) == "http" else Stdio)(server)
    try:
        conversation = Talk(link)
        if asked["do"] == "call":
            params = {"name": asked["tool_name"], "arguments": asked.get("arguments") or {}}
            return {"result": conversation.ask("tools/call", params)}
        return {"tools": conversation.tools()}
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        link.close()


def overdue(*_):
    raise TimeoutError


asked = json.load(sys.stdin)
signal.signal(signal.SIGALRM, overdue)
signal.setitimer(signal.ITIMER_REAL, asked["timeout"])
try:
    said = list_servers() if asked["do"] == "servers" else talk(asked)
except Failed as error:
    said = {"error": str(error)}
except TimeoutError:
    said = {"error": f"the server has not answered within {asked['timeout']:g} seconds"}
except (OSError, http.client.HTTPException) as error:
    said = {"error": f"the server cannot be reached: {getattr(error, 'reason', error)}", "network": True}
except (ValueError, TypeError, AttributeError, KeyError) as error:
    said = {"error": f"the server or {CONFIG} has something of the wrong form: {error}"}
print(json.dumps(said))
