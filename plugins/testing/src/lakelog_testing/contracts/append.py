"""What every append callback must do: records that the core can read, placed without a trace.

One that stores bodies otherwise than they are put has to give them back, see
:class:`~lakelog.interfaces.BodyDecoder`; of one that has no ``decode``, the bodies are as stored.
"""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from lakelog.codec import RecordBatch, RocketmqAppendCallback, decode_run
from lakelog.errors import IllegalMessage
from lakelog.format.layout import BLANK_MIN_BYTES
from lakelog.format.queue_offsets import QueueOffsets
from lakelog.interfaces import AppendCallback, BodyDecoder
from lakelog.message import Message, MessageColumns, StoredMessage
from lakelog.registry import check_object
from lakelog.settings.model import StoreSettings
from lakelog.status import AppendStatus, PutStatus
from lakelog_testing.records import messages

NOW_MS = 1_700_000_000_000
ROOM = 1 << 20
COUNTS = [1, 2, 7, 8, 100]
"""Numbers of messages; one alone and many at once may take paths of their own."""

BAD: list[Any] = [
    Message("", b""),
    Message("a/b", b""),
    Message("x" * 256, b""),
    Message("t", None),  # type: ignore[arg-type]  # that is the mistake
    Message("t", "text"),  # type: ignore[arg-type]  # that is the mistake
    "no message",
]


def stored_messages(read: RecordBatch) -> list[StoredMessage]:
    """The messages as the records hold them."""
    return [read.message(at) for at in range(len(read))]


def decoded(callback: AppendCallback, stored: list[StoredMessage]) -> list[StoredMessage]:
    """The messages as the callback's reading side gives them."""
    if not isinstance(callback, BodyDecoder):
        return stored
    assert check_object(callback, BodyDecoder) is None
    return list(callback.decode(stored))


def bodies(callback: AppendCallback, read: RecordBatch) -> list[bytes]:
    """The bodies that were put."""
    return [each.body for each in decoded(callback, stored_messages(read))]


