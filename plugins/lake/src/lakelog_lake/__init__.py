"""Writes the messages of lakelog and RocketMQ stores to lakehouse tables, each exactly once.

:class:`Landing` does from Python what ``lakelog dispatch`` does. The names are imported on first
use, as plugins of this package are loaded by every command.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lakelog_lake.api import Landing, LandingResult

__all__ = ["Landing", "LandingResult"]

if not TYPE_CHECKING:  # with it, type checkers would accept any name

    def __getattr__(name: str) -> Any:
        """Import a public name on first use."""
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from lakelog_lake import api

        return getattr(api, name)
