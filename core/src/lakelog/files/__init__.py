"""Access to the operating system's files, and tasks on a single file or folder."""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    """Return names that :mod:`lakelog.files` had before it became a package."""
    from lakelog.files import filesystem

    if name.startswith("_") or not hasattr(filesystem, name):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import warnings

    what = f"lakelog.files.{name} is lakelog.files.filesystem.{name} now"
    warnings.warn(what, DeprecationWarning, stacklevel=2)
    return getattr(filesystem, name)
