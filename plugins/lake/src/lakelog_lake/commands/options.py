"""Options of several commands: the engine, and access to an object store."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from lakelog.errors import SettingsError


class EngineName(StrEnum):
    """Engines of tasks; ``auto`` is Spark if it is installed, else processes of this machine."""

    AUTO = "auto"
    PROCESSES = "processes"
    SPARK = "spark"


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
    import lakelog
    from lakelog_cli.unknown_names import check_name

    with lakelog.open(store, mode="read") as opened:
        known = opened.topics()
    for name in names:
        check_name("topic", name, known)
