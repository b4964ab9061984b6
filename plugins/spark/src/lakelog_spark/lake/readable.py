"""Files of a table that are gone or broken, told as an error in one line."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from lakelog_spark.lake.errors import Unreadable


@contextmanager
def readable(name: str) -> Iterator[None]:
    """Raise :class:`Unreadable` for what Arrow and the file system raise inside of the block."""
    import pyarrow as pa

    try:
        yield
    except (OSError, pa.ArrowException) as error:
        first = str(error).strip().splitlines()[0]
        raise Unreadable(f"{name}: a data file of it cannot be read: {first}") from error
