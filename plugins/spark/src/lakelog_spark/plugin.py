"""What this package offers: the command ``lakelog sql``; Spark is imported when it runs."""

from __future__ import annotations

from typing import Any

from lakelog.hookspecs import hookimpl


@hookimpl
def lakelog_cli_commands(app: Any) -> None:
    """Add ``lakelog sql``."""
    from lakelog_spark.commands.sql import sql

    app.command()(sql)
