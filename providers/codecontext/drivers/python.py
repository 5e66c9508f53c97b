"""Runs cells of Python one after the other and keeps what they leave behind.

Descriptor 0 brings a line of JSON per cell, descriptor 3 takes lines of JSON about them. Neither is left to the cells,
whose standard input is empty.
"""
import ast
import asyncio
import base64
import builtins
import fcntl
import inspect
import json
import linecache
import os
import signal
import sys
import traceback
import types
import warnings

MAX_RESULTS = 100
MAX_BYTES = 4 << 20  # of all results of a cell
MAX_TEXT = 256 << 10  # of one representation as text
MAX_TRACE = 64 << 10

RICH = (
    ("text/html", "_repr_html_"),
    ("text/markdown", "_repr_markdown_"),
    ("text/latex", "_repr_latex_"),
    ("image/svg+xml", "_repr_svg_"),
    ("image/png", "_repr_png_"),
    ("image/jpeg", "_repr_jpeg_"),
    ("application/pdf", "_repr_pdf_"),
    ("application/javascript", "_repr_javascript_"),
    ("application/json", "_repr_json_"),
)


def private(fd):
    """Moves a descriptor to where cells and their children do not meet it."""
    return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 500 if os.sysconf("SC_OPEN_MAX") > 600 else 20)


class Driver:
    def __init__(self):
        self.cells = os.fdopen(private(0), "rb")
        self.report = private(3)
        os.close(3)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.close(nothing)
        self.pid = os.getpid()
        self.cell = None  # the id of the one that runs
        self.seen = set()
        self.count = 0
        self.loop = None
        self.main = types.ModuleType("__main__")
        self.space = self.main.__dict__
        self.space["__builtins__"] = builtins
        sys.modules["__main__"] = self.main
        sys.argv = [""]
        sys.stdout.reconfigure(line_buffering=True, errors="backslashreplace")
        builtins.display = self.display
        os.environ.setdefault("MPLBACKEND", "Agg")
        signal.signal(signal.SIGINT, self.interrupt)

    def serve(self):
        os.write(self.report, b'{"type":"ready"}\n')
        for line in self.cells:
            cell = json.loads(line)
            if cell["id"] in self.seen:
                continue
            self.seen.add(cell["id"])
            self.run(cell)

    def interrupt(self, *_):
        if self.cell is not None:
            raise KeyboardInterrupt

    def say(self, kind, **more):
        rest = json.dumps({"id": self.current, "type": kind, **more}).encode() + b"\n"
        while rest:
            rest = rest[os.write(self.report, rest):]

    def run(self, cell):
        self.count += 1
        self.current, self.results, self.left = cell["id"], 0, MAX_BYTES
        self.drawn = []  # figures that were shown
        environment = cell.get("env") or {}
        before = {name: os.environ.get(name) for name in environment}
        error, apart = None, None
        try:
            try:
                self.cell = cell["id"]  # from here on it can be interrupted
                self.say("begin", count=self.count)
                if cell.get("merge"):
                    self.flush()
                    apart = fcntl.fcntl(2, fcntl.F_DUPFD_CLOEXEC, self.report)
                    os.dup2(1, 2)
                os.environ.update(environment)
                if cell.get("cwd"):
                    os.chdir(cell["cwd"])
                self.execute(cell["code"])
                self.figures()
            finally:
                self.cell = None
        except BaseException as e:  # whatever it is, the context goes on
            self.cell = None
            error = self.explain(e)
        if os.getpid() != self.pid:  # a child that the cell has forked
            self.flush()
            os._exit(0 if error is None else 1)
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        self.flush()
        if apart is not None:
            os.dup2(apart, 2)
            os.close(apart)
        self.say("done", count=self.count, error=error)

    def flush(self):
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except Exception:
                pass

    def execute(self, code):
        name = "<cell %d>" % self.count
        linecache.cache[name] = (len(code), None, code.splitlines(True), name)
        tree = ast.parse(code, name)
        last = None
        if tree.body and isinstance(tree.body[-1], ast.Expr) and not code.rstrip().endswith(";"):
            last = ast.Expression(tree.body.pop().value)
        flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        if tree.body:
            self.evaluate(compile(tree, name, "exec", flags, True))
        if last is not None:
            value = self.evaluate(compile(last, name, "eval", flags, True))
            if value is not None:
                self.space["_"] = value
                self.show(value, True)

    def evaluate(self, code):
        value = eval(code, self.space)
        if code.co_flags & inspect.CO_COROUTINE:
            return self.wait(value)
        return value

    def wait(self, coroutine):
        if self.loop is None or self.loop.is_closed():
            self.loop = asyncio.new_event_loop()
        asyncio.set_event_loop(self.loop)
        task = self.loop.create_task(coroutine)
        try:
            return self.loop.run_until_complete(task)
        except KeyboardInterrupt:
            task.cancel()
            self.loop.run_until_complete(asyncio.wait([task]))
            raise

    def display(self, *values):
        """Shows values as results of the cell."""
        for value in values:
            self.show(value, False)

    def show(self, value, main):
        if os.getpid() == self.pid:
            if is_figure(value):
                self.drawn.append(value)
            self.emit(bundle(value), main)

    def emit(self, data, main):
        size = len(json.dumps(data))
        if size > self.left and "text/plain" in data:  # the short form may find room
            self.say("cut")
            data = {"text/plain": data["text/plain"][:1000]}
            size = len(json.dumps(data))
        if self.results >= MAX_RESULTS or size > self.left:
            self.say("cut")
            return
        self.results += 1
        self.left -= size
        self.say("result", data=data, main=main)

    def figures(self):
        """Shows what matplotlib has drawn and nobody has saved and closed."""
        plot = sys.modules.get("matplotlib.pyplot")
        if plot is None or os.getpid() != self.pid:
            return
        for number in plot.get_fignums():
            figure = plot.figure(number)
            if figure not in self.drawn:
                self.show(figure, False)
        plot.close("all")

    def explain(self, e):
        if isinstance(e, SystemExit):
            if e.code is None or e.code == 0:
                return None
            if not isinstance(e.code, int):
                print(e.code, file=sys.stderr)
            return {"name": "SystemExit", "value": clip(str(e.code), MAX_TRACE), "traceback": ""}
        try:
            trace = "".join(traceback.format_exception(type(e), e, below(e.__traceback__)))
        except Exception:
            trace = ""
        try:
            value = str(e)
        except Exception:
            value = ""
        name = type(e).__name__
        if isinstance(e, SyntaxError):
            value = "%s (%s, line %s)" % (e.msg, e.filename, e.lineno)
        return {"name": name, "value": clip(value, MAX_TRACE), "traceback": clip(trace, MAX_TRACE)}


