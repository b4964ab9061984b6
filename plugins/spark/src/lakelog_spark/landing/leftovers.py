"""Removes data files that no table will ever name; a kill leaves them, which harms nothing."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from lakelog_spark.landing.facts import FileFacts


def discard(files: Iterable[FileFacts]) -> None:
    """Remove them, if they are there."""
    for each in files:
        with suppress(OSError):  # it is about tidiness only, and may be about a disk that fails
            Path(each.path).unlink(missing_ok=True)
