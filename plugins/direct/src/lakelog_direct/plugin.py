"""The plugin that offers the writers ``staged`` and ``direct``."""

from __future__ import annotations

from collections.abc import Sequence

from lakelog.hookspecs import hookimpl
from lakelog.interfaces import Context, Factory, Kind, Writer
from lakelog_direct.settings import DirectSettings, StagedSettings


def _staged(settings: StagedSettings, context: Context) -> Writer:
    from lakelog_direct import staged

    return staged.make(settings, context)


def _direct(settings: DirectSettings, context: Context) -> Writer:
    from lakelog_direct import direct

    return direct.make(settings, context)


@hookimpl
def lakelog_writers() -> Sequence[Factory]:
    """Offer both writers."""
    kind = Kind.WRITER
    return [
        Factory(kind, "staged", StagedSettings, _staged, "buffers, then the page cache"),
        Factory(kind, "direct", DirectSettings, _direct, "O_DIRECT past the page cache"),
    ]
