"""Offers ``every-n`` to lakelog; the entry point names this module."""

from __future__ import annotations

from lakelog.hookspecs import hookimpl
from lakelog.interfaces import Context, Factory, Kind
from lakelog_template.settings import EveryNSettings
from lakelog_template.strategy import EveryN


@hookimpl
def lakelog_flush_strategies() -> list[Factory]:
    """Offer the flush strategy of this package."""
    return [
        Factory(
            kind=Kind.FLUSH_STRATEGY,
            name="every-n",
            settings=EveryNSettings,
            make=make_every_n,
            summary="Durable once per so many appends.",
        )
    ]


def make_every_n(settings: EveryNSettings, context: Context) -> EveryN:  # noqa: ARG001  # a factory is given both
    """Build the strategy; ``context`` has the store's directory, settings and files."""
    return EveryN(settings.appends)
