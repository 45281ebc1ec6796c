"""What Python's json makes of bodies, as engines that are written in Python do.

Without arguments it reads bodies from standard input, each in hexadecimal on a line,
and answers each with a line of JSON. With a port it serves HTTP there, by uvicorn if it
is installed and else by the standard library, and answers a body with the same.
"""
import json
import sys


# The keys of messages, tools and documents that the tests write.
SHOWN = {"role", "content", "text", "name", "function", "description", "arguments"}


def text(value):
    """The bytes of the strings in a value that a chat template may show."""
    if isinstance(value, str):
        return len(value.encode("utf-8", "surrogatepass"))
    if isinstance(value, list):
        return sum(text(v) for v in value)
    if isinstance(value, dict):
        return sum(text(v) for k, v in value.items() if k in SHOWN)
    return 0


def view(body):
    try:
        doc = json.loads(body)
    except Exception as e:  # RecursionError and UnicodeDecodeError too
        return {"ok": False, "error": type(e).__name__}
    if not isinstance(doc, dict):
        return {"ok": False, "error": "no object"}
    model, limit = doc.get("model"), doc.get("max_completion_tokens")
    if limit is None:
        limit = doc.get("max_tokens")
    if isinstance(limit, str):
        try:
            limit = int(limit)
        except ValueError:
            limit = None
    whole = isinstance(limit, (int, float)) and not isinstance(limit, bool) and limit == limit and 0 < limit < 2**31 and limit == int(limit)
    return {
        "ok": True,
        "model": model.encode("utf-8", "surrogatepass").hex() if isinstance(model, str) else None,
        "text": sum(text(doc.get(k)) for k in ("messages", "tools", "documents", "chat_template", "chat_template_kwargs")),
        "max": int(limit) if whole else -1,
    }


def lines():
    for line in sys.stdin:
        print(json.dumps(view(bytes.fromhex(line.strip()))), flush=True)


def serve(port):
    try:
        import uvicorn
    except ImportError:
        return serve_plainly(port)

    async def app(scope, receive, send):
        if scope["type"] != "http":
            return
        body, more = b"", True
        while more:
            m = await receive()
            if m["type"] == "http.disconnect":
                return
            body, more = body + m.get("body", b""), m.get("more_body", False)
        v = view(body) if scope["method"] == "POST" else {}
        status = 400 if v.get("ok") is False else 200
        await send({"type": "http.response.start", "status": status, "headers": [(b"content-type", b"application/json")]})
        await send({"type": "http.response.body", "body": json.dumps(v).encode()})

    uvicorn.run(app, host="127.0.0.1", port=port, log_level="critical", lifespan="off")


def serve_plainly(port):
    from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self, status, v):
            out = json.dumps(v).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(out)))
            self.end_headers()
            self.wfile.write(out)

        def body(self):
            if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
                return self.rfile.read(int(self.headers.get("Content-Length", "0")))
            whole = b""
            while True:
                n = int(self.rfile.readline().split(b";")[0], 16)
                whole += self.rfile.read(n)
                self.rfile.readline()
                if n == 0:
                    return whole

        def do_GET(self):
            self.answer(200, {})

        def do_POST(self):
            v = view(self.body())
            self.answer(200 if v["ok"] else 400, v)

        def log_message(self, *args):
            pass

    ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()


if len(sys.argv) > 1:
    serve(int(sys.argv[1]))
else:
    lines()
