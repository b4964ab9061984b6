"""What this package offers: commands, and a follower. Nothing heavy is imported before one runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lakelog.hookspecs import hookimpl
from lakelog.interfaces import Factory
from lakelog_spark.follower import SPARK


@hookimpl
def lakelog_followers() -> Sequence[Factory]:
    """Offer ``spark``."""
    return [SPARK]


@hookimpl
def lakelog_cli_commands(app: Any) -> None:
    """Add ``lakelog dispatch``, ``export``, ``sql``, and those of ``lake``."""
    from lakelog_spark.cli_dispatch import dispatch, export
    from lakelog_spark.cli_lake import app as lake
    from lakelog_spark.cli_sql import sql

    for command in (dispatch, export, sql):
        app.command()(command)
    app.add_typer(lake)
