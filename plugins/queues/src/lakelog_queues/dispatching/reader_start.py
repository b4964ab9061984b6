"""Finds the offset from which a reader builds units in memory while an owner writes the files.

The queues of an owner were complete once. Since then it has dispatched in the order of the log, one
batch to all queues before the next. A batch spans at most ``BATCH_BYTES``, unless it is one larger
record. Let D be the end of the last batch that is in all queues.

1. The batch of any unit in a file begins at or before D. Let the unit's record start at ``o``. If
   the record is a batch of its own, then ``D >= o``. Otherwise the batch contains the record, spans
   at most ``BATCH_BYTES`` and begins at or before D; so ``D > o - BATCH_BYTES``. Hence every record
   that ends at or before ``o - BATCH_BYTES`` has all its units.
2. Queues are loaded one after the other, while the owner continues. A file that is loaded after
   ``o`` was read holds all units up to there. So the queues are loaded twice: the first load
   determines ``o``, and only the second is used.

Therefore a dispatch from a record at or before ``o - BATCH_BYTES`` adds all missing units; existing
ones are not added again. All this also holds if the owner has died, or if other owners followed:
their writes are in the page cache, complete up to the last batch.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from lakelog_queues.dispatching.making import AnyQueue

BATCH_BYTES: Final = 4 << 20
"""Length of a batch that an owner dispatches (``lakelog.log.reading.scan.WINDOW_BYTES``)."""
_SLACK_BYTES: Final = 3 * BATCH_BYTES
"""One batch is enough; the others allow for owners with another version of lakelog."""


def complete_to(queues: Collection[AnyQueue]) -> int:
    """The physical offset up to which every queue that is loaded from now on has its units."""
    last = max(queues, key=lambda queue: queue.reached, default=None)
    return 0 if last is None else max(0, last.before(last.reached) - _SLACK_BYTES)


def start_before(queues: Collection[AnyQueue], limit: int) -> int:
    """The start or end of a record at or shortly before ``limit``; 0 if none is known."""
    found = max((queue.reached for queue in queues if queue.reached <= limit), default=0)
    for queue in queues:
        if found >= limit - BATCH_BYTES:
            break
        if queue.reached > limit:
            found = max(found, queue.before(limit + 1))
    return found
