"""An HTTP server with faults on the wire, in a process of its own: ``faulty_server.py [URL]``.

It is moto's S3 and Glue, or passes requests on to URL. It writes its port, and ``ready``; it ends
with its standard input. Requests are carried out one by one, as moto's conditional puts are not
atomic by themselves. Moto's Glue does not compare the version that an update names: this one does.

``PUT /faults`` with JSON of :class:`Plan` sets which requests meet faults; the answer is the number
of faults of each kind so far, and of requests under way. The kinds:

- ``lost``: the request is carried out, and the connection is closed
- ``late``: the connection is closed; the request is carried out a while later
- ``reset``: the connection is reset, and nothing is done
- ``delayed``: the request waits
- ``repeated``: the request is carried out twice; the answer is that of the second time
- ``refused``: the answer is 429, 500 or 503 with ``Retry-After``, and nothing is done
- ``failed``: the same answer, though the request is carried out
- ``cut``: half of the answer's body comes, and the connection is closed
"""

from __future__ import annotations

import http.client
import io
import json
import os
import random
import re
import socket
import struct
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any
from urllib.parse import urlsplit

import attrs

KINDS = ("lost", "late", "reset", "delayed", "repeated", "refused", "failed", "cut")
CHANGES = ("PUT", "POST", "DELETE")
_STATUSES = ("429 Too Many Requests", "500 Internal Server Error", "503 Service Unavailable")
_LONGEST_SECONDS = 0.3
_HOP = {"connection", "transfer-encoding", "content-length", "keep-alive", "host"}


@attrs.frozen
class Plan:
    """The requests that meet faults.

    :ivar rate: the share of the requests that fit
    :ivar most: at most so many faults
    :ivar path: a regular expression
    :ivar seed: of the choice of requests and kinds
    """

    rate: float = 0.0
    most: int = 1 << 30
    path: str = ""
    kinds: tuple[str, ...] = KINDS
    methods: tuple[str, ...] = (*CHANGES, "GET", "HEAD")
    seed: int = 0


@attrs.frozen
class Answer:
    status: str
    headers: list[tuple[str, str]]
    body: bytes


Server = Callable[[dict[str, Any], bytes], Answer]


