"""Programming errors are TypeError or ValueError with the caller's names, and lakelog errors."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

import lakelog
from lakelog import LakelogError, Message, PutRefused, Store
from lakelog.errors import CorruptRecord, OffsetOutOfRange

pytestmark = pytest.mark.both_ways

NO_MESSAGES: Final[list[Any]] = [b"x", None, "x", 3, 1.5, object(), [Message("t", b"x")]]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with lakelog.open(tmp_path / "s", segment_size_bytes="1MiB") as store:
        yield store
        assert store.put(Message("t", b"later")).status is lakelog.PutStatus.PUT_OK


PUTS: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "put": lambda store, wrong: store.put(wrong),
    "put_async": lambda store, wrong: store.put_async(wrong).result(10),
    "put_batch": lambda store, wrong: store.put_batch([wrong]),
    "put_batch of two": lambda store, wrong: store.put_batch([Message("t", b""), wrong]),
    "put_batch_async": lambda store, wrong: store.put_batch_async([wrong]).result(10),
}


@pytest.mark.parametrize("put", PUTS)
def test_what_is_no_message_is_a_type_error(store: Store, put: str) -> None:
    for wrong in NO_MESSAGES:
        with pytest.raises(TypeError, match=r"message is .*; give a lakelog\.Message") as caught:
            PUTS[put](store, wrong)
        assert isinstance(caught.value, LakelogError)
        assert not isinstance(caught.value, PutRefused)
    assert list(store.scan()) == []


CALLS: Final[dict[str, tuple[str, Callable[[Any, Path], Any]]]] = {
    "put": (r"^Store\.put\(\) takes", lambda store, _: store.put("t", b"x")),
    "open": (r"^open\(\) takes", lambda _, path: lakelog.open(path, "w")),  # type: ignore[call-arg,arg-type]  # the wrong call is the subject of the test
    "get": ("queue_id is -1", lambda store, _: store.get("t", -1, 0)),
    "get of no queue": ("queue_id is '0'", lambda store, _: store.get("t", "0", 0)),
    "get of no topic": ("topic is b't'", lambda store, _: store.get(b"t", 0, 0)),
    "scan": ("start is 'x'", lambda store, _: list(store.scan("x"))),
    "look_up": ("where is 1.5", lambda store, _: store.look_up(1.5)),
    "wait_dispatched": ("offset is 'x'", lambda store, _: store.wait_dispatched("x")),
    "producer": ("queue is 'x'", lambda store, _: store.producer("t", queue="x")),
}


@pytest.mark.parametrize("call", CALLS)
def test_an_error_has_the_names_of_the_caller(store: Store, tmp_path: Path, call: str) -> None:
    words, made = CALLS[call]
    with pytest.raises((TypeError, ValueError), match=words) as caught:
        made(store, tmp_path / "other")
    for inner in ("Appender", "open_store", "RefusingWriter", "LogStore"):
        assert inner not in str(caught.value)


def test_an_offset_inside_of_a_record_is_no_damage(store: Store) -> None:
    """But a record that should begin there, and whose magic number is wrong, is damaged."""
    results = [store.put(Message("t", b"x" * 50)) for _ in range(3)]
    for inside in (3, results[1].physical_offset + 1, results[2].end_offset - 9):
        with pytest.raises(OffsetOutOfRange, match=f"no record starts at offset {inside}"):
            store.look_up(inside)
    damaged = results[1].physical_offset
    with (store.path / "commitlog" / f"{0:020}").open("r+b") as file:
        file.seek(damaged + 4)
        file.write(b"\xff\xff\xff\xff")
    with pytest.raises(CorruptRecord, match="no record starts here"):
        store.look_up(damaged)


def test_errors_of_arguments_and_open_itself_can_be_pickled(store: Store) -> None:
    with pytest.raises(LakelogError) as caught:
        store.get("t", -1, 0)
    again = pickle.loads(pickle.dumps(caught.value))
    assert (type(again), str(again)) == (type(caught.value), str(caught.value))
    assert pickle.loads(pickle.dumps(lakelog.open)) is lakelog.open
