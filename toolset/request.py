"""Makes one HTTP request, given as JSON on standard input, and writes the answer as JSON."""
import base64
import codecs
import http.client
import json
import sys
import urllib.error
import urllib.request

MOST_READ = 256 << 20


def ask(asked):
    request = urllib.request.Request(
        asked["url"],
        data=asked["body"].encode() if asked["body"] else None,
        headers=asked["headers"] or {},
        method=asked["method"] or ("POST" if asked["body"] else "GET"),
    )
    try:
        return urllib.request.urlopen(request, timeout=asked["timeout"])
    except urllib.error.HTTPError as error:
        return error


def read(answer, most):
    kept, total = bytearray(), 0
    while total < MOST_READ and (piece := answer.read(1 << 16)):
        total += len(piece)
        kept += piece[: max(0, most - len(kept))]
    return bytes(kept), total


def as_text(kept, total, most):
    """Text, or base64 of what is none, that is short as JSON."""
    try:
        body, encoding = codecs.getincrementaldecoder("utf-8")().decode(kept, total == len(kept)), "utf-8"
    except UnicodeDecodeError:
        body, encoding = base64.b64encode(kept).decode(), "base64"
    cut = total > len(kept)
    while len(json.dumps(body)) > most:
        body, cut = body[: len(body) * 3 // 4 // 4 * 4], True
    return {"body": body, "encoding": encoding, "bytes": total, "truncated": cut}


asked = json.load(sys.stdin)
try:
    with ask(asked) as answer:
        kept, total = read(answer, asked["most"])
except (OSError, http.client.HTTPException, ValueError) as error:
    print(f"the request failed: {getattr(error, 'reason', error)}", file=sys.stderr)
    sys.exit(1)
headers = {name[:64]: value[:192] for name, value in list(answer.headers.items())[:16]}
print(json.dumps({
    "status": answer.status, "reason": (answer.reason or "")[:192], "url": answer.url[:1024], "headers": headers,
    **as_text(kept, total, asked["most"] - 6144),
}))
