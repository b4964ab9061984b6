"""What this package offers: commands. Nothing heavy is imported before one of them runs."""

from __future__ import annotations

from typing import Any

from lakelog.hookspecs import hookimpl


@hookimpl
def lakelog_cli_commands(app: Any) -> None:
    """Add ``lakelog dispatch`` and ``lakelog export``."""
    from lakelog_spark.cli_dispatch import dispatch, export

    for command in (dispatch, export):
        app.command()(command)
