"""Converts the errors of table libraries to errors of lakelog with the table and a remedy.

Catalogs, deltalake and disks raise many error classes, some with a traceback in their text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from lakelog.errors import LakelogError
from lakelog_lake.errors import SparkLost, Unreachable

_MOST: Final = 300
_CAUSE: Final = "\u21b3"
_COLORS: Final = re.compile(r"\x1b\[[0-9;]*m")
_MESSAGE: Final = re.compile(r"<Message>(.*?)</Message>", re.DOTALL)
_NETWORK: Final = ("py4j.protocol", "Py4JNetworkError")


def is_lost(error: BaseException) -> bool:
    """Whether ``error`` means that the connection to the JVM is closed.

    The libraries of catalogs do not raise these classes for their own connections.
    """
    kind = type(error)
    return isinstance(error, ConnectionError) or (kind.__module__, kind.__name__) == _NETWORK


@contextmanager
def table_errors(table: str) -> Iterator[None]:
    """Convert errors of the block to :class:`Unreachable`, except lakelog's own errors.

    Raises :class:`SparkLost` if the connection to the JVM is closed.
    """
    try:
        yield
    except LakelogError:
        raise
    except Exception as error:
        if is_lost(error):
            raise SparkLost(error_text(error)) from error
        raise Unreachable(table, error_text(error)) from error


def error_text(error: BaseException) -> str:
    """The first line of an error's text; its class comes first, except for errors of the system."""
    text = str(error).strip()
    first = (_causes(text) if _CAUSE in text else text.partition("\n")[0])[:_MOST]
    if isinstance(error, OSError) and error.strerror:
        return first
    return f"{type(error).__name__}: {first}"


def _causes(text: str) -> str:
    """Join deltalake's causes, one per line, of which the last may be a server's XML."""
    *causes, last = (each.strip() for each in _COLORS.sub("", text).split(_CAUSE))
    message = _MESSAGE.search(last)
    return ": ".join([*causes, message[1] if message else last.partition("\n")[0]])
