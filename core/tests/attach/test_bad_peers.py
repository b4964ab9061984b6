"""Nothing that a peer says is trusted; whoever says nonsense is refused, and nobody else is."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from core.tests.attach.support import a_hello, a_peer, an_owned_hub, refusal, told, until
from lakelog import Message
from lakelog.attach import door
from lakelog.attach.packets import MOST_BYTES, Nonsense, receive, send
from lakelog.attach.producer import connect
from lakelog.errors import AttachRefused, PutRefused
from lakelog.ring.layout import AT_TAIL, HEADER_BYTES

BAD: list[tuple[Any, str]] = [
    (b"no json", "no JSON"),
    (b"\xff\xfe", "no JSON"),
    (b"[1]", "no JSON object"),
    (b"1", "no JSON object"),
    (b"[" * 10_000, "no JSON"),
    (b"{" + b" " * MOST_BYTES + b"}", "longer than"),
    (b"\n", "hello was expected"),
    ({}, "protocol None"),
    (a_hello(protocol=2), "run the same version in both"),
    (a_hello(protocol=True), "protocol True"),
    (a_hello(protocol="x" * 1000), "protocol xxxxxxxxxxxxxxxxxxxx;"),
    (a_hello(protocol=2, lakelog="9.9"), "lakelog 9.9 with protocol 2"),
    (a_hello(pid="1"), "'pid' is str"),
    (a_hello(pid=True), "'pid' is bool"),
    (a_hello(pid=-1), "pid"),
    (a_hello(producer="x"), "producer"),
    (a_hello(role="king"), "role"),
    (a_hello(more=1), "nobody knows 'more'"),
    ({"protocol": 1}, "is missing"),
]


@pytest.mark.parametrize(("said", "why"), BAD)
def test_a_bad_hello_is_refused_with_the_reason(tmp_path: Path, said: Any, why: str) -> None:
    with an_owned_hub(tmp_path):
        assert why in refusal(tmp_path, said)
        producer = connect(tmp_path)
        assert producer.put(Message("t", b"x")).queue_offset == 0
        producer.close()


def test_who_goes_without_a_word_is_forgotten(tmp_path: Path) -> None:
    with an_owned_hub(tmp_path) as (_, hub):
        assert hub._door is not None
        for _ in range(3):
            a_peer(tmp_path).close()
        guests = hub._door._guests
        until(lambda: not guests)


def test_who_says_nothing_is_put_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(door, "HELLO_SECONDS", 0.2)
    with an_owned_hub(tmp_path), a_peer(tmp_path) as peer:
        begun = time.monotonic()
        assert "nothing was said" in str(told(peer))
        assert told(peer) is None
        assert 0.1 < time.monotonic() - begun < 5


def test_there_is_a_bound_to_how_many_attach(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(door, "MOST_CONNECTIONS", 3)
    with an_owned_hub(tmp_path), ExitStack() as stack:
        producers = [connect(tmp_path) for _ in range(2)]
        silent = stack.enter_context(a_peer(tmp_path))
        send(silent, {})  # it is let in before the next one comes
        assert "refused" in str(told(silent))
        third = connect(tmp_path)
        with pytest.raises(AttachRefused, match="3 processes are attached already"):
            connect(tmp_path)
        third.close()
        until(lambda: _can_attach(tmp_path))
        for producer in producers:
            assert producer.put(Message("t", b"x")).size > 0
            producer.close()


def _can_attach(path: Path) -> bool:
    try:
        connect(path).close()
    except AttachRefused:
        return False
    return True


@pytest.mark.parametrize(
    "asked",
    [
        b"nonsense",
        json.dumps({"ask": "all", "id": 1}).encode(),
        json.dumps({"ask": "flush", "id": "1"}).encode(),
        json.dumps({"ask": "flush", "id": 1, "more": 1}).encode(),
    ],
)
def test_nonsense_behind_the_hello_puts_out_that_producer_alone(
    tmp_path: Path, asked: bytes
) -> None:
    with an_owned_hub(tmp_path):
        good, bad = connect(tmp_path), connect(tmp_path)
        assert bad.put(Message("t", b"x")).size > 0
        link = bad._line.link
        link.connection.send(asked)
        until(lambda: _is_refused(bad) or bad._line.link is not link)  # heard between two puts
        assert bad.put(Message("t", b"x")).size > 0, "it has attached anew"
        assert good.put(Message("t", b"y")).queue_offset is not None
        good.close()
        bad.close()


def _is_refused(producer: Any) -> bool:
    try:
        producer.put(Message("t", b"x"))
    except PutRefused:
        return True
    return False


def a_wrong_tail(writer: Any) -> None:
    writer._words[AT_TAIL] = 1 << 60


def a_wrong_entry(writer: Any) -> None:
    at = HEADER_BYTES + writer._tail % writer._capacity
    writer._memory[at : at + 128] = b"\xff" * 128
    writer._words[AT_TAIL] = writer._tail + 128


@pytest.mark.parametrize("spoil", [a_wrong_tail, a_wrong_entry])
def test_nonsense_in_a_ring_puts_out_that_producer_alone(
    tmp_path: Path, spoil: Callable[[Any], None]
) -> None:
    with an_owned_hub(tmp_path) as (store, hub):
        good, bad = connect(tmp_path), connect(tmp_path)
        assert bad.put(Message("t", b"x")).size > 0
        assert len(hub.clients()) == 2
        before = store.max_offset
        spoil(bad._line.link.writer)
        os.eventfd_write(bad._line.link.bell.fileno(), 1)
        until(lambda: len(hub.clients()) == 1)
        with pytest.raises(PutRefused, match="has put this process out"):
            bad.put(Message("t", b"x"))
        assert store.max_offset == before
        assert good.put(Message("t", b"y")).physical_offset == before
        good.close()
        bad.close()


def test_descriptors_that_nobody_wants_are_closed(tmp_path: Path) -> None:
    one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with one, other:
        before = len(os.listdir("/proc/self/fd"))
        send(one, {"a": 1}, [one.fileno()] * 4)
        with pytest.raises(Nonsense, match="brings descriptors"):
            receive(other)
        assert len(os.listdir("/proc/self/fd")) <= before  # others may have gone meanwhile
        one.sendmsg([b"no json"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, b"\x00\x00\x00\x00")])
        with pytest.raises(Nonsense):
            receive(other, descriptors=True)
        assert len(os.listdir("/proc/self/fd")) <= before  # others may have gone meanwhile


def test_a_bell_that_rings_for_ever_does_nothing(tmp_path: Path) -> None:
    with an_owned_hub(tmp_path):
        good, bad = connect(tmp_path), connect(tmp_path)
        bell = bad._line.link.bell.fileno()
        os.eventfd_write(bell, 1)
        os.eventfd_read(bell)
        os.eventfd_write(bell, (1 << 64) - 2)
        os.set_blocking(bell, True)  # the owner's end is blocking now, too
        for number in range(50):
            assert good.put(Message("t", b"x", queue_id=0)).queue_offset == number
        bad.close()
        good.close()


def test_many_producers_look_at_once(tmp_path: Path) -> None:
    """Each end of each ring looks by itself."""
    with an_owned_hub(tmp_path) as (store, _):
        producers = [connect(tmp_path) for _ in range(4)]
        with ThreadPoolExecutor(4) as pool:
            for done in [pool.submit(_put_many, each) for each in producers]:
                done.result(30)
        assert len(list(store.scan())) == 4 * 200


def _put_many(producer: Any) -> None:
    for _ in range(200):
        producer.put(Message("t", b"x"))
    producer.close()
