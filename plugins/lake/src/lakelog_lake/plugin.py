"""The hooks of this package: commands and a follower; imports are deferred until their use."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from lakelog.hooks import Context, Factory, Kind
from lakelog.hooks.hookspecs import hookimpl

if TYPE_CHECKING:
    from lakelog_lake.follower import DispatchFollower, LakeSettings


def _make(settings: LakeSettings, context: Context) -> DispatchFollower:
    from lakelog_lake.follower import DispatchFollower

    return DispatchFollower(context.path, settings)


@hookimpl
def lakelog_followers() -> Sequence[Factory]:
    """Offer ``lake``."""
    summary = "lands messages in tables (lakelog dispatch)"
    return [Factory(Kind.FOLLOWER, "lake", "lakelog_lake.follower:LakeSettings", _make, summary)]


@hookimpl
def lakelog_cli_commands(app: Any) -> None:
    """Add ``lakelog dispatch``, ``export``, ``sql``, and those of ``lake``."""
    from lakelog import times
    from lakelog_lake.commands.dispatch import dispatch, export
    from lakelog_lake.commands.lake import app as lake
    from lakelog_lake.commands.sql import sql

    app.command()(dispatch)
    app.command(epilog=times.HELP)(export)
    app.command()(sql)
    app.add_typer(lake)