def below(trace):
    """The part of a traceback that is the cell's."""
    while trace is not None:
        if trace.tb_frame.f_code.co_filename.startswith("<cell "):
            return trace
        trace = trace.tb_next
    return None  # as of code that does not compile


def clip(text, limit):
    if len(text) <= limit:
        return text
    return text[: limit // 2] + "\n…\n" + text[-limit // 2 :]


def bundle(value):
    """The representations of a value by media type. Bytes are written in base64."""
    data = {"text/plain": clip(repr(value), MAX_TEXT)}
    if isinstance(value, type):
        return data
    many = getattr(value, "_repr_mimebundle_", None)
    if callable(many):
        try:
            found = many(include=None, exclude=None)
            for kind, text in (found[0] if isinstance(found, tuple) else found).items():
                put(data, kind, text)
        except Exception:
            pass
    for kind, method in RICH:
        make = getattr(value, method, None)
        if kind in data or not callable(make):
            continue
        try:
            made = make()
        except Exception:  # it has no such representation after all
            continue
        put(data, kind, made[0] if isinstance(made, tuple) else made)
    if is_figure(value) and "image/png" not in data:
        data["image/png"] = picture(value)
    if isinstance(value, (dict, list)):
        try:
            text = json.dumps(value, allow_nan=False)
        except (TypeError, ValueError, RecursionError):
            return data
        if len(text) <= MAX_TEXT:
            data["application/json"] = json.loads(text)
    return data


def is_figure(value):
    draw = sys.modules.get("matplotlib.figure")
    return draw is not None and isinstance(value, draw.Figure)


def put(data, kind, made):
    if made is None:
        return
    if isinstance(made, (bytes, bytearray)):
        made = base64.b64encode(made).decode()
    if kind == "application/json" or kind.endswith("+json"):
        try:
            made = json.loads(made) if isinstance(made, str) else made
            made = json.loads(json.dumps(made, allow_nan=False))
        except (TypeError, ValueError, RecursionError):
            return
    elif not isinstance(made, str):
        made = str(made)
    data[str(kind)] = made


def picture(figure):
    import io

    page = io.BytesIO()
    figure.savefig(page, format="png", bbox_inches="tight")
    return base64.b64encode(page.getvalue()).decode()


warnings.filterwarnings("ignore", message=".*non-interactive.*cannot be shown")
Driver().serve()
