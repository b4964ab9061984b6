"""The plugin that offers the writers ``staged`` and ``direct``."""

from __future__ import annotations

from collections.abc import Sequence

from lakelog.hookspecs import hookimpl
from lakelog.interfaces import Factory, Kind
from lakelog_direct import direct, staged
from lakelog_direct.settings import DirectSettings, StagedSettings


@hookimpl
def lakelog_writers() -> Sequence[Factory]:
    """Offer both writers."""
    kind = Kind.WRITER
    return [
        Factory(kind, "staged", StagedSettings, staged.make, "buffers, then the page cache"),
        Factory(kind, "direct", DirectSettings, direct.make, "O_DIRECT past the page cache"),
    ]
