"""What a table's library raises becomes an error that says which table, what, and what to do.

Catalogs, deltalake and disks have errors of many classes, some with a traceback in their text.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from lakelog.errors import LakelogError
from lakelog_lake.errors import SparkLost, Unreachable

_MOST: Final = 300
_NETWORK: Final = ("py4j.protocol", "Py4JNetworkError")


def is_lost(error: BaseException) -> bool:
    """Whether ``error`` says that nobody answers at the JVM's end of the line.

    Catalogs are asked by libraries that have their own errors for the like.
    """
    kind = type(error)
    return isinstance(error, ConnectionError) or (kind.__module__, kind.__name__) == _NETWORK


@contextmanager
def reaching(table: str) -> Iterator[None]:
    """Raises :class:`~lakelog_lake.errors.Unreachable` for what is no error of lakelog."""
    try:
        yield
    except LakelogError:
        raise
    except Exception as error:
        if is_lost(error):
            raise SparkLost(said(error)) from error
        raise Unreachable(table, said(error)) from error


def said(error: BaseException) -> str:
    """Its first line, and its class where that says more than the text."""
    first = str(error).strip().partition("\n")[0][:_MOST]
    if isinstance(error, OSError) and error.strerror:
        return first
    return f"{type(error).__name__}: {first}"
