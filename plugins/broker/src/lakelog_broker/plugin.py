"""The plugin that adds ``lakelog broker``."""

from __future__ import annotations

from typing import Any

from lakelog.hookspecs import hookimpl


@hookimpl
def lakelog_cli_commands(app: Any) -> None:
    """Add ``lakelog broker``."""
    from lakelog_broker.commands import broker

    app.command()(broker)
