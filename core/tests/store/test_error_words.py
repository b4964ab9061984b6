"""Errors name the file or the argument, what was tried or given, and what to do; logs too."""

from __future__ import annotations

import asyncio
import errno
import logging
import math
import os
import pickle
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

import lakelog
from core.tests.store.support import SEGMENT, a_store, open_small
from lakelog import Message, MessageColumns, PutRefused, Store, aio, errors
from lakelog.errors import LakelogError, StoreError, StoreFailed
from lakelog.files.filesystem import RealFileSystem, unreadable
from lakelog.log.segments import Segments
from lakelog.log.store_directory import readable
from lakelog.results import PutStatus
from tests.support.waiting import until

FILES = RealFileSystem()


def directory_in_place_of(file: Path) -> None:
    file.unlink(missing_ok=True)
    file.mkdir()


@pytest.mark.parametrize("name", ["abort", "checkpoint", "lakelog/shared", "lakelog/store.json"])
def test_a_directory_where_a_file_belongs(name: str, tmp_path: Path) -> None:
    a_store(tmp_path, 3)
    directory_in_place_of(tmp_path / name)
    words = (f"{tmp_path / name}: cannot open: Is a directory", "move the directory away")
    for call in (open_small, partial(lakelog.recover, plugins=[], segment_size_bytes=SEGMENT)):
        with pytest.raises(StoreError) as caught:
            call(tmp_path)
        assert all(word in str(caught.value) for word in words)
    (tmp_path / name).rmdir()
    with open_small(tmp_path) as store:
        assert len(list(store.scan())) == 3


def test_a_failed_sync_names_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_fd: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    store = open_small(tmp_path, flush="inline")
    with monkeypatch.context() as failing:
        failing.setattr(os, "fdatasync", fails)
        with pytest.raises(StoreFailed, match=r"cannot sync: Input/output error: .*0{20}"):
            store.put(Message("t", b"x"))
    with pytest.raises(StoreFailed, match=r"0{20}"):
        store.close()


def test_the_advice_is_of_the_kind_of_error() -> None:
    for number, words in (
        (errno.ENOSPC, "make room"),
        (errno.EDQUOT, "quota"),
        (errno.EACCES, "check permissions"),
        (errno.EROFS, "check permissions"),
        (errno.EISDIR, "move the directory away"),
        (errno.EIO, "check the disk"),
    ):
        said = str(readable(OSError(number, os.strerror(number), "x/file"), Path("x")))
        assert said.startswith(f"x/file: {os.strerror(number)}; ")
        assert words in said


def test_an_error_that_says_what_to_do_gets_no_other_advice() -> None:
    error = OSError(errno.EINVAL, "no O_DIRECT here; choose another writer", "x/file")
    assert str(readable(error, Path("x"))) == "x/file: no O_DIRECT here; choose another writer"


def test_no_room_for_a_segment_is_told_once_and_so_is_its_end(
    caplog: pytest.LogCaptureFixture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO, "lakelog")
    body = b"x" * 10_000

    def of_puts() -> list[str]:
        told = [each.getMessage().partition(": ")[2] for each in caplog.records]
        return [each for each in told if each.startswith("puts")]

    with open_small(tmp_path) as store:
        store.put(Message("t", body))
        with monkeypatch.context() as patch:
            patch.setattr(Segments, "prepare_roll", _full)
            for _ in range(3):
                with pytest.raises(PutRefused, match="No space left"):
                    store.put(Message("t", body))
        until(lambda: len(of_puts()) == 1)
        store.put(Message("t", body))
        store.put(Message("t", body))
    until(lambda: len(of_puts()) == 2)
    refused, again = of_puts()
    assert refused.startswith("puts are refused: no room for the next segment of 16384 bytes")
    assert again == "puts are accepted again: there is room for the log"


def test_a_handler_that_puts_into_the_store_holds_up_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    errors = list[BaseException]()

    class Putting(logging.Handler):
        def emit(self, _record: logging.LogRecord) -> None:
            try:
                opened.put(Message("log", b"x" * 10_000))
            except PutRefused as error:
                errors.append(error)

    handler, body = Putting(), b"x" * 10_000
    with open_small(tmp_path) as opened:
        opened.put(Message("t", body))
        logging.getLogger("lakelog").addHandler(handler)
        try:
            monkeypatch.setattr(Segments, "prepare_roll", _full)
            with pytest.raises(PutRefused):
                opened.put(Message("t", body))
            until(lambda: len(errors) == 1)
        finally:
            logging.getLogger("lakelog").removeHandler(handler)


