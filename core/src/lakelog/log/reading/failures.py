"""Turns errors of the operating system into ``ReadFailed``, for all public read methods."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from lakelog.log.store_directory import unread
from lakelog_interfaces.errors import LakelogError, StoreClosed


class Reads(Protocol):
    """A store; ``_current.path`` is its directory, for errors that name no file."""

    _current: Any


S = TypeVar("S", bound=Reads)
P = ParamSpec("P")
T = TypeVar("T")


def reads(verb: Callable[Concatenate[S, P], T]) -> Callable[Concatenate[S, P], T]:
    """Make ``verb`` raise :class:`~lakelog.errors.ReadFailed` in place of ``OSError``."""

    @wraps(verb)
    def guarded(self: S, /, *arguments: P.args, **named: P.kwargs) -> T:
        parts = self._current.parts
        try:
            return verb(self, *arguments, **named)
        except (StoreClosed, OSError) as error:
            if self._current.parts is not parts and not self._current.closed:
                return guarded(self, *arguments, **named)  # its parts were replaced meanwhile
            if isinstance(error, LakelogError):
                raise
            raise unread(error, self._current.path) from error

    return guarded


@contextmanager
def failing(path: Path) -> Iterator[None]:
    """Raise :class:`~lakelog.errors.ReadFailed` in place of ``OSError``."""
    try:
        yield
    except LakelogError:
        raise
    except OSError as error:
        raise unread(error, path) from error


def iterates(
    verb: Callable[Concatenate[S, P], Iterator[T]],
) -> Callable[Concatenate[S, P], Iterator[T]]:
    """As :func:`reads` for a method that returns an iterator: guards the call and every step."""

    @wraps(verb)
    def guarded(self: S, /, *arguments: P.args, **named: P.kwargs) -> Iterator[T]:
        path = self._current.path
        return _steps(reads(verb)(self, *arguments, **named), path)

    return guarded


def _steps(found: Iterator[T], path: Path) -> Iterator[T]:
    with failing(path):
        yield from found
