"""Trims queues and index to the log's minimum; they may lag behind it at any time."""

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
    """Queues and index of a log, as maintenance uses them.

    :ivar forget_unused: removes the queues of topics without remaining records and returns the
        names; called with the dispatchers while dispatching is paused. ``None`` keeps such queues
    """

    _reput: DispatchRunner
    _positions: Positions
    _forget_unused: Callable[[Sequence[NamedDispatcher]], Sequence[str]] | None = None
    _done: int = -1

    def follow(self) -> tuple[int, tuple[str, ...]]:
        """Remove files wholly below the minimum; return the number of files, and the topics.

        A file that cannot be removed is logged, and tried again with the next segment.
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
        _LOG.warning("%s: files before offset %d were not removed: %s", named.name, minimum, error)
        return 0