def _full(*_: object) -> Any:
    raise OSError(errno.ENOSPC, "No space left on device")


def refused() -> errors.PutRefused:
    error = errors.PutRefused(PutStatus.MESSAGE_ILLEGAL, "too long")
    error.accepted = ()
    return error


SAMPLES = [
    errors.SettingsError("it is no number", key="a.b", source="lakelog.toml"),
    errors.PluginError("it has no hook", plugin="p", distribution="d 1"),
    errors.StoreError("not there", path=Path("/a")),
    errors.StoreLocked("owned", path=Path("/a"), owner_pid=7),
    errors.BadSegment("short", path="/a", offset=3, expected=4, found=5),
    errors.DispatchStopped("it failed", dispatcher="d", offset=9, path="/a"),
    errors.CorruptRecord("magic", offset=1, expected=2, found=3, path="/a"),
    errors.OffsetOutOfRange("behind the end", offset=5),
    errors.IllegalMessage("no topic", status=PutStatus.MESSAGE_ILLEGAL),
    errors.ReadFailed("cannot read: no luck", path="/a", error=OSError(5, "cannot read: no luck")),
    errors.ThreadNotStarted("lakelog-reput", "can't start new thread"),
    refused(),
]


def test_words_and_parts_are_the_same_in_other_processes() -> None:
    for error in SAMPLES:
        again = pickle.loads(pickle.dumps(error))
        assert type(again) is type(error)
        assert (str(again), vars(again)) == (str(error), vars(error))


def test_a_read_that_fails_is_an_error_of_the_operating_system_too() -> None:
    error: OSError = unreadable(Path("/a"), OSError(5, "Input/output error", "/a"))
    assert (error.errno, error.strerror, error.filename) == (5, "Input/output error", "/a")
    assert str(error).startswith("/a: it cannot be read (Input/output error); ")


def _kinds(kind: type[LakelogError] = LakelogError) -> Iterator[type[LakelogError]]:
    yield kind
    for each in kind.__subclasses__():
        yield from _kinds(each)


def test_every_kind_can_go_to_other_processes() -> None:
    for kind in set(_kinds()):
        again = pickle.loads(pickle.dumps(kind.__new__(kind, "what is wrong")))
        assert type(again) is kind
        assert str(again) == "what is wrong"


Call = Callable[[Any], Any]  # types are what is wrong here
open_any: Any = lakelog.open
SECONDS: Final = 1_700_000_000
NOW: Final = datetime.now(UTC)

