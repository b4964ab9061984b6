"""A progress bar on stderr, if that is a terminal; otherwise nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

import attrs
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn


class Advance(Protocol):
    """Called with the amount done, and the total once it is known."""

    def __call__(self, done: float, total: float | None = None) -> None:
        """Move the bar."""

    def phase(self, words: str) -> None:
        """Restart the bar at zero, with another description."""


@attrs.frozen
class _Bar:
    """The bar on the terminal."""

    bar: Progress
    task: TaskID

    def __call__(self, done: float, total: float | None = None) -> None:
        self.bar.update(self.task, completed=done, total=total)

    def phase(self, words: str) -> None:
        self.bar.reset(self.task, total=None, description=words)


@contextmanager
def progress(words: str, total: float | None = None, *, hidden: bool = False) -> Iterator[Advance]:
    """Show a bar while the block runs; without a total it only indicates activity."""
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
