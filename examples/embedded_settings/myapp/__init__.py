"""An application with a log, and the settings of that log beside its code."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

import lakelog


def open_log(path: Path) -> lakelog.Store:
    """Open the application's log; an operator can still override every setting."""
    return lakelog.open(path, settings=files("myapp") / "lakelog.toml")
