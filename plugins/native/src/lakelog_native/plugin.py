"""The plugin that offers the accelerator ``native``."""

from __future__ import annotations

from collections.abc import Sequence

from lakelog.hooks import Context, Factory, Kind, NoSettings
from lakelog.hooks.hookspecs import hookimpl


def _make(_settings: NoSettings, _context: Context) -> object:
    from lakelog_native.accelerator import Native  # loads the extension

    return Native()


@hookimpl
def lakelog_accelerators() -> Sequence[Factory]:
    """Offer the accelerator."""
    summary = "appends and reads in Rust"
    return [Factory(Kind.ACCELERATOR, "native", NoSettings, _make, summary)]
