"""The plugin by which several processes have one store open for writing."""

from __future__ import annotations

from collections.abc import Sequence

from lakelog.hookspecs import hookimpl
from lakelog.interfaces import Context, Factory, Kind, NoSettings, StoreSharing


def make_sharing(_settings: NoSettings, _context: Context) -> StoreSharing:
    """Build the sharing of stores."""
    from lakelog_processes.sharing import ProcessSharing

    return ProcessSharing()


@hookimpl
def lakelog_store_sharing() -> Sequence[Factory]:
    """Offer the sharing of stores among the processes of a host."""
    return [
        Factory(
            Kind.STORE_SHARING,
            "sharing",
            NoSettings,
            make_sharing,
            "lets several processes write to a store; one of them has its services",
        )
    ]
