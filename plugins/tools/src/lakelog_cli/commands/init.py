"""``lakelog init``: makes an empty store."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lakelog.errors import NotAStore
from lakelog_cli.opening import open_for
from lakelog_cli.options import Assignments, BrokerConf, SettingsFile


def init(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="A new or empty directory.")],
    broker_conf: BrokerConf = None,
    settings: SettingsFile = None,
    assignments: Assignments = None,
) -> None:
    """Make an empty store; a store that is there already is left as it is."""
    if _is_there(path, broker_conf, settings, assignments):
        typer.echo(f"a store is there already: {path}")
        return
    open_for("write", path, broker_conf, settings, assignments).close()
    typer.echo(f"made an empty store: {path}")


def _is_there(
    path: Path, broker_conf: Path | None, settings: Path | None, assignments: list[str] | None
) -> bool:
    try:
        open_for("read", path, broker_conf, settings, assignments).close()
    except NotAStore:
        return False
    return True
