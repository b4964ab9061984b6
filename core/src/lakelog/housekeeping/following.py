"""Lets queues and index follow the log's minimum; that they lag behind it is right at any time."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final

import attrs

from lakelog.dispatch.run import NamedDispatcher
from lakelog.dispatch.runner import DispatchRunner
from lakelog.errors import StoreError
from lakelog.files.pages.positions import Positions
from lakelog.interfaces import FrontRemover

_LOG: Final = logging.getLogger("lakelog")


@attrs.define(eq=False)
class IndexTrimmer:
    """What was built from a log.

    :ivar forget_unused: removes the queues of topics of which nothing is left, and names them;
        called between two runs of records, with the dispatchers. ``None`` where such queues stay
    :ivar done: the minimum for which all is done
    """

    _reput: DispatchRunner
    _positions: Positions
    _forget_unused: Callable[[Sequence[NamedDispatcher]], Sequence[str]] | None = None
    _done: int = -1

    def follow(self) -> tuple[int, tuple[str, ...]]:
        """Remove what is wholly below the minimum; how many files, and which topics.

        What a disk does not let us remove is told in the log, and tried again with the next
        segment.
        """
        minimum = self._positions.minimum
        if self._done == minimum or self._reput.failure is not None:
            return 0, ()
        removed = 0
        with self._reput.paused() as dispatchers:
            for each in dispatchers:
                removed += _remove(each, minimum)
            forget = self._forget_unused
            topics = () if forget is None else tuple(forget(dispatchers))
        self._done = minimum
        return removed, topics


def _remove(named: NamedDispatcher, minimum: int) -> int:
    dispatcher = named.dispatcher
    if not isinstance(dispatcher, FrontRemover):
        return 0
    try:
        return dispatcher.remove_before(minimum)
    except (OSError, StoreError) as error:
        _LOG.warning("%s: what is older than offset %d stays: %s", named.name, minimum, error)
        return 0
