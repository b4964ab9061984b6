"""Text for errors: the name of a kind, and suggestions for a misspelt name."""

from __future__ import annotations

from collections.abc import Iterable

from lakelog.interfaces import Kind


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name closest to ``name``, if any is close."""
    from difflib import get_close_matches

    return next(iter(get_close_matches(name, list(known), n=1)), None)


def suggestion(name: str, known: Iterable[str], lead: str) -> str:
    """The end of an error message: the nearest known name, or all names after ``lead``.

    >>> suggestion("mmmap", ["file", "mmap"], "there are")
    "; did you mean 'mmap'?"
    >>> suggestion("s3", ["file", "mmap"], "there are")
    '; there are file, mmap'
    """
    names = sorted(known)
    meant = nearest(name, names)
    return f"; did you mean {meant!r}?" if meant else f"; {lead} {', '.join(names) or 'none'}"


def spoken(kind: Kind) -> str:
    """The name of a kind in a sentence.

    >>> spoken(Kind.FLUSH_STRATEGY)
    'flush strategy'
    """
    return kind.name.lower().replace("_", " ")