class AppendCallbackContract:
    """Subclass it, and say in :meth:`make` how a callback is made; each test makes its own.

    Made as for a store with default settings, and with segments of at least a MiB.
    """

    def make(self) -> AppendCallback:
        """Make a callback."""
        raise NotImplementedError

    def test_it_has_the_methods_of_its_kind(self) -> None:
        assert check_object(self.make(), AppendCallback) is None

    @pytest.mark.parametrize("count", COUNTS)
    def test_what_is_placed_are_records_that_can_be_read(self, count: int) -> None:
        given = messages(count)
        callback, offsets = self.make(), QueueOffsets()
        batch = callback.encode(given)
        assert callback.place(batch, 5_000, ROOM, offsets, NOW_MS) is AppendStatus.PUT_OK
        read = decode_run(bytes(batch.buffer), 5_000)
        assert read.end_offset == 5_000 + len(batch.buffer)
        assert bodies(callback, read) == [item.body for item in given]
        assert read.topics == [item.topic for item in given]
        assert read.tags == [item.tags for item in given]
        assert read.keys == [item.keys for item in given]
        assert read.queue_ids.tolist() == [item.queue_id for item in given]
        assert read.store_timestamps_ms.tolist() == [NOW_MS] * count

    @pytest.mark.parametrize("count", COUNTS)
    def test_messages_of_columns_can_be_read(self, count: int) -> None:
        given = [b"%d" % number * 400 for number in range(count)]
        for kind in (bytes, bytearray, memoryview):
            callback, these = self.make(), [kind(each) for each in given]
            columns = MessageColumns("orders", these, 0, "TagA", None)
            batch = callback.encode(columns)
            callback.place(batch, 5_000, ROOM, QueueOffsets(), NOW_MS)
            read = decode_run(bytes(batch.buffer), 5_000)
            assert bodies(callback, read) == given
            assert read.tags == ["TagA"] * count

    @pytest.mark.parametrize("count", COUNTS)
    def test_encoding_leaves_the_messages_alone(self, count: int) -> None:
        given = messages(count)
        self.make().encode(given)
        assert given == messages(count)

    @pytest.mark.parametrize("count", COUNTS)
    def test_decoding_changes_bodies_and_what_is_said_of_them_only(self, count: int) -> None:
        callback = self.make()
        batch = callback.encode(messages(count))
        callback.place(batch, 5_000, ROOM, QueueOffsets(), NOW_MS)
        stored = stored_messages(decode_run(bytes(batch.buffer), 5_000))
        given = decoded(callback, stored)
        kept = [attrs.evolve(one, body=two.body, sys_flag=two.sys_flag)
            for one, two in zip(stored, given, strict=True)]  # fmt: skip  # one comprehension
        assert list(given) == kept
        assert decoded(callback, stored[:1]) == given[:1]

    @pytest.mark.parametrize("count", COUNTS)
    def test_decoding_leaves_messages_that_another_callback_stored(self, count: int) -> None:
        plain, callback = RocketmqAppendCallback.of(StoreSettings()), self.make()
        batch = plain.encode(messages(count))
        plain.place(batch, 5_000, ROOM, QueueOffsets(), NOW_MS)
        stored = stored_messages(decode_run(bytes(batch.buffer), 5_000))
        assert decoded(callback, stored) == stored

    @pytest.mark.parametrize("count", COUNTS)
    def test_results_say_where_the_records_are(self, count: int) -> None:
        callback, offsets = self.make(), QueueOffsets()
        batch = callback.encode(messages(count))
        callback.place(batch, 5_000, ROOM, offsets, NOW_MS)
        read = decode_run(bytes(batch.buffer), 5_000)
        results = list(batch.results(PutStatus.PUT_OK))
        assert batch.count == count
        assert [it.physical_offset for it in results] == read.physical_offsets.tolist()
        assert [it.size for it in results] == read.sizes.tolist()
        assert [it.queue_offset for it in results] == read.queue_offsets.tolist()
        assert {it.status for it in results} == {PutStatus.PUT_OK}

    @pytest.mark.parametrize("count", COUNTS)
    def test_each_queue_counts_on(self, count: int) -> None:
        callback, offsets = self.make(), QueueOffsets({("orders", 0): 10})
        seen: dict[int, list[int]] = {0: [], 1: []}
        for turn in range(2):
            batch = callback.encode(messages(count))
            callback.place(batch, turn * ROOM, ROOM, offsets, NOW_MS)
            batch.advance(offsets)
            for result in batch.results(PutStatus.PUT_OK):
                seen[result.queue_id].append(result.queue_offset)
        assert seen[0] == list(range(10, 10 + len(seen[0])))
        assert seen[1] == list(range(len(seen[1])))
        assert offsets.next(("orders", 0)) == 10 + len(seen[0])

    @pytest.mark.parametrize("count", COUNTS)
    def test_placing_leaves_the_queue_offsets_alone(self, count: int) -> None:
        callback, offsets = self.make(), QueueOffsets({("orders", 0): 10})
        callback.place(callback.encode(messages(count)), 0, ROOM, offsets, NOW_MS)
        assert offsets.snapshot() == {("orders", 0): 10}

    @pytest.mark.parametrize("count", COUNTS)
    def test_a_batch_that_does_not_fit_fits_into_the_next_segment(self, count: int) -> None:
        callback, offsets = self.make(), QueueOffsets()
        batch = callback.encode(messages(count))
        size = len(batch.buffer)
        tight = size + BLANK_MIN_BYTES - 1
        assert callback.place(batch, 0, tight, offsets, NOW_MS) is AppendStatus.END_OF_FILE
        assert callback.place(batch, tight, ROOM, offsets, NOW_MS) is AppendStatus.PUT_OK
        assert decode_run(bytes(batch.buffer), tight).end_offset == tight + size

    @pytest.mark.parametrize("count", COUNTS)
    def test_a_batch_that_fits_exactly(self, count: int) -> None:
        callback = self.make()
        batch = callback.encode(messages(count))
        room = len(batch.buffer) + BLANK_MIN_BYTES
        assert callback.place(batch, 0, room, QueueOffsets(), NOW_MS) is AppendStatus.PUT_OK

    @pytest.mark.parametrize("message", BAD)
    def test_a_message_that_no_record_can_hold(self, message: Message) -> None:
        with pytest.raises(IllegalMessage):
            self.make().encode([message])
        with pytest.raises(IllegalMessage):
            self.make().encode([*messages(10), message])
