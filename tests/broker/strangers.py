"""Many connections that do harm to a broker, made anew when the broker ends them.

``python -m tests.broker.strangers REMOTING_PORT GRPC_PORT COUNT``; runs until stdin ends. Prints a
line once all have tried to connect.
"""

from __future__ import annotations

import itertools
import json
import resource
import selectors
import socket
import sys
from collections.abc import Iterator
from typing import Final

HELLO: Final = bytes.fromhex("1603010200010001fc0303")
"""The beginning of a TLS handshake."""
PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0"
KINDS: Final = ("silent", "half", "tls", "flood", "late", "grpc", "grpc-half", "grpc-tls", "h2")
_CHUNK: Final = 1 << 16


def route_request() -> bytes:
    """A request that a broker answers with more bytes than it has."""
    head = {"code": 105, "opaque": 1, "flag": 0, "extFields": {"topic": "strangers"}}
    text = json.dumps({**head, "version": 453, "serializeTypeCurrentRPC": "JSON"}).encode()
    return (4 + len(text)).to_bytes(4, "big") + len(text).to_bytes(4, "big") + text


REQUEST: Final = route_request()
FLOOD: Final = REQUEST * (_CHUNK // len(REQUEST))
SENT: Final = {
    "half": REQUEST[:-1],
    "late": REQUEST,
    "tls": HELLO,
    "flood": FLOOD,
    "grpc-half": PREFACE[:10],
    "grpc-tls": HELLO,
    "h2": PREFACE,
}


class Stranger:
    """One connection, which never reads."""

    def __init__(self, kind: str, port: int) -> None:
        self.kind = kind
        self.socket = socket.socket()
        self.socket.setblocking(False)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self.socket.connect_ex(("127.0.0.1", port))
        self.left = SENT.get(kind, b"")

    def events(self) -> int:
        """What to wait for: writes while there is something to send, else the end."""
        return selectors.EVENT_WRITE if self.left else selectors.EVENT_READ

    def act(self) -> bool:
        """Send; whether the connection is still open."""
        try:
            if self.left:
                self.left = self.left[self.socket.send(self.left) :]
                if not self.left and self.kind == "flood":
                    self.left = FLOOD
                return True
            return self.kind in {"flood", "late", "h2"} or bool(self.socket.recv(1))
        except BlockingIOError:
            return True
        except OSError:
            return False


def main(remoting: int, grpc: int, count: int) -> None:
    """Connect them all, and again those that the broker ends, until stdin ends."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (count + 100, resource.getrlimit(7)[1]))
    selector = selectors.DefaultSelector()
    selector.register(sys.stdin, selectors.EVENT_READ, None)
    kinds: Iterator[str] = itertools.cycle(KINDS)
    made, is_due = 0, True
    while True:
        few = 50  # between two looks at those that are open
        while len(selector.get_map()) <= count and few:
            kind, few = next(kinds), few - 1
            one = Stranger(kind, grpc if kind.startswith(("grpc", "h2")) else remoting)
            selector.register(one.socket, one.events(), one)
            made += 1
        if made >= count and is_due:
            is_due = False
            sys.stdout.write("connected\n")
            sys.stdout.flush()
        for key, _ in selector.select(0.05):
            if key.data is None:
                return
            if key.data.act():
                if key.events != key.data.events():
                    selector.modify(key.data.socket, key.data.events(), key.data)
            else:
                selector.unregister(key.data.socket)
                key.data.socket.close()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
