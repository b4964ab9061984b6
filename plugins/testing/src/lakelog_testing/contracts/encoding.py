"""Contract tests for append callbacks and for accelerators.

Records must be readable by the core, and placed without side effects. A callback that changes
bodies before it stores them must restore them, see :class:`~lakelog.hooks.BodyDecoder`; without
``decode``, bodies must be stored unchanged. Every result of an accelerator is that of the Python
code, the specification.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest

import lakelog
from lakelog.accelerate import SEAM, Accelerator, current, use
from lakelog.builtin import RocketmqAppendCallback
from lakelog.errors import IllegalMessage, WrongType
from lakelog.format import encoder, layout
from lakelog.format.queue_offsets import QueueOffsets
from lakelog.format.record import decode
from lakelog.format.record_batch import RecordBatch, decode_run
from lakelog.hooks import AppendCallback, BodyDecoder
from lakelog.hooks.kinds import StoreSettings
from lakelog.message import Message, MessageColumns, StoredMessage
from lakelog.registry import check_object
from lakelog.results import AppendStatus, PutStatus
from lakelog_testing.samples import STORED_AT_MS, encode_log, messages

NOW_MS = 1_700_000_000_000
ROOM = 1 << 20
COUNTS = [1, 2, 7, 8, 100]
"""Numbers of messages; single messages and large batches may use different code paths."""

BAD: list[Any] = [
    Message("", b""),
    Message("a/b", b""),
    Message("x" * 256, b""),
    Message("t", None),  # type: ignore[arg-type]  # invalid on purpose
    Message("t", "text"),  # type: ignore[arg-type]  # invalid on purpose
    "no message",
]


def stored_messages(read: RecordBatch) -> list[StoredMessage]:
    """The messages as stored in the records."""
    return [read.message(at) for at in range(len(read))]


def decoded(callback: AppendCallback, stored: list[StoredMessage]) -> list[StoredMessage]:
    """The messages after the callback's ``decode``, if it has one."""
    if not isinstance(callback, BodyDecoder):
        return stored
    assert check_object(callback, BodyDecoder) is None
    return list(callback.decode(stored))


def bodies(callback: AppendCallback, read: RecordBatch) -> list[bytes]:
    """The original bodies."""
    return [each.body for each in decoded(callback, stored_messages(read))]


def placed(
    callback: AppendCallback, given: Any, offsets: QueueOffsets | None = None
) -> tuple[encoder.EncodedBatch, RecordBatch]:
    """A batch of messages placed at offset 5,000, and its records."""
    batch = callback.encode(given)
    status = callback.place(batch, 5_000, ROOM, offsets or QueueOffsets(), NOW_MS)
    assert status is AppendStatus.PUT_OK
    return batch, decode_run(bytes(batch.buffer), 5_000)


class AppendCallbackContract:
    """Subclass it and define :meth:`make`; each test creates its own callback.

    The callback must suit a store with default settings, and segments of at least 1 MiB.
    """

    def make(self) -> AppendCallback:
        """Create a callback."""
        raise NotImplementedError

    def test_it_has_the_methods_of_its_kind(self) -> None:
        assert check_object(self.make(), AppendCallback) is None

    @pytest.fixture(params=COUNTS)
    def count(self, request: pytest.FixtureRequest) -> int:
        """A number of messages."""
        return int(request.param)

    def test_what_is_placed_are_records_that_can_be_read(self, count: int) -> None:
        given = messages(count)
        callback = self.make()
        batch, read = placed(callback, given)
        assert read.end_offset == 5_000 + len(batch.buffer)
        assert bodies(callback, read) == [item.body for item in given]
        assert read.topics == [item.topic for item in given]
        assert read.tags == [item.tags for item in given]
        assert read.keys == [item.keys for item in given]
        assert read.queue_ids.tolist() == [item.queue_id for item in given]
        assert read.store_timestamps_ms.tolist() == [NOW_MS] * count

    def test_messages_of_columns_can_be_read(self, count: int) -> None:
        given = [b"%d" % number * 400 for number in range(count)]
        for kind in (bytes, bytearray, memoryview):
            callback, these = self.make(), [kind(each) for each in given]
            columns = MessageColumns("orders", these, 0, "TagA", None)
            _, read = placed(callback, columns)
            assert bodies(callback, read) == given
            assert read.tags == ["TagA"] * count

    def test_encoding_leaves_the_messages_alone(self, count: int) -> None:
        given = messages(count)
        self.make().encode(given)
        assert given == messages(count)

    def test_decoding_changes_bodies_and_what_is_said_of_them_only(self, count: int) -> None:
        callback = self.make()
        stored = stored_messages(placed(callback, messages(count))[1])
        given = decoded(callback, stored)
        kept = [attrs.evolve(one, body=two.body, sys_flag=two.sys_flag)
            for one, two in zip(stored, given, strict=True)]  # fmt: skip  # one comprehension
        assert list(given) == kept
        assert decoded(callback, stored[:1]) == given[:1]

    def test_decoding_leaves_messages_that_another_callback_stored(self, count: int) -> None:
        plain = RocketmqAppendCallback.of(StoreSettings())
        stored = stored_messages(placed(plain, messages(count))[1])
        assert decoded(self.make(), stored) == stored

    def test_results_say_where_the_records_are(self, count: int) -> None:
        batch, read = placed(self.make(), messages(count))
        results = list(batch.results(PutStatus.PUT_OK))
        assert batch.count == count
        assert [it.physical_offset for it in results] == read.physical_offsets.tolist()
        assert [it.size for it in results] == read.sizes.tolist()
        assert [it.queue_offset for it in results] == read.queue_offsets.tolist()
        assert {it.status for it in results} == {PutStatus.PUT_OK}

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

    def test_placing_leaves_the_queue_offsets_alone(self, count: int) -> None:
        callback, offsets = self.make(), QueueOffsets({("orders", 0): 10})
        placed(callback, messages(count), offsets)
        assert offsets.snapshot() == {("orders", 0): 10}

    def test_a_batch_that_does_not_fit_fits_into_the_next_segment(self, count: int) -> None:
        callback, offsets = self.make(), QueueOffsets()
        batch = callback.encode(messages(count))
        size = len(batch.buffer)
        tight = size + layout.BLANK_MIN_BYTES - 1
        assert callback.place(batch, 0, tight, offsets, NOW_MS) is AppendStatus.END_OF_FILE
        assert callback.place(batch, tight, ROOM, offsets, NOW_MS) is AppendStatus.PUT_OK
        assert decode_run(bytes(batch.buffer), tight).end_offset == tight + size

    def test_a_batch_that_fits_exactly(self, count: int) -> None:
        callback = self.make()
        batch = callback.encode(messages(count))
        room = len(batch.buffer) + layout.BLANK_MIN_BYTES
        assert callback.place(batch, 0, room, QueueOffsets(), NOW_MS) is AppendStatus.PUT_OK

    @pytest.mark.parametrize("message", BAD)
    def test_a_message_that_no_record_can_hold(self, message: Message) -> None:
        with pytest.raises((IllegalMessage, WrongType)):
            self.make().encode([message])
        with pytest.raises((IllegalMessage, WrongType)):
            self.make().encode([*messages(10), message])


