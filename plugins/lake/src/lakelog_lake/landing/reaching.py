"""What a table's library raises becomes an error that says which table, what, and what to do.

Catalogs, deltalake and disks have errors of many classes, some with a traceback in their text.
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
    text = str(error).strip()
    first = (_causes(text) if _CAUSE in text else text.partition("\n")[0])[:_MOST]
    if isinstance(error, OSError) and error.strerror:
        return first
    return f"{type(error).__name__}: {first}"


def _causes(text: str) -> str:
    """Of deltalake, which writes each cause to a line of its own, the last in a server's XML."""
    *causes, last = (each.strip() for each in _COLORS.sub("", text).split(_CAUSE))
    message = _MESSAGE.search(last)
    return ": ".join([*causes, message[1] if message else last.partition("\n")[0]])
