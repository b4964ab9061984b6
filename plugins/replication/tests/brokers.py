"""A broker that answers each request, by its code, with what a test says."""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from threading import Thread
from typing import Any

from plugins.replication.tests.test_remoting import response


@contextmanager
def brokering(answers: Mapping[int, bytes], asked: list[int] | None = None) -> Iterator[str]:
    """Its address; requests that are not in ``answers`` are refused.

    :param asked: the codes of the requests are added to it
    """
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    sock, _ = listener.accept()
                    with suppress(OSError, struct.error), sock, sock.makefile("rb") as stream:
                        length, header = struct.unpack(">II", stream.read(8))
                        code = json.loads(stream.read(length - 4)[:header])["code"]
                        if asked is not None:
                            asked.append(code)
                        refusal = response(code=1, remark="not known")
                        sock.sendall(answers.get(code, refusal))

        thread = Thread(target=serve, daemon=True)
        thread.start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(60)


def body(content: Any) -> bytes:
    """A response whose body is ``content`` as JSON."""
    return response(json.dumps(content).encode())
