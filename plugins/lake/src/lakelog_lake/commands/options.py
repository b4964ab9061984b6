"""Options of several commands, and the choice of the engine where none was named.

That is Spark if installed, else processes. One line on stderr states the choice and its reason. An
installed Spark that does not work is an error with its cause; there is no silent fallback.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

import typer

import lakelog
from lakelog.errors import SettingsError
from lakelog_cli import options, output
from lakelog_lake.engine_provider import is_installed, provider

EngineName: TypeAlias = Literal["auto", "processes", "spark"]
"""Engines of tasks; ``auto`` is Spark if it is installed, else processes of this machine."""

StorePath: TypeAlias = Annotated[Path, typer.Argument(metavar="STORE", help="The store directory.")]
Table: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="NAMESPACE.TABLE",
        help="Iceberg table; default lakelog.messages. {topic} here or in PATH: one table a topic.",
    ),
]
Storage: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--storage",
        metavar="KEY=VALUE",
        help="Option of the object store, or property of the catalog; may be repeated.",
    ),
]


def pairs_of(given: Sequence[str] | None, key: str = "--storage") -> dict[str, str]:
    """``KEY=VALUE`` options by key; raises :class:`~lakelog.errors.SettingsError`."""
    found = [text.partition("=") for text in given or ()]
    wrong = next((each for each in found if not each[0] or not each[2]), None)
    if wrong is not None:  # print the key only: the value may be a secret
        raise SettingsError(f"{wrong[0]!r} is not KEY=VALUE", key=key)
    return {name: value for name, _, value in found}


def check_topics(store: Path, names: Sequence[str]) -> None:
    """Raise for a topic that the store does not have: a typo must not look like an empty topic."""
    if not names:
        return
    with lakelog.open(store, mode="read") as opened:
        known = opened.topics()
    for name in names:
        options.check_name("topic", name, known)


def chosen(given: EngineName, *, needs_spark: bool = False) -> EngineName:
    """The engine that was named, or the best one available.

    :param needs_spark: whether an option was given that only Spark supports

    Raises :class:`~lakelog.errors.SettingsError` if Spark is needed and missing.
    """
    if given != "auto":
        if needs_spark and given != "spark":
            raise SettingsError("options of Spark need --engine spark", key="--engine")
        return given
    missing: str | None = "lakelog-spark is not installed (pip install 'lakelog[spark]')"
    if is_installed("spark"):
        missing = provider("spark").missing()
    if missing is None:
        output.print_line("lakelog: engine spark: it, PySpark and Java are installed", err=True)
        return "spark"
    if needs_spark:
        raise SettingsError(f"options of Spark need Spark: {missing}", key="--engine")
    output.print_line(f"lakelog: engine processes, not spark: {missing}", err=True)
    return "processes"
