"""The hooks of this package: a command and a follower; imports are deferred until their use."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lakelog.hooks import Factory
from lakelog.hooks.hookspecs import hookimpl
from lakelog_broker.follower import BROKER


@hookimpl
def lakelog_followers() -> Sequence[Factory]:
    """Offer ``broker``."""
    return [BROKER]


@hookimpl
def lakelog_cli_commands(app: Any) -> None:
    """Add ``lakelog broker``."""
    from lakelog_broker.commands import broker

    app.command()(broker)
