"""A server on loopback that speaks the completions protocol, and fails on demand."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Reply = tuple[int, dict[str, str], bytes]
Behaviour = Callable[[dict[str, Any]], Reply | None]


def answer(body: dict[str, Any], **choice: Any) -> Reply:
    """What a well-behaved server says: words that name prompt and seed."""
    prompt = body.get("prompt", body.get("messages", [{}])[0].get("content"))
    text = f" {prompt} under {body['seed']} END beyond"
    said = {"index": 0, "finish_reason": "stop", "logprobs": None, **choice}
    if "messages" in body:
        said.setdefault("message", {"role": "assistant", "content": text})
    said.setdefault("text", text)
    reply = {"choices": [said], "usage": {"prompt_tokens": 3, "completion_tokens": 7}}
    return 200, {}, json.dumps(reply).encode()


def error(status: int, message: str = "", headers: dict[str, str] | None = None) -> Behaviour:
    """A refusal in OpenAI's form."""
    said = json.dumps({"error": {"message": message, "code": None}}).encode()
    return lambda body: (status, headers or {}, said)


def garbage(body: dict[str, Any]) -> Reply:
    return 200, {}, b'{"choices": [{"tex'


def sleeping(seconds: float) -> Behaviour:
    def behave(body: dict[str, Any]) -> Reply:
        time.sleep(seconds)
        return answer(body)

    return behave


def hang_up(body: dict[str, Any]) -> None:
    """Close the connection without a word."""


class FakeServer(ThreadingHTTPServer):
    """Answers well, except where `script` (per call, from the first on) or `behave` says else."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.lock = threading.Lock()
        self.script: list[Behaviour | None] = []
        self.behave: Behaviour = answer
        self.models: list[dict[str, Any]] | None = [{"id": "toy", "owned_by": "me"}]
        self.pages: Callable[[str], Any] = lambda path: None
        """What further paths show to a GET, as JSON; None where there is nothing."""
        self.key: str | None = None
        self.bodies: list[dict[str, Any]] = []
        self.paths: list[str] = []
        self.times: list[float] = []
        self.active = self.most_active = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"


class Handler(BaseHTTPRequestHandler):
    server: FakeServer
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        if self.server.key and self.headers.get("Authorization") != f"Bearer {self.server.key}":
            self.reply(error(401, f"Incorrect API key: {self.headers.get('Authorization')}")({}))
        elif self.path == "/v1/models" and self.server.models is not None:
            self.reply((200, {}, json.dumps({"data": self.server.models}).encode()))
        elif (page := self.server.pages(self.path)) is not None:
            self.reply((200, {}, json.dumps(page).encode()))
        else:
            self.reply((404, {}, b"nothing here"))

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        server = self.server
        with server.lock:
            server.bodies.append(body)
            server.paths.append(self.path)
            server.times.append(time.monotonic())
            server.active += 1
            server.most_active = max(server.most_active, server.active)
            scripted = server.script.pop(0) if server.script else None
        try:
            reply = (scripted or server.behave)(body)
        finally:
            with server.lock:
                server.active -= 1
        self.reply(reply)

    def reply(self, reply: Reply | None) -> None:
        if reply is None:
            self.close_connection = True
            return
        status, headers, content = reply
        try:
            self.send_response(status)
            for name, value in {"Content-Length": str(len(content)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)
        except OSError:
            self.close_connection = True  # the client has gone

    def log_message(self, *arguments: Any) -> None:
        pass


@contextmanager
def running():
    """A fake server, up while the block runs."""
    with FakeServer() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
