"""The program ``lakelog``, as :mod:`.forked` starts it."""

from __future__ import annotations

from lakelog_cli.main import run as main

__all__ = ["main"]
