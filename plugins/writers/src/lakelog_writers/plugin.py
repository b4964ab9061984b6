"""The plugin that offers the writers ``mmap``, ``staged`` and ``direct``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from lakelog.hooks import Context, Factory, Kind, Writer
from lakelog.hooks.hookspecs import hookimpl

if TYPE_CHECKING:
    from lakelog_writers.settings import DirectSettings, MmapSettings, StagedSettings


def _mmap(settings: MmapSettings, _context: Context) -> Writer:
    from lakelog_writers.mapped import MmapWriter

    return MmapWriter(settings)


def _staged(settings: StagedSettings, context: Context) -> Writer:
    from lakelog_writers import staged

    return staged.make(settings, context)


def _direct(settings: DirectSettings, context: Context) -> Writer:
    from lakelog_writers import direct

    return direct.make(settings, context)


@hookimpl
def lakelog_writers() -> Sequence[Factory]:
    """Offer the three writers."""
    kind, module = Kind.WRITER, "lakelog_writers.settings"
    return [
        Factory(kind, "mmap", f"{module}:MmapSettings", _mmap, "every write through a map"),
        Factory(
            kind, "staged", f"{module}:StagedSettings", _staged, "buffers, then the page cache"
        ),
        Factory(
            kind, "direct", f"{module}:DirectSettings", _direct, "O_DIRECT past the page cache"
        ),
    ]
