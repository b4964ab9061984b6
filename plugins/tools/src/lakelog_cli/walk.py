"""Scans the log of an open store with a progress bar, and reports damage."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import TypeVar

import attrs

from lakelog import Store
from lakelog.format.record_batch import Blank, Damage, Piece
from lakelog_cli.output import print_line, progress
from lakelog_doctor.parallel_scan import Part, parallel_scan, segments_of

PartT = TypeVar("PartT", bound="Part")


@attrs.define
class DamageCounter:
    """Counts damage, and prints each instance to stderr.

    :ivar count: number of damaged ranges
    """

    count: int = 0

    def __call__(self, damage: Damage) -> None:
        """Count and print one instance."""
        print_damage(damage)
        self.count += 1


def walk(
    store: Store, on_damage: DamageCounter, start: int | None = None, end: int | None = None
) -> Iterator[Piece]:
    """Yield the log from ``start`` to ``end``."""
    first = max(store.min_offset, start or 0)
    last = _log_end(store) if end is None else end
    # Lines on a terminal show progress themselves, and a bar between them would flicker.
    hidden = sys.stdout.isatty()
    pieces = store.scan_pieces(start, end)
    return _walked(pieces, first, last, hidden=hidden, on_damage=on_damage)


def walk_parts(
    store: Store, processes: int | None, on_damage: Callable[[Damage], None]
) -> Iterator[Part]:
    """Yield the whole log, read by several processes."""
    parts = parallel_scan(store, processes)
    return _walked(parts, store.min_offset, _log_end(store), hidden=False, on_damage=on_damage)


def print_damage(damage: Damage) -> None:
    """Print one line to stderr."""
    print_line(f"damaged: {damage}", err=True)


def _walked(
    parts: Iterator[PartT],
    first: int,
    last: int,
    *,
    hidden: bool,
    on_damage: Callable[[Damage], None],
) -> Iterator[PartT]:
    with progress("reading", max(0, last - first), hidden=hidden) as advance:
        for part in parts:
            if isinstance(part, Damage):
                on_damage(part)
            yield part
            advance(_end_of(part) - first)


def _log_end(store: Store) -> int:
    """The end of the last segment, a physical offset."""
    return max((each.start_offset + each.length for each in segments_of(store)), default=0)


def _end_of(piece: Part) -> int:
    return piece.offset + piece.size if isinstance(piece, Blank) else piece.end_offset
