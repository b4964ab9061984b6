"""A pass that a thread writes while the one before it is committed.

It has files, and nothing names them: whoever began it either takes them for the pass that begins
where this one did, or has them removed. Both wait until its tasks are done.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from threading import Thread
from typing import Any, Final

import attrs

from lakelog.runtime.threads import soon_done
from lakelog_lake.log.range_reader import LogSpan
from lakelog_lake.tasks.engines import drop
from lakelog_lake.tasks.task import Written

_NAME: Final = "lakelog-landing-ahead"


@attrs.frozen
class ReadAhead:
    """One such pass.

    :ivar spans: what it lands
    :ivar _starts: where it takes each table to be
    """

    spans: Sequence[LogSpan]
    _starts: Sequence[tuple[Any, int]]
    _written: Future[Sequence[Written]]

    @classmethod
    def begun(
        cls,
        spans: Sequence[LogSpan],
        starts: Sequence[tuple[Any, int]],
        write: Callable[[], Sequence[Written]],
    ) -> ReadAhead:
        """Begin to ``write``; at once, here, where the system gives no thread."""
        return cls(spans, starts, soon_done(_in_a_thread, _NAME, write))

    def is_of(self, starts: Sequence[tuple[Any, int]]) -> bool:
        """Whether it is the pass of these tables, which are to go on at ``starts``."""
        return list(self._starts) == list(starts)

    def written(self) -> Sequence[Written]:
        """What its tasks did; raises what they raised."""
        return self._written.result()

    def drop(self) -> None:
        """Remove its files; the engine has removed those of tasks that failed."""
        with suppress(Exception):
            drop(self.written())


def _in_a_thread(work: Callable[[], None]) -> None:
    Thread(target=work, name=_NAME, daemon=True).start()
