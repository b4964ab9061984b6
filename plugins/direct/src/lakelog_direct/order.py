"""The precondition of both writers: a segment is only appended to."""

from __future__ import annotations


def check_order(position: int, end: int) -> None:
    """Raise ``ValueError`` if a write does not start at the end of the written bytes."""
    if position != end:
        raise ValueError(
            f"a write at {position} bytes into a segment that is written up to {end}; segments are "
            "written in order and without gaps"
        )
