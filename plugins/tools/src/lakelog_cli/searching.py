"""Finds messages by topic, time, tag, key and text, with a process for each range of the log."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Final

import attrs
import numpy as np
from numpy.typing import NDArray

from lakelog import Store
from lakelog.files.segment_files import segment_files
from lakelog.format.compression import decompress
from lakelog.format.sysflag import COMPRESSED
from lakelog.log.reading.pieces import Damage
from lakelog_cli.walk import directory_of
from lakelog_format.codec.record_batch import RecordBatch

WORTH_BYTES: Final = 128 << 20
"""A shorter log is read by one process: starting others takes longer."""

Flags = NDArray[np.bool_]


@attrs.frozen
class Search:
    """Conditions, all of which a message must meet.

    :ivar pattern: a regular expression over the original body's bytes; ``None`` for any body
    :ivar is_literal: whether the pattern is a text without special characters
    :ivar topics: any of these; empty for all
    :ivar tag: the whole tag
    :ivar key: one of the message's keys, or its unique key
    :ivar since_ms: store time, inclusive
    :ivar until_ms: store time, inclusive
    """

    pattern: re.Pattern[bytes] | None
    is_literal: bool = False
    topics: frozenset[str] = frozenset()
    tag: str | None = None
    key: str | None = None
    since_ms: int | None = None
    until_ms: int | None = None

    def matches(self, batch: RecordBatch) -> NDArray[np.int64]:
        """The indices of the messages that meet the conditions, in order."""
        chosen = np.ones(len(batch), np.bool_)
        if self.since_ms is not None:
            chosen &= batch.store_timestamps_ms >= self.since_ms
        if self.until_ms is not None:
            chosen &= batch.store_timestamps_ms <= self.until_ms
        if self.topics:
            chosen &= [each in self.topics for each in batch.topics]
        if self.tag is not None or self.key is not None:
            self._by_properties(batch, chosen)
        if self.pattern is not None and chosen.any():
            self._by_text(batch, self.pattern, chosen)
        return np.flatnonzero(chosen)

    def _by_properties(self, batch: RecordBatch, chosen: Flags) -> None:
        some = batch.take(chosen)
        chosen[chosen] = [
            (self.tag is None or each.get("TAGS") == self.tag)
            and (self.key is None or self.key in _keys(each))
            for each in some.properties
        ]

    def _by_text(self, batch: RecordBatch, pattern: re.Pattern[bytes], chosen: Flags) -> None:
        if self.is_literal and batch.decoder is None and not (batch.sys_flags & COMPRESSED).any():
            chosen &= _with_text(batch, pattern)
            return
        chosen[chosen] = [
            pattern.search(_body(batch, int(at))) is not None for at in np.flatnonzero(chosen)
        ]


def _keys(properties: dict[str, str]) -> list[str]:
    return [*properties.get("KEYS", "").split(), properties.get("UNIQ_KEY", "")]


def _body(batch: RecordBatch, at: int) -> bytes:
    """The original body; as stored if it cannot be unpacked."""
    message = batch.message(at)
    try:
        return decompress(message.body, message.sys_flag)
    except ValueError:
        return message.body


def _with_text(batch: RecordBatch, pattern: re.Pattern[bytes]) -> Flags:
    """For each body, whether it has a literal text: the whole run is searched at once.

    A text in a topic or in properties, or one that begins in a body and ends behind it, is found as
    well, and left out. The search goes on one byte behind, as a body may begin within such a text.
    """
    starts = batch.body_positions
    ends = starts + batch.body_lengths
    found = np.zeros(len(batch), np.bool_)
    match = pattern.search(batch.buffer)
    while match is not None:
        at = int(np.searchsorted(starts, match.start(), "right")) - 1
        is_inside = at >= 0 and match.end() <= ends[at]
        if is_inside:
            found[at] = True
        match = pattern.search(batch.buffer, int(ends[at]) if is_inside else match.start() + 1)
    return found


def search(
    store: Store,
    open_again: Callable[[], Store],
    wanted: Search,
    processes: int | None,
    on_damage: Callable[[Damage], None],
) -> Iterator[int]:
    """Yield the physical offsets of the messages that match, in the log's order.

    :param open_again: opens the store with the same settings, in another process
    :param processes: number of reading processes; ``None`` is one per core if the log is long
        enough
    """
    ranges = _ranges(store)
    if processes is None:
        is_long = store.max_offset - store.min_offset >= WORTH_BYTES
        processes = len(os.sched_getaffinity(0)) if is_long else 1
    if min(processes, len(ranges)) < 2:
        offsets, damages = _found(store, wanted, None)
        yield from _reported(offsets, damages, on_damage)
        return
    with ProcessPoolExecutor(processes, get_context("spawn")) as pool:
        asked = [pool.submit(_search_range, open_again, wanted, each) for each in ranges]
        for answer in asked:
            yield from _reported(*answer.result(), on_damage)


def _reported(
    offsets: Sequence[int], damages: Sequence[Damage], on_damage: Callable[[Damage], None]
) -> Iterator[int]:
    for damage in damages:
        on_damage(damage)
    yield from offsets


def _ranges(store: Store) -> list[tuple[int, int | None]]:
    """A range for each segment; the last one has no end, as it may grow."""
    directory = directory_of(store)
    found = segment_files(directory.commitlog, directory.files.list(directory.commitlog))
    starts = [each.start_offset for each in found if each.start_offset < store.max_offset]
    starts = [max(start, store.min_offset) for start in starts if start >= store.min_offset]
    ends: list[int | None] = [*starts[1:], None]
    return list(zip(starts, ends, strict=True))


def _search_range(
    open_store: Callable[[], Store],
    wanted: Search,
    part: tuple[int, int | None],
) -> tuple[list[int], list[Damage]]:
    """Search a range in a process of its own."""
    with open_store() as store:
        return _found(store, wanted, part)


def _found(
    store: Store, wanted: Search, part: tuple[int, int | None] | None
) -> tuple[list[int], list[Damage]]:
    offsets: list[int] = []
    damages: list[Damage] = []
    start, end = part if part is not None else (None, None)
    for piece in store.scan_pieces(start, end):
        if isinstance(piece, RecordBatch):
            places = piece.starts[wanted.matches(piece)] + piece.base_offset
            inside = places if end is None else places[places < end]
            offsets += inside.tolist()
        elif isinstance(piece, Damage):
            damages.append(piece)
    return offsets, damages
