"""Lands a store in a table, pass by pass: position, range, files, one commit.

Nothing is remembered between passes: each begins with the position that the table says, and with a
look at whether the log still holds the record it names. After any error of a commit the table is
read again, and only what it says decides:

- it has this commit: done
- its position is where this pass began: the same files are committed again, on its new version
- its position is elsewhere: somebody else landed the range; these files are not of the table
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Sequence
from functools import reduce
from pathlib import Path
from typing import Final

import attrs

import lakelog
from lakelog_spark.landing.datafiles import Task, Written
from lakelog_spark.landing.engines import Engine
from lakelog_spark.landing.errors import TooManyConflicts
from lakelog_spark.landing.gathering import Span
from lakelog_spark.landing.position import Position, QueueEnds, merged
from lakelog_spark.landing.ranges import Bounds, first_offset, next_spans
from lakelog_spark.landing.selection import EVERYTHING, Chosen
from lakelog_spark.landing.sinks.base import Head, Sink

_log = logging.getLogger("lakelog_spark")
_TRIES: Final = 20
_FIRST_PAUSE_SECONDS: Final = 0.05
_LONGEST_PAUSE_SECONDS: Final = 2.0


@attrs.frozen
class Source:
    """A store, and what of it lands.

    :ivar store: its identity in tables
    :ivar skip_damage: whether damage is passed over; else a pass ends there with an error
    :ivar accept_gaps: whether to go on where messages were deleted before they landed
    """

    path: Path
    store: str
    skip_damage: bool = False
    chosen: Chosen = EVERYTHING
    accept_gaps: bool = False


@attrs.frozen
class Landed:
    """What a pass did.

    :ivar start: of its range, in bytes of the log
    :ivar end: of its range
    :ivar won: whether it was this pass that landed the range, and not another dispatcher
    :ivar damaged: pieces of the log, and bodies, that were passed over
    """

    start: int
    end: int
    rows: int
    files: int
    damaged: int
    won: bool


def land(
    source: Source,
    sink: Sink,
    engine: Engine,
    bounds: Bounds,
    on_phase: Callable[[str], None] = lambda _: None,
) -> Landed | None:
    """One pass; ``None`` if there is nothing to land.

    :param on_phase: told ``planned``, ``written`` and ``committed`` at the end of each phase

    Raises :class:`~lakelog_spark.landing.errors.LandingError`, and what the engine and the table
    raise; whatever happens, what was not committed lands in a later pass.
    """
    head = sink.head(source.store)
    with lakelog.open(source.path, mode="read") as store:
        start = first_offset(store, head.position, sink.name, accept_gaps=source.accept_gaps)
        spans = next_spans(store, start, bounds)
    if not spans:
        return None
    on_phase("planned")
    written = engine([_task(source, sink, span) for span in spans])
    on_phase("written")
    position = _position(head.position, spans, written)
    won = _commit(sink, head, source.store, written, position)
    on_phase("committed")
    rows = sum(each.rows for each in written)
    files = sum(len(each.files) for each in written)
    damaged = sum(each.damaged for each in written)
    return Landed(position.start, position.end, rows, files, damaged, won)


def _task(source: Source, sink: Sink, span: Span) -> Task:
    return Task(
        source.path,
        source.store,
        span,
        sink.folder,
        sink.layout,
        source.skip_damage,
        source.chosen,
    )


def _position(old: Position | None, spans: Sequence[Span], written: Sequence[Written]) -> Position:
    last = next((each.last for each in reversed(written) if each.last is not None), None)
    before: QueueEnds = {} if old is None else old.next_offsets
    ends = reduce(merged, (each.next_offsets for each in written), before)
    if last is None and old is not None:
        last = old.last
    return Position(spans[0].start, spans[-1].end, last, ends)


def _commit(
    sink: Sink, head: Head, store: str, written: Sequence[Written], position: Position
) -> bool:
    """Whether the range landed by this commit."""
    began, files = _mark(head), [file for each in written for file in each.files]
    pause = _FIRST_PAUSE_SECONDS
    failure: Exception | None = None
    for _ in range(_TRIES):
        try:
            sink.commit(head, store, files, position)
        except Exception as error:  # noqa: BLE001  # whatever it was, the table says what came of it
            failure = error
        else:
            return True
        head = sink.head(store)
        if _mark(head) == position.commit:
            return True
        if _mark(head) != began:
            _discard(written)
            return False
        _log.info("%s: trying again after %r", sink.name, failure)
        time.sleep(pause * random.uniform(0.5, 1.5))
        pause = min(pause * 2, _LONGEST_PAUSE_SECONDS)
    raise TooManyConflicts(
        f"{sink.name} took no commit in {_TRIES} tries; the last error was: {failure}"
    ) from failure


def _mark(head: Head) -> int | None:
    return None if head.position is None else head.position.commit


def _discard(written: Sequence[Written]) -> None:
    """Remove files of a range that somebody else landed: nothing refers to them."""
    for each in written:
        for file in each.files:
            Path(file.path).unlink(missing_ok=True)
