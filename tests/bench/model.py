"""What is measured: a suite holds contests, and in a contest several contenders do the same."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, TypeAlias

LAKELOG = "lakelog"

Sample: TypeAlias = Mapping[str, float]
"""The figures of one run, by the name of their column."""


class CannotRunError(Exception):
    """Why a contender has no figures here: what is missing, or what it died of."""


@dataclass(frozen=True)
class Column:
    """A figure of a sample: how it is called and written."""

    name: str
    heading: str
    form: str = ",.0f"


@dataclass(frozen=True)
class Contender:
    """One way of doing it; runs in an empty directory, or raises CannotRunError.

    :ivar beside: by the heading of a column, the contender that this one is compared with
    """

    name: str
    note: str
    run: Callable[[Path], Sample]
    beside: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Contest:
    """The same work for every contender."""

    title: str
    contenders: Sequence[Contender]


class Suite(Protocol):
    """A table of the report; ratios are of the first column."""

    name: str
    about: str
    columns: Sequence[Column]
    lower_is_better: bool

    def contests(self, *, quick: bool) -> Sequence[Contest]:
        """List what is run; `quick` asks for a tenth of the work or less."""
