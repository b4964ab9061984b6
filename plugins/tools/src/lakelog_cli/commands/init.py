"""``lakelog init``: creates an empty store."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lakelog.errors import NotAStore
from lakelog_cli.opening import open_for
from lakelog_cli.options import AsJson, Assignments, BrokerConf, SettingsFile
from lakelog_cli.output import write_lines
from lakelog_cli.rows.queues import InitRow
from lakelog_cli.schema import prints


@prints(InitRow)
def init(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="A new or empty directory.")],
    as_json: AsJson = False,
    broker_conf: BrokerConf = None,
    settings: SettingsFile = None,
    assignments: Assignments = None,
) -> None:
    """Make an empty store; an existing store stays as it is."""
    is_new = not _is_there(path, broker_conf, settings, assignments)
    if is_new:
        open_for("write", path, broker_conf, settings, assignments).close()
    if as_json:
        write_lines([{"path": str(path), "is_new": is_new}])
    else:
        words = "made an empty store" if is_new else "a store is there already"
        typer.echo(f"{words}: {path}")


def _is_there(
    path: Path, broker_conf: Path | None, settings: Path | None, assignments: list[str] | None
) -> bool:
    try:
        open_for("read", path, broker_conf, settings, assignments).close()
    except NotAStore:
        return False
    return True
