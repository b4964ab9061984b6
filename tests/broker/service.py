"""A broker that ``lakelog serve`` runs, or ``lakelog broker --to``."""

from __future__ import annotations

from plugins.daemon.tests.support import Serving
from tests.support.waiting import until


def broker_address(serve: Serving, restarts: int = 0) -> str:
    """Wait until the broker runs after at least ``restarts`` restarts; return its address."""

    def said() -> str | None:
        row = serve.row("broker")
        is_there = row.get("state") == "running" and row["restarts"] >= restarts
        text = row.get("says") if is_there else None
        return text.rpartition(" ")[2] if text else None

    return until(said)
