"""Small stores whose store times follow a test's clock."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs

import lakelog
from lakelog import Store
from lakelog.builtin import RocketmqAppendCallback, make_rocketmq
from lakelog.format.encoder import EncodedBatch
from lakelog.format.queue_offsets import QueueOffsets
from lakelog.hooks import Context, DiskState, Factory, Kind, NoSettings
from lakelog.hooks.hookspecs import hookimpl
from lakelog.message import Message
from lakelog.results import AppendStatus
from lakelog_retention import plugin
from lakelog_testing import FakeClock

HOUR_MS = 3_600_000
SEGMENT = 16 << 10


@attrs.frozen
class ByClock:
    """Records like RocketMQ's, except for the store time."""

    inner: RocketmqAppendCallback
    clock: FakeClock

    def encode(self, messages: Sequence[Message]) -> EncodedBatch:
        return self.inner.encode(messages)

    def place(
        self,
        batch: EncodedBatch,
        position: int,
        remaining: int,
        queue_offsets: QueueOffsets,
        now_ms: int,
    ) -> AppendStatus:
        return batch.place(position, remaining, queue_offsets, self.clock.now_ms())


@attrs.define(eq=False)
class EventRecorder:
    """A plugin that stores by a clock, and records the store's events.

    :ivar deleted: start offsets of the deleted segments
    :ivar states: states of the disks, in order
    """

    clock: FakeClock
    deleted: list[int] = attrs.field(factory=list)
    states: list[DiskState] = attrs.field(factory=list)

    @hookimpl
    def lakelog_append_callbacks(self) -> Sequence[Factory]:
        return [Factory(Kind.APPEND_CALLBACK, "by-clock", NoSettings, self._make)]

    def _make(self, settings: NoSettings, context: Context) -> ByClock:
        return ByClock(make_rocketmq(settings, context), self.clock)

    @hookimpl
    def lakelog_segment_deleted(self, path: Path, start_offset: int) -> None:
        assert not path.exists()
        self.deleted.append(start_offset)

    @hookimpl
    def lakelog_disk_pressure(self, path: Path, state: DiskState) -> None:
        self.states.append(state)


def open_clocked(path: Path, recorder: EventRecorder, **more: Any) -> Store:
    """A store with maintenance by the witness's clock, once an hour by default."""
    given: dict[str, Any] = {
        "plugins": [plugin, recorder],
        "clock": recorder.clock,
        "append": "by-clock",
        "flush": "none",
        "dispatchers": ("consume-queue",),
        "segment_size_bytes": SEGMENT,
        "cleaner": "retention",
        "maintenance": {"first_round_ms": HOUR_MS, "interval_ms": HOUR_MS},
        "consume_queue": {"file_entries": 50},
        **more,
    }
    return lakelog.open(path, **given)


def starts(path: Path) -> list[int]:
    """Start offsets of the existing segments."""
    return sorted(int(each.name) for each in (path / "commitlog").iterdir() if each.name.isdigit())