@attrs.define
class Unreliable:
    """A WSGI application around a server; see the module."""

    inner: Server
    plan: Plan = attrs.field(factory=Plan)
    _chance: random.Random = attrs.field(factory=random.Random)
    _done: Counter[str] = attrs.field(factory=Counter)
    _turn: threading.Lock = attrs.field(factory=threading.Lock)
    _counting: threading.Lock = attrs.field(factory=threading.Lock)
    _running: int = 0

    def __call__(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        is_chunked = bool(environ.get("wsgi.input_terminated"))
        length = -1 if is_chunked else int(environ.get("CONTENT_LENGTH") or 0)
        body = environ["wsgi.input"].read(length)
        if environ["PATH_INFO"] == "/faults":
            return _sent(self._set(body), start)
        with self._counting:
            self._running += 1
            kind = self._kind(environ)
        try:
            return self._with(kind, environ, body, start)
        finally:
            with self._counting:
                self._running -= 1

    def _set(self, body: bytes) -> Answer:
        with self._counting:
            if body:
                self.plan = Plan(**json.loads(body))
                self._chance, self._done = random.Random(self.plan.seed), Counter()
            counts = {**self._done, "running": self._running}
        return Answer("200 OK", [("Content-Type", "application/json")], json.dumps(counts).encode())

    def _kind(self, environ: dict[str, Any]) -> str:
        plan = self.plan
        is_due = self._done.total() < plan.most and environ["REQUEST_METHOD"] in plan.methods
        is_due = is_due and bool(re.search(plan.path, environ["PATH_INFO"]))
        if not is_due or self._chance.random() >= plan.rate:
            return "none"
        kind = self._chance.choice(plan.kinds)
        self._done[kind] += 1
        return kind

    def _with(
        self, kind: str, environ: dict[str, Any], body: bytes, start: Callable[..., Any]
    ) -> Iterable[bytes]:
        connection: socket.socket = environ["werkzeug.socket"]
        pause, status = random.uniform(0, _LONGEST_SECONDS), random.choice(_STATUSES)
        unwell = Answer(status, [("Retry-After", "1")], b"")
        if kind == "reset":
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            os.close(connection.detach())
            return []
        if kind == "refused":
            return _sent(unwell, start)
        if kind == "late":
            connection.shutdown(socket.SHUT_RDWR)
        if kind in {"late", "delayed"}:
            time.sleep(pause)
        answer = self._carried_out(environ, body)
        if kind == "repeated":
            answer = self._carried_out(environ, body)
        if kind == "lost":
            connection.shutdown(socket.SHUT_RDWR)
        if kind == "cut":
            return _half(answer, start, connection)
        return _sent(unwell if kind == "failed" else answer, start)

    def _carried_out(self, environ: dict[str, Any], body: bytes) -> Answer:
        with self._turn:
            return self.inner(environ, body)


def _sent(answer: Answer, start: Callable[..., Any]) -> list[bytes]:
    names = {name.lower() for name, _ in answer.headers}
    length = [] if "content-length" in names else [("Content-Length", str(len(answer.body)))]
    start(answer.status, [*answer.headers, *length])
    return [answer.body]


def _half(answer: Answer, start: Callable[..., Any], connection: socket.socket) -> Iterator[bytes]:
    whole = _sent(answer, start)[0]
    yield whole[: len(whole) // 2]
    connection.shutdown(socket.SHUT_RDWR)


def moto() -> Server:
    """S3 and Glue."""
    from moto.glue.models import glue_backends
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app

    app = DomainDispatcherApplication(create_backend_app)

    def is_stale(environ: dict[str, Any], body: bytes) -> bool:
        if environ.get("HTTP_X_AMZ_TARGET") != "AWSGlue.UpdateTable":
            return False
        asked, backends = json.loads(body), glue_backends["123456789012"]
        table = backends["us-east-1"].get_table(asked["DatabaseName"], asked["TableInput"]["Name"])
        return asked.get("VersionId") not in {None, table.as_dict()["VersionId"]}

    def answer(environ: dict[str, Any], body: bytes) -> Answer:
        if is_stale(environ, body):
            text = json.dumps({"__type": "ConcurrentModificationException", "message": "stale"})
            kind = ("Content-Type", "application/x-amz-json-1.1")
            return Answer("400 Bad Request", [kind], text.encode())
        found: list[Any] = []
        given = {**environ, "wsgi.input": io.BytesIO(body), "CONTENT_LENGTH": str(len(body))}
        parts = list(app(given, lambda *seen: found.extend(seen[:2])))
        return Answer(found[0], found[1], b"".join(parts))

    return answer


def passing_on(url: str) -> Server:
    """The server at ``url``."""
    host = urlsplit(url).netloc

    def answer(environ: dict[str, Any], body: bytes) -> Answer:
        query = f"?{environ['QUERY_STRING']}" if environ["QUERY_STRING"] else ""
        headers = {
            name.removeprefix("HTTP_").replace("_", "-"): it
            for name, it in environ.items()
            if name.startswith("HTTP_") or name == "CONTENT_TYPE"
        }
        headers = {name: it for name, it in headers.items() if name.lower() not in _HOP}
        upstream = http.client.HTTPConnection(host, timeout=60)
        path = environ.get("RAW_URI") or environ["PATH_INFO"] + query
        upstream.request(environ["REQUEST_METHOD"], path, body, headers)
        got = upstream.getresponse()
        content = got.read()
        upstream.close()
        kept = [(name, it) for name, it in got.getheaders() if name.lower() not in _HOP]
        return Answer(f"{got.status} {got.reason}", kept, content)

    return answer


def main() -> None:
    from werkzeug.serving import make_server

    inner = passing_on(sys.argv[1]) if sys.argv[1:] else moto()
    server = make_server("127.0.0.1", 0, Unreliable(inner), threaded=True)
    threading.Thread(target=server.serve_forever, name="server", daemon=True).start()
    sys.stdout.write(f"{server.port}\nready\n")
    sys.stdout.flush()
    sys.stdin.read()


if __name__ == "__main__":
    main()
