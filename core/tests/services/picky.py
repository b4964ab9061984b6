"""A plugin that is a module: its dispatcher fails while a file ``fail`` is in the store directory.

A file ``freeze`` there makes it say that a sync failed.

The file's content is the number of the error; every body that it sees is a line in ``seen``, and
whoever makes it anew lets it see all of them again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lakelog.errors import StoreFailed
from lakelog.hookspecs import hookimpl
from lakelog.interfaces import Context, Factory, Kind, NoSettings


class Picky:
    """Writes no file that counts."""

    directories: Sequence[str] = ()

    def __init__(self, context: Context) -> None:
        self._path = context.path
        self._checkpoint = context.checkpoint

    def resume(self, minimum: int, end: int) -> int:
        return minimum

    def dispatch(self, batch: Any) -> None:
        if (self._path / "freeze").exists():
            self._checkpoint.freeze()
            raise StoreFailed("a sync failed")
        fail = self._path / "fail"
        if fail.exists():
            raise OSError(int(fail.read_text()), "as it was told", str(fail))
        with (self._path / "seen").open("a") as file:
            file.writelines(f"{bytes(body)[:6].decode()}\n" for body in batch.bodies)

    def truncate(self, end_offset: int) -> None:
        """Nothing is kept."""

    def flush(self) -> None:
        """Nothing is kept."""

    def close(self) -> None:
        """Nothing is kept."""


def _make(_settings: NoSettings, context: Context) -> Picky:
    return Picky(context)


@hookimpl
def lakelog_dispatchers() -> list[Factory]:
    return [Factory(Kind.DISPATCHER, "picky", NoSettings, _make)]
