"""The plugin that offers the writers ``mmap``, ``staged`` and ``direct``."""

from __future__ import annotations

from collections.abc import Sequence

from lakelog.hooks import Context, Factory, Kind, Writer
from lakelog.hooks.hookspecs import hookimpl
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
    kind = Kind.WRITER
    return [
        Factory(kind, "mmap", MmapSettings, _mmap, "every write through a map"),
        Factory(kind, "staged", StagedSettings, _staged, "buffers, then the page cache"),
        Factory(kind, "direct", DirectSettings, _direct, "O_DIRECT past the page cache"),
    ]