MESSAGES: Final[dict[str, tuple[dict[str, Any], str]]] = {
    "keys of two words": ({"keys": "order 42"}, r"keys is 'order 42'.*give a list.*'order', '42'"),
    "a key of two words": ({"keys": ["a", "order 42"]}, "a key holds no space"),
    "keys that are bytes": ({"keys": b"k"}, r"keys is b'k' \(bytes\); give a str for one key"),
    "tags that are a number": ({"tags": 3}, r"tags is 3 \(int\); give a str"),
    "two tags": ({"tags": "A || B"}, r"tags is 'A \|\| B', which no filter would match"),
    "tags that RocketMQ trims": ({"tags": "\x07"}, "drops spaces and control characters"),
    "tags twice": (
        {"tags": "A", "properties": {"TAGS": "B"}},
        "tags is 'A', and properties has TAGS 'B'; give one of them",
    ),
    "a property that is a number": ({"properties": {"n": 1}}, r"property 'n' is 1 \(int\)"),
    "properties that are text": ({"properties": "a=b"}, r"properties is 'a=b' \(str\); give a m"),
    "a body that is text": ({"body": "text"}, r"body is 'text' \(str\); give bytes"),
    "a topic of bytes": ({"topic": b"t"}, r"topic is b't' \(bytes\); give a str"),
    "an empty topic": ({"topic": ""}, "topic '' takes 0 bytes"),
    "a topic with a NUL": ({"topic": "a\0b"}, "cannot name a directory"),
    "a topic outside": ({"topic": "../../etc"}, "cannot name a directory"),
    "a long topic": ({"topic": "t" * 256}, "takes 256 bytes, not 1 to 255"),
    "a topic of a surrogate": ({"topic": "\udcff"}, "is not a str that UTF-8 can encode"),
    "a separator": ({"tags": "a\x01b"}, "tags holds the character 0x01"),
    "tags of a surrogate": ({"tags": "\ud800"}, "tags is .* is not a str that UTF-8 can encode"),
    "a key of a surrogate": ({"keys": "\ud800"}, "keys is .* is not a str that UTF-8 can encode"),
    "a long body": ({"body": bytes(5 << 20)}, "the limit is"),
    "long properties": ({"properties": {"a": "x" * 40_000}}, "the limit is"),
    "a queue of a float": ({"queue_id": 1.5}, r"queue_id is 1.5 \(float\); give a whole number"),
    "a queue too large": ({"queue_id": 1 << 31}, "queue_id is 2147483648; give a number from 0 to"),
    "a flag too large": ({"flag": 1 << 31}, "flag is 2147483648; give a number from -2147483648"),
    "a born time of a float": ({"born_timestamp_ms": 1.5}, r"born_timestamp_ms is 1.5 \(float\)"),
    "a host without a port": ({"born_host": "here"}, "born_host.*'here'"),
}
STATUSES: Final = {
    "a long body": "MESSAGE_SIZE_EXCEEDED",
    "long properties": "PROPERTIES_SIZE_EXCEEDED",
}
"""Of all others the message is illegal."""
WRONG_TYPES: Final = {
    "keys that are bytes",
    "tags that are a number",
    "a property that is a number",
    "properties that are text",
    "a body that is text",
    "a topic of bytes",
    "a queue of a float",
    "a born time of a float",
}
"""Mistakes of the program, which no put is refused for: each is a ``TypeError``."""
PUTS: Final[dict[str, Callable[[Store, Message], Any]]] = {
    "put": lambda store, message: store.put(message),
    "put_batch of 2": lambda store, message: store.put_batch([Message("t", b""), message]),
    "put_batch of 100": lambda store, message: store.put_batch([message] * 100),
    "put_async": lambda store, message: store.put_async(message).result(10),
    "columns": lambda store, message: store.put_batch(
        MessageColumns(
            message.topic,
            [message.body] * 50,
            message.queue_id,
            message.tags,
            message.keys,
            message.properties,
            message.flag,
            born_timestamp_ms=message.born_timestamp_ms,
            born_host=message.born_host,
        )
    ),
}
NO_COLUMNS: Final = ("a key of two words", "a queue of a float", "keys that are bytes")
"""One value per body would be meant."""

