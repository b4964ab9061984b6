"""``lakelog init``: creates an empty store."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, TypedDict

import typer

from lakelog.errors import NotAStore
from lakelog_cli import options, output


class InitRow(TypedDict):
    """A store.

    :ivar is_new: whether the command made it
    """

    path: str
    is_new: bool


@output.prints(InitRow)
def init(
    opening: options.OpenOptions,
    path: Annotated[Path, typer.Argument(metavar="PATH", help="A new or empty directory.")],
    as_json: options.AsJson = False,
) -> None:
    """Make an empty store; an existing store stays as it is."""
    try:
        opening.open("read", path).close()
        is_new = False
    except NotAStore:
        is_new = True
        opening.open("write", path).close()
    words = "made an empty store" if is_new else "a store is there already"
    output.write_result({"path": str(path), "is_new": is_new}, f"{words}: {path}", as_json=as_json)
