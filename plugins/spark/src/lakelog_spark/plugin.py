"""What this package offers: commands. Nothing heavy is imported before one of them runs."""

from __future__ import annotations

from typing import Any

from lakelog.hookspecs import hookimpl


@hookimpl
def lakelog_cli_commands(app: Any) -> None:
    """Add ``lakelog dispatch``, ``export``, ``sql``, and those of ``lake``."""
    from lakelog_spark.cli_dispatch import dispatch, export
    from lakelog_spark.cli_lake import app as lake
    from lakelog_spark.cli_sql import sql

    for command in (dispatch, export, sql):
        app.command()(command)
    app.add_typer(lake)
