"""What no record can hold, and what is not there, is refused with its reason and status."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from core.tests.store.support import (
    a_store,
    open_small,
    read_small,
    tree,
)
from lakelog import Message, PutRefused, PutStatus
from lakelog.errors import (
    LakelogError,
    OffsetOutOfRange,
    StoreClosed,
    StoreError,
)

# --- messages ----------------------------------------------------------------------------------

BAD_MESSAGES = {
    "properties": (Message("t", b"", properties={"a": "x" * 40_000}), "PROPERTIES_SIZE_EXCEEDED"),
    "body": (Message("t", bytes(9000)), "MESSAGE_SIZE_EXCEEDED"),
    "NUL": (Message("a\0b", b""), "MESSAGE_ILLEGAL"),
    "dots": (Message("../../etc", b""), "MESSAGE_ILLEGAL"),
    "parent": (Message("..", b""), "MESSAGE_ILLEGAL"),
    "slash": (Message("a/b", b""), "MESSAGE_ILLEGAL"),
    "no topic": (Message("", b""), "MESSAGE_ILLEGAL"),
    "long topic": (Message("t" * 256, b""), "MESSAGE_ILLEGAL"),
    "queue": (Message("t", b"", queue_id=-1), "MESSAGE_ILLEGAL"),
    "host": (Message("t", b"", born_host="here:1"), "MESSAGE_ILLEGAL"),
    "separator": (Message("t", b"", tags="a\x01b"), "MESSAGE_ILLEGAL"),
    "surrogate": (Message("\udcff", b""), "MESSAGE_ILLEGAL"),
}


@pytest.mark.parametrize("name", BAD_MESSAGES)
def test_a_message_that_no_record_can_hold(name: str, tmp_path: Path) -> None:
    message, status = BAD_MESSAGES[name]
    good = Message("t", b"good", queue_id=0)
    with open_small(tmp_path, max_message_size_bytes=8192, segment_size_bytes=65536) as store:
        store.put(good)
        log = tree(tmp_path / "commitlog")
        for put in (
            lambda: store.put(message),
            lambda: store.put_batch([good, message, good]),
            lambda: store.put_async(message).result(),
        ):
            with pytest.raises(PutRefused) as caught:
                put()
            assert caught.value.status is PutStatus[status]
            assert not caught.value.status.in_log
        assert tree(tmp_path / "commitlog") == log
        assert store.put(good).queue_offset == 1


NO_MESSAGES: dict[str, Any] = {
    "body": Message("t", "text"),  # type: ignore[arg-type]  # a wrong type is the test
    "topic": Message(5, b""),  # type: ignore[arg-type]  # a wrong type is the test
    "None": None,
}


@pytest.mark.parametrize("name", NO_MESSAGES)
def test_what_is_no_message(name: str, tmp_path: Path) -> None:
    """A mistake of types is an error at once, and hangs nobody who waits for a future."""
    thing = NO_MESSAGES[name]
    with open_small(tmp_path) as store:
        log = tree(tmp_path / "commitlog")
        for put in (
            lambda: store.put(thing),
            lambda: store.put_batch([thing]),
            lambda: store.put_async(thing).result(timeout=10),
        ):
            with pytest.raises((TypeError, AttributeError, ValueError, PutRefused)):
                put()
        assert tree(tmp_path / "commitlog") == log
        assert store.put_async(Message("t", b"next")).result(timeout=10).physical_offset == 0


def test_a_store_opened_for_reading_refuses_puts(tmp_path: Path) -> None:
    a_store(tmp_path, 3)
    before = tree(tmp_path)
    with read_small(tmp_path) as store:
        assert store.read_only
        for put in (store.put, store.put_async, lambda each: store.put_batch([each])):
            with pytest.raises(PutRefused, match="mode='write'") as caught:
                put(Message("t", b""))
            assert caught.value.status is PutStatus.SERVICE_NOT_AVAILABLE
    assert tree(tmp_path) == before


def test_a_closed_store_refuses_everything(tmp_path: Path) -> None:
    store = open_small(tmp_path)
    store.put(Message("t", b""))
    store.close()
    store.close()
    with pytest.raises(StoreClosed):
        store.look_up(0)
    with pytest.raises(StoreClosed):
        store.scan()
    for put in (store.put, store.put_async, lambda each: store.put_batch([each])):
        with pytest.raises(PutRefused) as caught:
            put(Message("t", b""))
        assert caught.value.status is PutStatus.SERVICE_NOT_AVAILABLE


@pytest.mark.parametrize("where", [-1, 1, 10**15, 2**70, "00" * 16, "FF" * 16])
@pytest.mark.parametrize("mode", ["owner", "read"])
def test_looking_up_what_is_not_there(where: int | str, mode: str, tmp_path: Path) -> None:
    a_store(tmp_path, 3)
    with open_small(tmp_path) if mode == "owner" else read_small(tmp_path) as store:
        if where == "00" * 16:
            assert store.look_up(where).physical_offset == 0
            return
        with pytest.raises(LakelogError) as caught:
            store.look_up(where)
        assert where == 1 or isinstance(caught.value, OffsetOutOfRange)
        with pytest.raises(ValueError, match="message id"):
            store.look_up("no id")


def test_errors_of_the_system_are_store_errors(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreError):
        open_small(tmp_path / "file" / "store")