CALLS: Final[dict[str, tuple[Call, str]]] = {
    # --- by key and time
    "query for a number": (lambda s: s.query("t", 5), r"key is 5 \(int\); give a str"),
    "query for nothing": (lambda s: s.query("t", ""), "key is empty"),
    "query for two keys": (lambda s: s.query("t", "order 42"), "key 'order 42' contains a space"),
    "query since seconds": (
        lambda s: s.query("t", "k", since_ms=SECONDS),
        f"since_ms is {SECONDS}, which looks like seconds; give milliseconds",
    ),
    "query backwards": (lambda s: s.query("t", "k", since_ms=2, until_ms=1), "later than until_ms"),
    "query for 0 messages": (lambda s: s.query("t", "k", max_messages=0), "max_messages is 0"),
    "query_offsets for 0": (lambda s: s.query_offsets("t", "k", max_count=0), "max_count is 0"),
    "a time in seconds": (
        lambda s: s.offset_by_time("t", 0, SECONDS),
        f"timestamp_ms is {SECONDS}, which looks like seconds; give milliseconds since 1970",
    ),
    "a time in nanoseconds": (lambda s: s.offset_by_time("t", 0, time.time_ns()), "nanoseconds"),
    "a datetime": (lambda s: s.offset_by_time("t", 0, NOW), r"timestamp_ms is datetime.*give mill"),
    "a time in a queue of text": (lambda s: s.offset_by_time("t", "0", 0), r"queue_id is '0'"),
    "the earliest of a float": (lambda s: s.earliest_time("t", 0.0), r"queue_id is 0.0 \(float\)"),
    # --- by queue
    "get of a number": (lambda s: s.get(5, 0, 0), r"topic is 5 \(int\); give a str"),
    "get of a bool": (lambda s: s.get("t", True, 0), r"queue_id is True \(bool\)"),
    "get 0 messages": (lambda s: s.get("t", 0, 0, 0), "max_messages is 0; give 1 or more"),
    "get less than 0 bytes": (lambda s: s.get("t", 0, 0, max_bytes=-1), "max_bytes is -1"),
    "get tags of a list": (lambda s: s.get("t", 0, 0, tags=["A"]), r"tags is \['A'\] \(list\)"),
    "get no tag": (lambda s: s.get("t", 0, 0, tags=" || "), "contain no tag"),
    "get in less than no time": (lambda s: s.get("t", 0, 0, wait_ms=-1), "wait_ms is -1"),
    "get_async of a number": (lambda s: asyncio.run(s.get_async(5, 0, 0)), r"topic is 5 \(int\)"),
    "columns at text": (lambda s: s.get_columns("t", 0, "0"), r"offset is '0' \(str\)"),
    "one column": (lambda s: s.get_columns("t", 0, 0, columns="body"), r"columns is 'body'.*list"),
    "read of a number": (lambda s: list(s.read(5, 0)), r"topic is 5 \(int\)"),
    "read from below 0": (lambda s: list(s.read("t", 0, -1)), "start is -1; give 0 or more"),
    "queues of a number": (lambda s: s.queues(5), r"topic is 5 \(int\)"),
    "bounds of a bool": (lambda s: s.queue_bounds("t", True), "queue_id is True"),
    "units of a float": (lambda s: s.queue_units("t", 0, 0.0, 1), r"first is 0.0 \(float\)"),
    # --- the log
    "look up None": (lambda s: s.look_up(None), "where is None"),
    "scan from below 0": (lambda s: s.scan(-1), "start is -1; give 0 or more"),
    "scan to a float": (lambda s: s.scan(0, 1e9), r"end is 1000000000.0 \(float\)"),
    "pieces from below 0": (lambda s: s.scan_pieces(-1), "start is -1"),
    "wait for a float": (lambda s: s.wait_dispatched(0.5), r"offset is 0.5 \(float\)"),
    "wait for ever": (lambda s: s.wait_dispatched(0, math.inf), "timeout_ms is inf"),
    "wait for a million years": (lambda s: s.wait_dispatched(0, 1e17), r"1e\+17.*3153600000000"),
    "wait for a flush of a float": (lambda s: s.wait_flushed(0.5), r"offset is 0.5 \(float\)"),
    # --- many messages
    "put_batch of one": (lambda s: s.put_batch(Message("t", b"x")), "messages is Message.*put()"),
    "put_batch of a generator": (lambda s: s.put_batch(iter([])), "messages is .*; give a list"),
    "put_batch_async of None": (lambda s: s.put_batch_async(None), "messages is None"),
    "put_columns of queues of a float": (
        lambda s: s.put_columns("t", [b""], queue_ids=0.5),
        r"queue_ids is 0.5 \(float\); give one value for all",
    ),
    "put_columns of one body": (lambda s: s.put_columns("t", b"x"), r"bodies is b'x' \(bytes\)"),
    "delete a number": (lambda s: s.delete_topic(5), r"topic is 5 \(int\)"),
    # --- consumers
    "a group of a number": (lambda s: s.consumer(5, "t"), r"group is 5 \(int\)"),
    "a consumer of a number": (lambda s: s.consumer("g", 5), r"topic is 5 \(int\)"),
    "a consumer of one queue": (lambda s: s.consumer("g", "t", 0), r"queue_ids is 0 \(int\)"),
    "a consumer of text": (lambda s: s.consumer("g", "t", "01"), r"queue_ids is '01' \(str\)"),
    "a consumer of tags": (lambda s: s.consumer("g", "t", tags=["A"]), r"tags is \['A'\]"),
    "poll a float": (lambda s: s.consumer("g", "t").poll(1.5), r"max_messages is 1.5"),
    "poll for less than no time": (lambda s: s.consumer("g", "t").poll(1, -1), "wait_ms is -1"),
    "seek a float": (lambda s: s.consumer("g", "t", [0]).seek(0, 0.5), "offset is 0.5"),
    "reset to a bool": (lambda s: s.consumer("g", "t", [0]).reset(True), "to is True"),
    "reset to no place": (
        lambda s: s.consumer("g", "t", [0]).reset("end"),
        "to: 'end' is not a place",
    ),
    # --- open
    "open a number": (lambda _: open_any(5), r"path is 5 \(int\); give the folder"),
    "open nothing": (lambda _: open_any(""), "path is empty; give the folder"),
    "open with one plugin": (lambda s: open_any(s.path, plugins=aio), "plugins is <module"),
    "open with text": (lambda s: open_any(s.path, plugins="a"), r"plugins is 'a' \(str\)"),
}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    with lakelog.open(tmp_path_factory.mktemp("s") / "s") as store:
        store.put_batch([Message("t", b"%d" % at, keys="k", queue_id=0) for at in range(10)])
        store.wait_dispatched()
        yield store


