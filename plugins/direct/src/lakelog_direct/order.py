"""What both writers rely on: a log grows at its end."""

from __future__ import annotations


def check_order(position: int, end: int) -> None:
    """Raise ``ValueError`` for a write anywhere but at the end of what was written."""
    if position != end:
        raise ValueError(
            f"a write at {position} bytes into a segment that is written up to {end}; segments are "
            "written in order and without gaps"
        )
