"""The words of errors: what a kind is called, and which known name was meant."""

from __future__ import annotations

from collections.abc import Iterable

from lakelog.interfaces import Kind


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Find the known name that ``name`` may have been meant to be."""
    from difflib import get_close_matches

    return next(iter(get_close_matches(name, list(known), n=1)), None)


def suggestion(name: str, known: Iterable[str], lead: str) -> str:
    """End a sentence with what was meant, or after ``lead`` with what there is.

    >>> suggestion("mmmap", ["file", "mmap"], "there are")
    "; did you mean 'mmap'?"
    >>> suggestion("s3", ["file", "mmap"], "there are")
    '; there are file, mmap'
    """
    names = sorted(known)
    meant = nearest(name, names)
    return f"; did you mean {meant!r}?" if meant else f"; {lead} {', '.join(names) or 'none'}"


def spoken(kind: Kind) -> str:
    """Name a kind as a sentence does.

    >>> spoken(Kind.FLUSH_STRATEGY)
    'flush strategy'
    """
    return kind.name.lower().replace("_", " ")
