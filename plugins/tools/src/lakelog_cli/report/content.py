"""The content of a report: one pass over the log by segments, time and topics, then the rest."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import attrs
import numpy as np

import lakelog
from lakelog import Store
from lakelog.errors import StoreError
from lakelog.files.filesystem import RealFileSystem
from lakelog.files.segment_files import SegmentFile
from lakelog.format.layout import ABORT_FILE, OWN_DIR
from lakelog.format.record_batch import Blank, Damage, RecordBatch
from lakelog.maintenance.pins import read_pins
from lakelog.processes.ownership import is_owned
from lakelog_cli.statelines import CopyLags, GroupLag, group_lags, lag_rows
from lakelog_daemon.status import disks
from lakelog_doctor.parallel_scan import Part, WholeSegment, directory_of, segments_of


@attrs.define
class Segment:
    """One segment of the log.

    :ivar used_bytes: of records and blanks
    :ivar damaged_bytes: in ranges that are not whole records
    :ivar first_ms: store time of its first message; 0 if not known
    """

    start_offset: int
    length: int
    used_bytes: int = 0
    damaged_bytes: int = 0
    records: int = 0
    first_ms: int = 0

    @property
    def end_offset(self) -> int:
        """Its end, exclusive."""
        return self.start_offset + self.length


@attrs.frozen
class SegmentCounts:
    """Counts the content of the segments of a log.

    :ivar segments: in the order of the log
    :ivar segment_size_bytes: the length of a new segment
    """

    segments: tuple[Segment, ...]
    segment_size_bytes: int

    @classmethod
    def of(cls, store: Store) -> SegmentCounts:
        """Begin for the segments of a store that have bytes of the log."""
        found = tuple(Segment(each.start_offset, each.length) for each in log_files(store))
        return cls(found, store.settings.core.segment_size_bytes)

    def add(self, part: Part) -> None:
        """Add a part of the log; damage may span several segments."""
        if isinstance(part, RecordBatch):
            self._add_records(part)
            return
        if isinstance(part, WholeSegment):
            start, end = part.start_offset, part.end_offset
        else:
            start, end = part.offset, part.end_offset
        for segment in self.segments:
            length = min(end, segment.end_offset) - max(start, segment.start_offset)
            if length <= 0:
                continue
            if isinstance(part, Blank | WholeSegment):
                segment.used_bytes += length
                segment.records += part.records if isinstance(part, WholeSegment) else 0
            else:
                segment.damaged_bytes += length

    def _add_records(self, batch: RecordBatch) -> None:
        offsets = batch.starts + batch.base_offset
        for segment in self.segments:
            inside = (offsets >= segment.start_offset) & (offsets < segment.end_offset)
            if inside.any():
                segment.records += int(inside.sum())
                segment.used_bytes += int(batch.sizes[inside].sum())
                segment.first_ms = segment.first_ms or int(batch.store_timestamps_ms[inside][0])


def log_files(store: Store) -> list[SegmentFile]:
    """The segments that have bytes of the log."""
    found = segments_of(store)
    return [each for each in found if each.start_offset + each.length > store.min_offset]


BINS: Final = 120
"""Points of the charts over time."""
_DAY_MS: Final = 86_400_000
_HOUR_MS: Final = 3_600_000
_KEYS: Final = b"KEYS\x01"


@attrs.define
class TopicTotal:
    """Messages of one topic in the log: their number, bytes of records, and those with keys."""

    messages: int = 0
    record_bytes: int = 0
    with_keys: int = 0


@attrs.define
class TrafficOverTime:
    """Messages and bytes over time, in bins of equal width."""

    first_ms: int
    last_ms: int
    messages: list[int] = attrs.field(factory=lambda: [0] * BINS)
    record_bytes: list[int] = attrs.field(factory=lambda: [0] * BINS)

    @classmethod
    def of(cls, store: Store) -> TrafficOverTime:
        """Begin for the times from the first message to the last."""
        first, last = (each or 0 for each in first_and_last_time(store))
        return cls(first, max(first, last))

    @property
    def bin_ms(self) -> float:
        """Width of a bin; at least a millisecond."""
        return max(1.0, (self.last_ms - self.first_ms + 1) / BINS)

    @property
    def growth_bytes_per_day(self) -> float | None:
        """Bytes a day, of the last day that the log covers; ``None`` for less than an hour."""
        span_ms = self.last_ms - self.first_ms + 1
        if span_ms < _HOUR_MS:
            return None
        bins = min(BINS, max(1, round(_DAY_MS / self.bin_ms)))
        return sum(self.record_bytes[-bins:]) / (bins * self.bin_ms) * _DAY_MS

    def add(self, batch: RecordBatch) -> None:
        """Count the records of a batch; times outside of the range count at its ends."""
        at = ((batch.store_timestamps_ms - self.first_ms) / self.bin_ms).astype(np.int64)
        at = np.clip(at, 0, BINS - 1)
        for counts, weights in ((self.messages, None), (self.record_bytes, batch.sizes)):
            found = np.bincount(at, weights, BINS)
            counts[:] = [a + int(b) for a, b in zip(counts, found, strict=True)]


@attrs.define
class Content:
    """The whole content of a report.

    :ivar made_ms: time of its reading, in ms since 1970
    :ivar followers: name, destination and bytes behind the durable end
    :ivar copies: name, bytes, messages and seconds behind, if known, and a remark
    """

    path: str
    made_ms: int
    state: str
    written_by: str
    min_offset: int
    max_offset: int
    traffic: TrafficOverTime
    topics: dict[str, TopicTotal]
    segments: SegmentCounts
    damages: list[Damage]
    queues: list[lakelog.QueueInfo]
    groups: list[GroupLag]
    followers: list[tuple[str, str, int]]
    copies: list[tuple[str, dict[str, Any] | None, str]]
    disks: list[dict[str, Any]]
    cleaner: str | None

    @property
    def records(self) -> int:
        """Whole records in the log."""
        return sum(each.records for each in self.segments.segments)


def read_content(store: Store, advance: Callable[[int], None]) -> Content:
    """Read a store that is open for reading; ``advance`` gets the offset that was reached."""
    directory, segments = directory_of(store), SegmentCounts.of(store)
    traffic = TrafficOverTime.of(store)
    topics: dict[str, TopicTotal] = {}
    damages: list[Damage] = []
    for piece in store.scan_pieces():
        segments.add(piece)
        if isinstance(piece, RecordBatch):
            traffic.add(piece)
            _add_topics(topics, piece)
            advance(piece.end_offset)
        elif isinstance(piece, Damage):
            damages.append(piece)
    queues = store.queues()
    return Content(
        path=str(store.path),
        made_ms=time.time_ns() // 1_000_000,
        state=_state(store.path),
        written_by="lakelog" if (store.path / OWN_DIR).is_dir() else "RocketMQ",
        min_offset=store.min_offset,
        max_offset=store.max_offset,
        traffic=traffic,
        topics=topics,
        segments=segments,
        damages=damages,
        queues=queues,
        groups=group_lags(store, queues),
        followers=list(_followers(store)),
        copies=list(_copies(store)),
        disks=disks(store.path, directory.commitlog),
        cleaner=store.settings.core.cleaner,
    )


def _state(path: Path) -> str:
    if is_owned(RealFileSystem(), path):
        return "in use"
    return "not closed: its last writer was killed" if (path / ABORT_FILE).exists() else "closed"


def read_traffic(store: Store) -> TrafficOverTime:
    """Messages and bytes over time, by one pass over the log without checksums."""
    traffic = TrafficOverTime.of(store)
    for piece in store.scan_pieces(verify=False):
        if isinstance(piece, RecordBatch):
            traffic.add(piece)
    return traffic


def first_and_last_time(store: Store) -> tuple[int | None, int | None]:
    """Store times of the first and the last message, in ms since 1970; ``None`` without any."""
    first = next(_times(store, store.min_offset, 0), None)
    for each in reversed(log_files(store)):
        last = deque(_times(store, max(each.start_offset, store.min_offset), -1), maxlen=1)
        if last:
            return first, last[0]
    return first, None


def _times(store: Store, start: int, at: int) -> Iterator[int]:
    """Store time of one record of each batch from ``start`` on."""
    for piece in store.scan_pieces(start, verify=False):
        if isinstance(piece, RecordBatch):
            yield int(piece.store_timestamps_ms[at])


def _add_topics(topics: dict[str, TopicTotal], batch: RecordBatch) -> None:
    names = np.array(batch.topics, dtype=object)
    keyed = np.array([_KEYS in each for each in batch.property_strings])
    for name in Counter(batch.topics):
        these = names == name
        total = topics.setdefault(name, TopicTotal())
        total.messages += int(these.sum())
        total.record_bytes += int(batch.sizes[these].sum())
        total.with_keys += int(keyed[these].sum())


def _followers(store: Store) -> Iterator[tuple[str, str, int]]:
    try:
        end = store.flushed_offset
    except StoreError:
        end = store.max_offset
    for pin in read_pins(RealFileSystem(), store.path):
        yield pin.name, pin.destination, max(0, end - pin.position)


def _copies(store: Store) -> Iterator[tuple[str, dict[str, Any] | None, str]]:
    view = CopyLags(store).view()
    for name, lag, remark in lag_rows(view) if view is not None else ():
        yield name, dict(lag) if lag is not None else None, remark
