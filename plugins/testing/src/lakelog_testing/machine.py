"""A state machine test: random user actions on a store, compared with a model in plain Python.

Subclass :class:`StoreMachine` to open stores differently (another writer, other plugins), and run
``MyMachine.TestCase``; see Hypothesis on stateful tests.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import attrs
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import lakelog
from lakelog import Message, PutResult, Store
from lakelog.format.layout import segment_name
from lakelog_queues.finding.results import GetStatus

SEGMENT_BYTES: Final = 8192
TOPICS: Final = ("orders", "Müll", "%RETRY%group")
TAGS: Final = (None, "TagA", "TagB", "Aa", "BB")  # the last two have the same hash
GROUP: Final = "group"


@attrs.define
class Known:
    """A message in the model."""

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    body: bytes
    tags: str | None
    key: str | None


class Model:
    """The expected content of the store, as lists."""

    def __init__(self) -> None:
        self.log: list[Known] = []
        self.next: dict[tuple[str, int], int] = {}
        self.minimum = 0
        self.committed: dict[tuple[str, int], int] = {}

    def put(self, message: Message, result: PutResult) -> None:
        """Check and record the result of a put."""
        queue = (result.topic, result.queue_id)
        assert result.queue_offset == self.next.get(queue, 0)
        self.next[queue] = result.queue_offset + 1
        place = (result.queue_offset, result.physical_offset)
        key = str(message.keys) if message.keys else None
        self.log.append(Known(*queue, *place, bytes(message.body), message.tags, key))

    def queue(self, topic: str, queue_id: int) -> list[Known]:
        """The messages of a queue that are still in the log."""
        left = (each for each in self.log if each.physical_offset >= self.minimum)
        return [each for each in left if (each.topic, each.queue_id) == (topic, queue_id)]

    def bounds(self, topic: str, queue_id: int) -> tuple[int, int]:
        """The first queue offset and the next one."""
        held, end = self.queue(topic, queue_id), self.next.get((topic, queue_id), 0)
        return (held[0].queue_offset if held else end), end


messages = st.builds(
    Message,
    st.sampled_from(TOPICS),
    st.binary(max_size=1500),
    queue_id=st.integers(0, 2),
    tags=st.sampled_from(TAGS),
    keys=st.one_of(st.none(), st.sampled_from(["k1", "k2", "schlüssel"])),
)
queues = st.tuples(st.sampled_from(TOPICS), st.integers(0, 2))


class StoreMachine(RuleBasedStateMachine):
    """Puts, rolls, reads, commits, deletions from the front and reopenings, in any order."""

    settings: Mapping[str, Any] = MappingProxyType({})
    """Settings for opening stores, beside small segments."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="lakelog-machine-"))
        self.path = self.folder / "store"
        self.model = Model()
        self.store: Store

    def open(self, **more: Any) -> Store:
        """Open the store; subclasses may extend it."""
        return lakelog.open(
            self.path, segment_size_bytes=SEGMENT_BYTES, flush="none", **self.settings, **more
        )

    @initialize()
    def begin(self) -> None:
        """Create the store."""
        self.store = self.open()

    def teardown(self) -> None:
        """Close and remove the store."""
        if hasattr(self, "store"):
            self.store.close()
        shutil.rmtree(self.folder)

    # --- user actions ---

    @rule(message=messages)
    def put(self, message: Message) -> None:
        """Put one message."""
        self.model.put(message, self.store.put(message))

    @rule(batch=st.lists(messages, min_size=1, max_size=60))
    def put_batch(self, batch: list[Message]) -> None:
        """Put many messages, encoded one by one or in columns."""
        for message, result in zip(batch, self.store.put_batch(batch), strict=True):
            self.model.put(message, result)

    @rule()
    def reopen(self) -> None:
        """Close and reopen, as owner."""
        self.store.close()
        self.store = self.open()

    @precondition(lambda self: self.store.max_offset > SEGMENT_BYTES)
    @rule()
    def delete_first_segment(self) -> None:
        """Delete the oldest segment while the store is closed, as retention does."""
        self.store.close()
        first = self.model.minimum
        if self.model.log[-1].physical_offset >= first + SEGMENT_BYTES:
            (self.path / "commitlog" / segment_name(first)).unlink()
            self.model.minimum = first + SEGMENT_BYTES
        self.store = self.open()

    @rule(queue=queues, skip=st.integers(0, 5))
    def commit(self, queue: tuple[str, int], skip: int) -> None:
        """A consumer reads some messages and commits."""
        self._dispatched()
        topic, queue_id = queue
        start = self.model.committed.get(queue)
        with self.store.consumer(GROUP, topic, [queue_id], start="earliest") as consumer:
            if queue not in self.model.next:
                return
            found = consumer.poll(1 + skip)
            consumer.commit()
        held = self.model.queue(*queue)
        first = max(self.model.bounds(*queue)[0], start or 0)
        due = [each for each in held if each.queue_offset >= first][: 1 + skip]
        assert [each.queue_offset for each in found] == [each.queue_offset for each in due]
        if due:
            self.model.committed[queue] = due[-1].queue_offset + 1

    # --- checks ---

    @rule(queue=queues, offset=st.integers(-2, 40), count=st.integers(1, 40))
    def get(self, queue: tuple[str, int], offset: int, count: int) -> None:
        """Reads of a queue by the owner."""
        self._dispatched()
        self._check_get(self.store, queue, offset, count)

    @rule(queue=queues, tag=st.sampled_from(TAGS[1:]))
    def get_by_tag(self, queue: tuple[str, int], tag: str) -> None:
        """Tags with equal hashes are distinguished."""
        self._dispatched()
        low, _ = self.model.bounds(*queue)
        found = self.store.get(*queue, low, 1000, tags=tag).messages
        due = [each.queue_offset for each in self.model.queue(*queue) if each.tags == tag]
        assert [each.queue_offset for each in found] == due

    @rule(queue=queues)
    def read_beside(self, queue: tuple[str, int]) -> None:
        """A reader of the files returns the same, and changes none of them."""
        with self.open(mode="read") as reader:
            self._check_get(reader, queue, 0, 1000)
            self._check_columns(reader, queue)

    @rule(topic=st.sampled_from(TOPICS), key=st.sampled_from(["k1", "k2", "schlüssel"]))
    def query(self, topic: str, key: str) -> None:
        """Queries by key, newest first."""
        if not self.has_key_index:
            return
        self._dispatched()
        found = self.store.query(topic, key, max_messages=10_000)
        due = [
            each.physical_offset
            for each in reversed(self.model.log)
            if (each.topic, each.key) == (topic, key) and each.physical_offset >= self.model.minimum
        ]
        assert [each.physical_offset for each in found] == due

    has_key_index = False
    """Whether ``settings`` include a key index."""

    @invariant()
    def bounds_agree(self) -> None:
        """Every queue has the expected bounds."""
        if not hasattr(self, "store"):
            return
        self._dispatched()
        assert self.store.topics() == sorted(
            {topic for topic, _ in self.model.next}, key=lambda topic: topic.encode("utf-16-be")
        )
        for queue in self.model.next:
            assert self.store.queue_bounds(*queue) == self.model.bounds(*queue)

    def _dispatched(self) -> None:
        assert self.store.wait_dispatched()

    def _check_get(self, store: Store, queue: tuple[str, int], offset: int, count: int) -> None:
        low, high = self.model.bounds(*queue)
        found = store.get(*queue, offset, count)
        if queue not in self.model.next:
            assert found.status is GetStatus.NO_MATCHED_LOGIC_QUEUE
            return
        assert (found.min_offset, found.max_offset) == (low, high)
        if not low <= offset < high:
            assert not found.messages
            return
        due = [each for each in self.model.queue(*queue) if each.queue_offset >= offset][:count]
        assert found.status is GetStatus.FOUND
        read = [(each.physical_offset, bytes(each.body)) for each in found.messages]
        assert read == [(each.physical_offset, each.body) for each in due]
        assert found.next_offset == due[-1].queue_offset + 1

    def _check_columns(self, store: Store, queue: tuple[str, int]) -> None:
        low, _ = self.model.bounds(*queue)
        batch = store.get_columns(*queue, low, 1000, columns=["queue_offset", "body"]).batch
        due = self.model.queue(*queue)
        assert batch.column("queue_offset").to_pylist() == [each.queue_offset for each in due]
        assert batch.column("body").to_pylist() == [each.body for each in due]
