"""A progress bar on stderr, where stderr is a terminal; elsewhere nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

Advance: TypeAlias = Callable[[float], None]
"""Told how much is done by now."""


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
        task = bar.add_task(words, total=total)
        yield lambda done: bar.update(task, completed=done)
