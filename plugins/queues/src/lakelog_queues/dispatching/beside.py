"""From where a reader dispatches beside a living owner, whose files it reads while they grow.

An owner that follows its log had complete queues once, and has dispatched since in the order of the
log: a batch goes to all queues before the next one does, and spans at most ``BATCH_BYTES``, unless
it is one larger record. So, with D as the end of the last batch that went to all queues:

1. A unit that stands in a file belongs to a batch that begins at or before D. Let its record start
   at ``o``. Either the record is its whole batch, and ``D >= o``; or the batch ends behind the
   record, spans ``BATCH_BYTES`` at most, and begins at or before D: ``D > o - BATCH_BYTES``. Hence
   every record that ends at or before ``o - BATCH_BYTES`` had all its units, from then on.
2. The queues are loaded one by one, and the owner goes on meanwhile. Files that are loaded after
   ``o`` was seen hold all units up to there; so ``o`` comes from a first look at all of them, and
   what counts is the second.

Every dispatch from a record at or before ``o - BATCH_BYTES`` therefore finds all that is missing,
and what it finds again changes nothing. An owner that has died since, or others that came after
it, left files of which the same holds: they are in the page cache, whole to the last batch.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from lakelog_queues.dispatching.making import AnyQueue

BATCH_BYTES: Final = 4 << 20
"""What an owner reads, and dispatches, at once (``lakelog.log.reading.scan.WINDOW_BYTES``)."""
_SLACK_BYTES: Final = 3 * BATCH_BYTES
"""One is enough; the others are for owners that another lakelog runs."""


def complete_to(queues: Collection[AnyQueue]) -> int:
    """Up to where in the log every queue has its units, if it is looked at from now on."""
    last = max(queues, key=lambda queue: queue.reached, default=None)
    return 0 if last is None else max(0, last.before(last.reached) - _SLACK_BYTES)


def start_before(queues: Collection[AnyQueue], limit: int) -> int:
    """Where a record starts or ends at or before ``limit``, not far from it; 0 if none is known."""
    found = max((queue.reached for queue in queues if queue.reached <= limit), default=0)
    for queue in queues:
        if found >= limit - BATCH_BYTES:
            break
        if queue.reached > limit:
            found = max(found, queue.before(limit + 1))
    return found
