"""Who does the work of a command."""

from __future__ import annotations

from enum import StrEnum


class EngineName(StrEnum):
    """Processes of this machine, or Spark's tasks."""

    ARROW = "arrow"
    SPARK = "spark"
