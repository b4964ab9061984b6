"""A program of a user's own that uses all of the typed public API; it runs, and it is type-checked.

``assert_type`` fails a type checker where a type is another one, ``Any`` included.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal, assert_type

import attrs
import numpy as np
from numpy.typing import NDArray

import lakelog
import lakelog.aio
import lakelog_hash_index.plugin
from lakelog.errors import IllegalMessage, MissingPlugin, OffsetOutOfRange, SettingsError
from lakelog.format.record_batch import Blank, Damage, RecordBatch, decode_run
from lakelog.hooks import (
    CleaningReport,
    Context,
    DiskReport,
    Factory,
    Flushable,
    FlushStrategy,
    Kind,
    Outcome,
)
from lakelog.hooks.hookspecs import hookimpl
from lakelog.message import Body


@attrs.frozen
class EachSettings:
    """Nothing to set but a name, for the type of the section."""

    name: str = "each"


class EachPut:
    """A strategy of one's own: every waiting put syncs."""

    waits_for_disk = True

    def start(self, log: Flushable) -> None:
        self.log = log

    def submit(self, end_offset: int, wait: bool) -> Outcome:
        if wait and assert_type(self.log.flushed, int) < end_offset:
            self.log.sync()
        return lakelog.PutStatus.PUT_OK

    def close(self) -> None:
        self.log.sync()


def make(settings: EachSettings, context: Context) -> FlushStrategy:
    assert_type(context.path, Path)
    assert_type(context.core.segment_size_bytes, int)
    return EachPut()


@hookimpl
def lakelog_flush_strategies() -> list[Factory]:
    return [Factory(Kind.FLUSH_STRATEGY, "each", EachSettings, make)]


def put(store: lakelog.Store) -> None:
    message = lakelog.Message("orders", b"one", tags="a", keys=["k", "l"], queue_id=0)
    assert_type(message.body, Body)
    result = assert_type(store.put(message), lakelog.PutResult)
    assert assert_type(result.status, lakelog.PutStatus) is lakelog.PutStatus.PUT_OK
    assert_type(result.physical_offset, int)
    assert_type(result.message_id, str)
    results = assert_type(store.put_batch([message, message]), Sequence[lakelog.PutResult])
    assert_type([each.queue_offset for each in results], list[int])
    store.put_columns("orders", [b"two", b"three"], keys=["m", "n"], queue_ids=0)
    store.put_batch(lakelog.MessageColumns("orders", [b"four"], queue_ids=0))
    producer = assert_type(store.producer("orders", tags="b", queue=0), lakelog.Producer)
    assert_type(producer.put(b"five", "key"), lakelog.PutResult)
    assert_type(producer.put_many([b"six"]), Sequence[lakelog.PutResult])
    assert_type(store.put_async(message).result(10), lakelog.PutResult)
    assert_type(store.put_batch_async([message]).result(10), Sequence[lakelog.PutResult])
    assert_type(store.flush(), int)
    assert_type(store.wait_dispatched(), bool)


def read(store: lakelog.Store) -> None:
    found = assert_type(store.get("orders", 0, 0, tags="a || b"), lakelog.GetResult)
    assert assert_type(found.status, lakelog.GetStatus) is lakelog.GetStatus.FOUND
    first = assert_type(found.messages, list[lakelog.StoredMessage])[0]
    assert_type(first.body, bytes)
    assert_type(first.tags, str | None)
    assert_type(first.keys, list[str])
    assert_type(store.look_up(first.message_id), lakelog.StoredMessage)
    assert_type(store.look_up_record(first.physical_offset), bytes)
    assert_type(store.scan(), Iterator[lakelog.StoredMessage])
    assert_type(store.read("orders", 0), Iterator[lakelog.StoredMessage])
    assert_type(store.query("orders", "k", max_messages=3), list[lakelog.StoredMessage])
    assert_type(store.offset_by_time("orders", 0, 0, "upper"), int)
    assert_type(store.topics(), list[str])
    assert_type(store.queues(), list[lakelog.QueueInfo])
    assert_type(store.queue_bounds("orders", 0), tuple[int, int] | None)
    assert_type(store.min_offset, int)
    assert_type(store.recovery, lakelog.RecoveryReport | None)
    assert_type(store.role, Literal["owner", "attach", "read", "replica"])
    assert_type(store.disk(), DiskReport | None)
    assert_type(store.path, Path)
    assert_type(store.settings.core.flush, str)