@pytest.mark.parametrize("what", CALLS)
def test_a_wrong_argument_is_named(store: Store, what: str) -> None:
    call, said = CALLS[what]
    with pytest.raises((TypeError, ValueError), match=said):
        call(store)


@pytest.mark.parametrize("what", MESSAGES)
def test_a_wrong_field_of_a_message_is_named(store: Store, what: str) -> None:
    fields, said = MESSAGES[what]
    message = Message(**{"topic": "t", "body": b"x", **fields})
    end = store.max_offset
    for name, put in PUTS.items():
        if name != "columns" or what not in NO_COLUMNS:
            kind = errors.WrongType if what in WRONG_TYPES else PutRefused
            with pytest.raises(kind, match=said) as caught:
                put(store, message)
            if isinstance(caught.value, PutRefused):
                assert caught.value.status.name == STATUSES.get(what, "MESSAGE_ILLEGAL")
                assert not caught.value.status.in_log
    assert store.max_offset == end


def test_a_message_needs_a_body_and_an_empty_one_is_one(store: Store) -> None:
    with pytest.raises(TypeError, match="'body'"):
        Message("t")  # type: ignore[call-arg]  # that is the mistake
    result = store.put(Message("t", b"", queue_id=0))
    assert store.look_up(result.physical_offset).body == b""


def test_times_at_the_ends_are_meant(store: Store) -> None:
    assert store.offset_by_time("t", 0, 0) == 0
    assert store.offset_by_time("t", 0, (1 << 63) - 1) == store.queue_bounds("t", 0)[1]  # type: ignore[index]  # it is there
    found = store.query("t", "k", since_ms=0, until_ms=(1 << 63) - 1)
    assert len(found) == len(store.query("t", "k", since_ms=100_000_000_000)) == 10


def test_several_keys_and_their_separator(store: Store) -> None:
    put = store.put(Message("t", b"x", keys=["one", "two"], queue_id=1))
    raw = store.put(Message("t", b"x", properties={"KEYS": "one two", "TAGS": "A||B"}, queue_id=1))
    store.wait_dispatched()
    found = [each.physical_offset for each in store.query("t", "two")]
    assert found == [raw.physical_offset, put.physical_offset]


def test_a_wrong_argument_is_named_in_an_event_loop(tmp_path: Path) -> None:
    calls: tuple[tuple[Call, str], ...] = (
        (lambda s: s.get("t", 0, 0, wait_ms=-1), "wait_ms is -1"),
        (lambda s: s.query("t", 5), r"key is 5 \(int\)"),
        (lambda s: s.offset_by_time("t", 0, SECONDS), "looks like seconds"),
        (lambda s: s.put_batch(None), "messages is None"),
        (lambda s: s.put_columns("t", 5), r"bodies is 5 \(int\)"),
        (lambda s: s.look_up(None), "where is None"),
        (lambda s: s.consumer("g", "t", 0), r"queue_ids is 0 \(int\)"),
    )

    async def run() -> None:
        async with aio.open(tmp_path / "s") as store:
            for call, said in calls:
                with pytest.raises((TypeError, ValueError), match=said):
                    await call(store)
            async with await store.consumer("g", "t") as consumer:
                with pytest.raises(ValueError, match="max_messages is 0"):
                    await consumer.poll(0)
                with pytest.raises(TypeError, match="wait_ms is None"):
                    await consumer.poll(1, None)  # type: ignore[arg-type]  # that is the mistake

    asyncio.run(run())
