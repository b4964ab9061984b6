"""The plugin that offers the writer ``mmap``."""

from __future__ import annotations

from collections.abc import Sequence

from lakelog.hookspecs import hookimpl
from lakelog.interfaces import Factory, Kind
from lakelog_mmap import writer
from lakelog_mmap.settings import MmapSettings


@hookimpl
def lakelog_writers() -> Sequence[Factory]:
    """Offer the writer ``mmap``."""
    return [Factory(Kind.WRITER, "mmap", MmapSettings, writer.make, "every write through a map")]
