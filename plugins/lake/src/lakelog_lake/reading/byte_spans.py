"""The byte spans that one task reads: its whole range, or the surroundings of known records."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Final

import lakelog
from lakelog.errors import CorruptRecord, OffsetOutOfRange
from lakelog_lake.log.queue_files import queue_files, real
from lakelog_lake.log.wanted import NumberSpan

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from lakelog_lake.reading.plan import LogRange

    Longs = NDArray[np.int64]

GAP_BYTES: Final = 64 << 10
"""Records with smaller gaps between them are read together."""
_log = logging.getLogger("lakelog_lake")


def byte_spans(store: lakelog.Store, part: LogRange) -> Iterator[NumberSpan]:
    """The spans to read, in log order; each starts where a record should."""
    if part.places is not None:
        yield from _joined(*_at_places(store, part.places))
    elif part.units is not None:
        yield from _joined(*_led_to(store.path, part))
    else:
        yield NumberSpan(part.start, part.end)


def _at_places(store: lakelog.Store, places: Sequence[int]) -> tuple[Longs, Longs]:
    """Start and end of records at offsets from an index, which may name deleted records."""
    import numpy as np

    found: list[tuple[int, int]] = []
    for place in places:
        try:
            found.append((place, place + store.look_up(place).size))
        except (CorruptRecord, OffsetOutOfRange) as error:
            _log.warning("the key index names an offset without a whole record: %s", error)
    both = np.array(found, np.int64).reshape(-1, 2)
    return both[:, 0], both[:, 1]


def _led_to(path: Path, part: LogRange) -> tuple[Longs, Longs]:
    """Start and end of the records of the units, sorted."""
    import numpy as np

    offsets, ends = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    with queue_files(path) as queues:
        by_name = {each.queue: each for each in queues}
        for topic, queue_id, first, end in part.units or ():
            raw = by_name[topic, queue_id].units(first, end - first)
            raw = raw[real(raw)]
            offsets.append(raw["offset"].astype(np.int64))
            ends.append(offsets[-1] + raw["size"])
    starts, stops = np.concatenate(offsets), np.concatenate(ends)
    inside = (starts >= part.start) & (starts < part.end)
    order = np.argsort(starts[inside], kind="stable")
    return starts[inside][order], stops[inside][order]


def _joined(starts: Longs, ends: Longs) -> Iterator[NumberSpan]:
    """Merge neighbouring records to spans."""
    import numpy as np

    if not len(starts):
        return
    ends = np.maximum.accumulate(ends)
    far = np.flatnonzero(starts[1:] - ends[:-1] > GAP_BYTES) + 1
    bounds = [0, *far.tolist(), len(starts)]
    for first, behind in pairwise(bounds):
        yield NumberSpan(int(starts[first]), int(ends[behind - 1]))