_MESSAGES = [
    Message("orders", b"x" * at, tags=f"t{at % 3}", keys=f"k{at}", queue_id=0, born_timestamp_ms=at)
    for at in range(200)
]


class AcceleratorContract:
    """Subclass it, and provide the plugin, and the name and the making of its accelerator."""

    plugin: object
    """The plugin that offers the accelerator."""

    name: str
    """Its name in the settings."""

    def make(self) -> Accelerator:
        """Create the accelerator."""
        raise NotImplementedError

    @pytest.fixture(autouse=True)
    def _alone(self) -> Iterator[None]:
        """Restore the accelerator of this process, which an open changes."""
        before = current()
        yield
        use(before)

    def contents(self, path: Path, accelerator: str) -> list[StoredMessage]:
        """Read a whole store with this accelerator, or with ``none``."""
        use(None)
        plugins = [self.plugin]
        with lakelog.open(path, mode="read", plugins=plugins, accelerator=accelerator) as store:
            return list(store.scan())

    def test_it_has_the_methods_of_its_kind(self) -> None:
        assert check_object(self.make(), Accelerator) is None

    def test_it_has_the_version_of_the_interface(self) -> None:
        assert self.make().seam == SEAM

    def test_another_process_gets_its_own(self) -> None:
        made = self.make()
        assert type(pickle.loads(pickle.dumps(made))) is type(made)

    @pytest.mark.parametrize("count", [1, 2, 200])
    def test_it_encodes_the_same_bytes(self, count: int) -> None:
        found = []
        for accelerator in (None, self.make()):
            callback = RocketmqAppendCallback.of(StoreSettings(), accelerator)
            batch = callback.encode(_MESSAGES[-count:])
            callback.place(batch, 0, ROOM, QueueOffsets(), STORED_AT_MS)
            found.append(bytes(batch.buffer))
        assert found[0] == found[1]

    def test_it_decodes_the_same_messages(self) -> None:
        log, found = encode_log(_MESSAGES), []
        for accelerator in (None, self.make()):
            use(accelerator)
            batch = decode_run(log, 0)
            places = batch.physical_offsets.tolist()
            found.append([*batch.decoded, *(decode(log, at, offset=at) for at in places)])
        assert found[0] == found[1]
        assert len(found[0]) == 2 * len(_MESSAGES)

    @pytest.mark.parametrize("is_written_by_it", [True, False])
    def test_a_store_is_the_same_with_and_without_it(
        self, tmp_path: Path, is_written_by_it: bool
    ) -> None:
        use(None)
        given: dict[str, Any] = {"plugins": [self.plugin], "segment_size_bytes": "1MiB"}
        accelerator = self.name if is_written_by_it else "none"
        with lakelog.open(tmp_path, accelerator=accelerator, **given) as store:
            for each in _MESSAGES:
                store.put(each)
            store.put_batch(_MESSAGES)
        found = [self.contents(tmp_path, each) for each in (self.name, "none")]
        assert found[0] == found[1]
        assert [each.body for each in found[0]] == [each.body for each in _MESSAGES] * 2
