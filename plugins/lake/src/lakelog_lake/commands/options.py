"""Who does the work of a command."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path


class EngineName(StrEnum):
    """Processes of this machine, or Spark's tasks; by itself, Spark's where Spark is installed."""

    AUTO = "auto"
    PROCESSES = "processes"
    SPARK = "spark"


def check_topics(store: Path, names: Sequence[str]) -> None:
    """Raise for a topic that the store does not have: a typo must not look like an empty topic."""
    if not names:
        return
    import lakelog
    from lakelog.cli.notthere import check_name

    with lakelog.open(store, mode="read") as opened:
        known = opened.topics()
    for name in names:
        check_name("topic", name, known)
