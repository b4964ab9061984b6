"""A progress bar on stderr, where stderr is a terminal; elsewhere nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

import attrs
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn


class Advance(Protocol):
    """Told how much is done by now, and of how much once that is known."""

    def __call__(self, done: float, total: float | None = None) -> None:
        """Move the bar."""

    def phase(self, words: str) -> None:
        """Begin again at nothing, under another name."""


@attrs.frozen
class _Bar:
    """One line of a terminal."""

    bar: Progress
    task: TaskID

    def __call__(self, done: float, total: float | None = None) -> None:
        self.bar.update(self.task, completed=done, total=total)

    def phase(self, words: str) -> None:
        self.bar.reset(self.task, total=None, description=words)


@contextmanager
def progress(words: str, total: float | None = None, *, hidden: bool = False) -> Iterator[Advance]:
    """A bar for as long as the block runs; without a total it only shows that work goes on."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(
        *columns,
        console=console,
        transient=True,
        redirect_stdout=False,
        disable=hidden or not console.is_terminal,
    ) as bar:
        yield _Bar(bar, bar.add_task(words, total=total))
