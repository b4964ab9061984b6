"""The model of the bench: a suite has contests; the contenders of a contest do the same work."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeAlias

LAKELOG: Final = "lakelog"
ROCKETMQ: Final = "rocketmq"

Sample: TypeAlias = Mapping[str, float]
"""The figures of one run, by the name of their column."""


class CannotRunError(Exception):
    """A contender cannot run; the text has the missing requirement, or the error of its process."""


class NothingPutError(CannotRunError):
    """A store is here, and put nothing."""


@dataclass(frozen=True)
class Column:
    """A figure of a sample: its name and its format."""

    name: str
    heading: str
    form: str = ",.0f"


@dataclass(frozen=True)
class Contender:
    """One way to do the work; runs in an empty directory, or raises CannotRunError.

    :ivar beside: by the heading of a column, the contender with which this one is compared
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


@dataclass(frozen=True)
class Suite:
    """A table of the report; ratios use the first column.

    :ivar contests: makes the contests; if its argument is true, with a tenth of the work or less
    """

    name: str
    about: str
    columns: Sequence[Column]
    contests: Callable[[bool], Sequence[Contest]]
    lower_is_better: bool = False


def counted(count: int, what: str) -> str:
    """Return a number with a noun."""
    return f"{count:,} {what}{'s' * (count > 1)}"
