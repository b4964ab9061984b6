"""What is put through a ring is what the same put without one is: the log, and the results."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from core.tests.ring.support import a_log, a_rig, an_encoder
from lakelog import Message, MessageColumns
from lakelog.results import BatchResult
from lakelog.sysflag import COMMIT, PREPARED, ROLLBACK

BORN_MS = 1_700_000_000_000
V6, V4 = "[2001:db8::7]:1234", "10.0.0.7:65535"
LIGHT = {"INNER_MULTI_DISPATCH": "%LMQ%a,%LMQ%b"}


def message(number: int = 0, **more: Any) -> Message:
    given: dict[str, Any] = {
        "topic": "orders",
        "body": b"body %d" % number,
        "queue_id": number % 3,
        "born_timestamp_ms": BORN_MS,
        "keys": f"k{number}",
        "tags": "t",
    }
    return Message(**(given | more))


def columns(count: int, **more: Any) -> MessageColumns:
    given: dict[str, Any] = {
        "born_timestamp_ms": BORN_MS,
        "keys": [f"k{at}" for at in range(count)],
    } | more
    return MessageColumns("orders", [b"b" * 100] * count, **given)


PUTS: dict[str, Sequence[Message]] = {
    "one": [message()],
    "one, empty": [Message("t", b"", queue_id=0, born_timestamp_ms=BORN_MS)],
    "one, not waited for": [message(wait_store_ok=False)],
    "one, long topic": [message(topic="x" * 200)],
    "one, both hosts v6": [message(born_host=V6, store_host=V6)],
    "one, born v6": [message(born_host=V6, store_host=V4)],
    "one, stored v6": [message(born_host=V4, store_host=V6)],
    "one, prepared": [message(sys_flag=PREPARED)],
    "one, in a light queue": [message(properties=LIGHT)],
    "few": [message(at) for at in range(7)],
    "few, of all kinds": [
        message(0, sys_flag=PREPARED), message(1, sys_flag=COMMIT), message(2, sys_flag=ROLLBACK),
        message(3, topic="other"), message(4, born_host=V6), message(5, body=b""),
        message(6, store_host=V6, wait_store_ok=False), message(7, topic="é" * 100),
    ],
    "few, some in light queues": [
        message(at, properties=LIGHT if at % 2 else None) for at in range(6)
    ],
    "many": [message(at) for at in range(100)],
    "many, one queue": [message(at, queue_id=1) for at in range(100)],
    "many, of all kinds": [
        message(at, topic=f"topic-{at % 3}" * (1 + 20 * (at % 2)), body=b"." * (at % 50),
                sys_flag=(0, PREPARED, COMMIT, ROLLBACK)[at % 4], flag=at - 50,
                properties={"a": "b" * at})
        for at in range(100)
    ],
    "many, v6": [message(at, born_host=V6, store_host=V6) for at in range(60)],
    "many, both families": [message(at, born_host=V6 if at % 2 else V4) for at in range(60)],
    "many, some in light queues": [
        message(at, properties=LIGHT if at == 50 else None) for at in range(60)
    ],
    "columns": columns(64),
    "columns, no queue given": columns(64, queue_ids=None, tags="t"),
    "columns, one queue": columns(64, queue_ids=2),
    "columns, prepared": columns(64, sys_flag=PREPARED),
    "columns, v6": columns(64, born_host=V6, store_host=V6),
    "columns, born v6": columns(64, born_host=V6),
    "columns, not waited for": columns(64, wait_store_ok=False),
    "columns, bytes as properties": columns(64, keys=None, properties=b"a\x01b"),
}  # fmt: skip  # a table, one case per line


@pytest.mark.parametrize("record_crc", [False, True], ids=["", "sealed"])
@pytest.mark.parametrize("lights", [None, 100], ids=["", "lights"])
@pytest.mark.parametrize("name", PUTS)
def test_the_same_as_without_a_ring(
    name: str, lights: int | None, record_crc: bool, tmp_path: Path
) -> None:
    before, messages = [message(9), message(1, properties=LIGHT)], PUTS[name]
    encoder, rig = (
        an_encoder(record_crc=record_crc, lights=lights),
        a_rig(record_crc=record_crc, lights=lights, verify_bodies=True),
    )
    with a_log(tmp_path / "a", encoder) as straight, a_log(tmp_path / "b", encoder) as ringed:
        for puts in (before, messages, messages):
            wanted = straight.put(encoder, puts)
            rig.offer(puts)
            joined = rig.append(ringed.log)
            assert joined.wait == any(each.wait_store_ok for each in puts)
            (answer,) = rig.answers()
            found = answer.results()
            assert list(found) == list(wanted)
            assert isinstance(found, BatchResult) == isinstance(wanted, BatchResult)
        assert ringed.content == straight.content
        assert ringed.queue_offsets.snapshot() == straight.queue_offsets.snapshot()
    assert len(rig.writer) == 0
