"""The files of a pass that a thread writes while the previous pass is committed.

No version of a table lists these files yet. The caller either uses them for the pass with the same
start, or removes them. Both wait until the tasks are done.
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
    """One pass written ahead.

    :ivar spans: the ranges of the log of this pass
    :ivar _starts: the tables with the start offsets that the pass assumes
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
        """Start ``write`` in a thread; run it here if the system can start no thread."""
        return cls(spans, starts, soon_done(_in_a_thread, _NAME, write))

    def is_of(self, starts: Sequence[tuple[Any, int]]) -> bool:
        """Whether it was written for these tables and start offsets."""
        return list(self._starts) == list(starts)

    def written(self) -> Sequence[Written]:
        """Wait for the results of its tasks; raises their errors."""
        return self._written.result()

    def drop(self) -> None:
        """Wait, and remove its files; the engine has removed those of failed tasks."""
        with suppress(Exception):
            drop(self.written())


def _in_a_thread(work: Callable[[], None]) -> None:
    Thread(target=work, name=_NAME, daemon=True).start()
