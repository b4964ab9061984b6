"""A broker that answers each request, by its code, with what a test says."""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from threading import Thread
from typing import Any

from lakelog_replication.settings import Address

Asked = list[dict[str, Any]]
"""The headers of requests."""


def response(body: bytes = b"", *, code: int = 0, remark: str = "") -> bytes:
    header = json.dumps({"code": code, "remark": remark, "extFields": {"a": 1}}).encode()
    return struct.pack(">II", 4 + len(header) + len(body), len(header)) + header + body


def body(content: Any) -> bytes:
    """A response whose body is ``content`` as JSON."""
    return response(json.dumps(content).encode())


def runtime(**table: object) -> bytes:
    """The state of a broker, with a log from 100 to 9000 unless ``table`` says otherwise."""
    known = {"bootTimestamp": 5, "commitLogMinOffset": 100, "commitLogMaxOffset": 9000}
    return body({"table": {**known, **table}})


REFUSAL = response(code=1, remark="not known")


@contextmanager
def brokering(
    answers: Mapping[int, bytes], asked: Asked | None = None, others: bytes = REFUSAL
) -> Iterator[str]:
    """Its address; requests that are not in ``answers`` get ``others``.

    :param asked: requests are added to it
    """
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    sock, _ = listener.accept()
                    with suppress(OSError, struct.error), sock, sock.makefile("rb") as stream:
                        length, header = struct.unpack(">II", stream.read(8))
                        request = json.loads(stream.read(length - 4)[:header])
                        if asked is not None:
                            asked.append(request)
                        sock.sendall(answers.get(request["code"], others))

        thread = Thread(target=serve, daemon=True)
        thread.start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(60)


@contextmanager
def answering(answer: bytes, asked: Asked | None = None) -> Iterator[Address]:
    """A broker with one answer to all requests."""
    with brokering({}, asked, answer) as broker:
        yield Address.parse(broker)