def read_columns(store: lakelog.Store) -> None:
    result = assert_type(store.get_columns("orders", 0, 0), lakelog.ColumnsResult)
    batch = result.batch  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    assert batch.num_rows > 1  # pyright: ignore[reportUnknownMemberType]  # PyArrow has no types
    for piece in store.scan_pieces():
        if isinstance(piece, RecordBatch):
            columns(piece)
        else:
            assert_type(piece, Blank | Damage)
            assert_type(piece.end_offset, int)


def columns(batch: RecordBatch) -> None:
    assert_type(len(batch), int)
    assert_type(batch.physical_offsets, NDArray[np.int64])
    assert_type(batch.sizes, NDArray[np.int32])
    assert_type(batch.body_crcs, NDArray[np.uint32])
    assert_type(batch.store_timestamps_ms, NDArray[np.int64])
    assert_type(batch.topics, list[str])
    assert_type(batch.tags, list[str | None])
    assert_type(batch.bodies, list[memoryview])
    assert_type(batch[1:], RecordBatch)
    assert_type(batch.message(0), lakelog.StoredMessage)
    assert_type(batch.end_offset, int)
    assert_type(decode_run(bytes(batch.record(0)), int(batch.physical_offsets[0])), RecordBatch)


def consume(store: lakelog.Store) -> None:
    with store.consumer("billing", "orders", start="earliest", commit="batch") as consumer:
        assert_type(consumer, lakelog.Consumer)
        assert assert_type(consumer.poll(4), list[lakelog.StoredMessage])
        consumer.commit()
        assert_type(consumer.lag(), dict[int, int])
        for message in consumer.messages(follow=False):
            assert_type(message, lakelog.StoredMessage)
    with store.subscribe("mailing", {"orders": "a"}, start="earliest") as member:
        assert_type(member, lakelog.GroupConsumer)
        for delivery in assert_type(member.poll(2, wait_ms=1000), list[lakelog.Delivery]):
            assert_type(delivery.message, lakelog.StoredMessage)
            assert_type(delivery.attempt, int)
            assert_type(member.ack(delivery), bool)
    assert_type(store.groups(), dict[str, dict[str, dict[int, int]]])


def fail(store: lakelog.Store) -> None:
    try:
        store.put(lakelog.Message("", b""))
    except lakelog.PutRefused as error:
        assert_type(error.status, lakelog.PutStatus)
    try:
        store.producer("a/b")
    except IllegalMessage as error:
        assert_type(error, IllegalMessage)
    try:
        store.look_up(1 << 40)
    except OffsetOutOfRange as error:
        assert_type(error.offset, int)
    try:
        lakelog.open(store.path, flush="nothing")
    except (MissingPlugin, SettingsError) as error:
        assert_type(error, MissingPlugin | SettingsError)


async def in_a_loop(path: Path) -> None:
    async with lakelog.aio.open(path, plugins=[sys.modules[__name__]], flush="each") as store:
        assert_type(store, lakelog.aio.AsyncStore)
        message = lakelog.Message("visits", b"1", queue_id=0)
        assert_type(await store.put(message), lakelog.PutResult)
        assert_type(await store.put_batch([message]), Sequence[lakelog.PutResult])
        assert_type(await store.flush(), int)
        assert_type(await store.get("visits", 0, 0, wait_ms=1000), lakelog.GetResult)
        assert_type(await store.look_up(0), lakelog.StoredMessage)
        assert_type(await store.in_thread(lambda own: own.max_offset), int)
        async for each in store.read("visits", 0):
            assert_type(each, lakelog.StoredMessage)
        async for each in store.scan():
            assert_type(each, lakelog.StoredMessage)
        async with await store.consumer("late", "visits", start="earliest") as consumer:
            assert_type(consumer, lakelog.aio.AsyncConsumer)
            assert_type(await consumer.poll(1, wait_ms=1000), list[lakelog.StoredMessage])
        async with await store.subscribe("all", "visits", start="earliest") as member:
            assert_type(member, lakelog.aio.AsyncGroupConsumer)
            for delivery in await member.poll(wait_ms=1000):
                assert_type(await member.ack(delivery), bool)


def main(path: Path) -> None:
    plugins = [sys.modules[__name__], lakelog_hash_index.plugin]
    with lakelog.open(path, plugins=plugins, flush="each", segment_size_bytes="1MiB") as store:
        assert_type(store, lakelog.Store)
        put(store)
        read(store)
        read_columns(store)
        consume(store)
        fail(store)
        if store.settings.core.cleaner:
            assert_type(store.delete_expired(dry_run=True), CleaningReport)
    asyncio.run(in_a_loop(path))
    assert_type(lakelog.recover(path), lakelog.RecoveryReport)
    assert_type(lakelog.repair(path, dry_run=True), lakelog.RepairReport)
    sys.stdout.write("all of it works\n")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(Path(folder) / "store")
