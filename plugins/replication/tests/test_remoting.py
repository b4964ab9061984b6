"""Requests to a broker that answers what a test says."""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread

import pytest

from lakelog_replication.address import Address
from lakelog_replication.remoting import (
    BrokerRefused,
    broker_config,
    call,
    most_bytes,
    runtime_info,
)
from lakelog_replication.replica.groups import consumer_offsets


@contextmanager
def answering(answer: bytes, asked: list[dict[str, object]] | None = None) -> Iterator[Address]:
    """A broker that sends ``answer`` to one request, and closes the connection."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            sock, _ = listener.accept()
            with sock, sock.makefile("rb") as stream:
                length, header = struct.unpack(">II", stream.read(8))
                rest = stream.read(length - 4)
                if asked is not None:
                    asked.append(json.loads(rest[:header]))
                sock.sendall(answer)

        thread = Thread(target=serve, daemon=True)
        thread.start()
        yield Address("127.0.0.1", listener.getsockname()[1])
        thread.join(60)


def response(body: bytes = b"", *, code: int = 0, remark: str = "") -> bytes:
    header = json.dumps({"code": code, "remark": remark, "extFields": {"a": 1}}).encode()
    return struct.pack(">II", 4 + len(header) + len(body), len(header)) + header + body


def test_a_request_and_its_response() -> None:
    asked: list[dict[str, object]] = []
    with answering(response(b"body"), asked) as broker:
        found = call(broker, 43, {"topic": "t"}, b"sent")
    assert (found.fields, found.body) == ({"a": "1"}, b"body")
    assert (asked[0]["code"], asked[0]["extFields"]) == (43, {"topic": "t"})


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"", "does not answer"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "another protocol"),
        (response()[:-3], "ended inside"),
        (struct.pack(">II", 1 << 31, 4), "another protocol"),
        (struct.pack(">iI", -1, 4), "another protocol"),
        (struct.pack(">II", 8, 100) + b"abcd", "another protocol"),
        (struct.pack(">II", 8, 1 << 24 | 4) + b"abcd", "another protocol"),
        (struct.pack(">II", 8, 4) + b"abcd", "damaged header"),
        (struct.pack(">II", 6, 2) + b"[]", "damaged header"),
        (response(code=1, remark="no permission"), "refuses request 43: 1 no permission"),
    ],
)
def test_what_is_no_response_is_one_error(answer: bytes, said: str) -> None:
    with answering(answer) as broker, pytest.raises(BrokerRefused, match=said):
        call(broker, 43, timeout_s=30)


def test_nobody_there_is_the_same_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(BrokerRefused, match=f"127.0.0.1:{port} does not answer request 28"):
        runtime_info(Address("127.0.0.1", port))


@pytest.mark.parametrize(
    ("text", "most"),
    [
        ("0 B", 0),
        ("1023 B", 1023),
        ("1.0 KiB", 1076),
        ("54.5 KiB", 55860),
        ("54,5 KiB", 55860),
        ("3.2 MiB", 3407872),
        ("12", None),
        ("", None),
        ("1.0 XiB", None),
    ],
)
def test_a_rounded_amount_is_taken_for_the_largest_that_it_can_mean(
    text: str, most: int | None
) -> None:
    assert most_bytes(text) == most


def runtime(**table: object) -> bytes:
    known = {"bootTimestamp": 5, "commitLogMinOffset": 100, "commitLogMaxOffset": 9000}
    return response(json.dumps({"table": {**known, **table}}).encode())


def test_what_is_not_certainly_synced_does_not_count() -> None:
    with answering(runtime(remainHowManyDataToFlush="2.0 KiB")) as broker:
        found = runtime_info(broker)
    assert (found.boot_ms, found.minimum, found.end) == (5, 100, 9000)
    assert found.flushed == 9000 - 2100
    with answering(runtime(remainHowManyDataToFlush="some")) as broker:
        assert runtime_info(broker).flushed == 0
    with answering(runtime(commitLogMaxOffset="x")) as broker, pytest.raises(BrokerRefused):
        runtime_info(broker)


def test_settings_and_consumer_offsets() -> None:
    with answering(response(b"#no\nmappedFileSizeCommitLog=1048576\na = b\n\n")) as broker:
        assert broker_config(broker) == {"mappedFileSizeCommitLog": "1048576", "a": "b"}
    with answering(response(b'{"offsetTable":{"t@g":{0:5,"1":7}}}')) as broker:
        assert consumer_offsets(broker) == {"t@g": {0: 5, 1: 7}}
    with answering(response(b"<html>")) as broker, pytest.raises(BrokerRefused):
        consumer_offsets(broker)
