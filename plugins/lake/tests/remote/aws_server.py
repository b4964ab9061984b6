"""Moto's server of S3 and Glue, in a process of its own: ``aws_server.py``.

It says its port, and ``ready``; it ends with its standard input. Requests are answered one by one,
as moto's conditional puts are not atomic by themselves. ``PUT /lose?count=N&path=REGEX``
has it lose the answers to the next N requests that change a path like that: they are carried
out, and the connection is closed.
"""

from __future__ import annotations

import io
import re
import socket
import sys
import threading
from collections.abc import Callable, Iterable
from typing import Any
from urllib.parse import parse_qs

import attrs
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

_CHANGES = ("PUT", "POST")


@attrs.define
class Unreliable:
    """A WSGI application around another one; see the module."""

    inner: Any
    count: int = 0
    path: str = ""
    _lock: threading.Lock = attrs.field(factory=threading.Lock)

    def __call__(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        body = environ["wsgi.input"]
        if not environ.get("wsgi.input_terminated"):
            body = io.BytesIO(body.read(int(environ.get("CONTENT_LENGTH") or 0)))
        environ["wsgi.input"] = body
        with self._lock:
            if environ["PATH_INFO"] == "/lose":
                asked = parse_qs(environ["QUERY_STRING"])
                self.count, self.path = int(asked["count"][0]), asked["path"][0]
                start("200 OK", [("Content-Length", "0")])
                return [b""]
            answer = list(self.inner(environ, start))
            if self._is_lost(environ):
                environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
        return answer

    def _is_lost(self, environ: dict[str, Any]) -> bool:
        if self.count == 0 or environ["REQUEST_METHOD"] not in _CHANGES:
            return False
        if not re.search(self.path, environ["PATH_INFO"]):
            return False
        self.count -= 1
        return True


def main() -> None:
    app = Unreliable(DomainDispatcherApplication(create_backend_app))
    server = make_server("127.0.0.1", 0, app, threaded=True)
    threading.Thread(target=server.serve_forever, name="server", daemon=True).start()
    sys.stdout.write(f"{server.port}\nready\n")
    sys.stdout.flush()
    sys.stdin.read()


if __name__ == "__main__":
    main()
