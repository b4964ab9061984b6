"""A progress bar of landing on a terminal; nothing elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    from pathlib import Path

    from lakelog_cli.progress import Advance
    from lakelog_lake.tasks.engines import Engine
    from lakelog_lake.tasks.task import Task, Written


@attrs.define
class LandingBar:
    """Moves with each finished task, as a pass may take minutes.

    :ivar _end: of the log when the last pass began, in bytes
    """

    _store: Path
    _advance: Advance
    _start: int | None = None
    _ends: list[int] = attrs.field(factory=list)
    _end: int = 0

    def watched(self, engine: Engine) -> Engine:
        """Return ``engine`` with tasks that move the bar."""

        def run(tasks: Sequence[Task]) -> Sequence[Written]:
            self._begin(tasks)
            return engine(tasks)

        return run

    def done(self) -> None:
        """Count one finished task; tasks are reported in their order."""
        if self._ends and self._start is not None:
            self._advance(self._ends.pop(0) - self._start, self._end - self._start)

    def _begin(self, tasks: Sequence[Task]) -> None:
        import lakelog

        if self._start is None:
            self._start = tasks[0].span.start
        self._ends = [each.span.end for each in tasks]
        with lakelog.open(self._store, mode="read") as store:
            self._end = max(store.max_offset, self._ends[-1])
        self._advance(tasks[0].span.start - self._start, self._end - self._start)


@contextmanager
def landing_bar(store: Path) -> Iterator[LandingBar | None]:
    """Show a bar during the block; yields ``None`` where stderr is no terminal."""
    import sys

    if not sys.stderr.isatty():
        yield None
        return
    from lakelog_cli.progress import progress  # brings rich

    with progress("landing") as advance:
        yield LandingBar(store, advance)


@contextmanager
def reading_bar() -> Iterator[Callable[[int, int], None]]:
    """Yield a function that takes the bytes read so far, and their total."""
    from lakelog_cli.progress import progress  # brings rich

    with progress("reading") as advance:
        yield advance


def both(bar: LandingBar | None, other: Callable[[], object]) -> Callable[[], None]:
    """Return a function, called after each task, that calls ``other`` and moves the bar."""

    def done() -> None:
        other()
        if bar is not None:
            bar.done()

    return done
