"""A table to which a test's program lands; the seed of the run chooses the kind."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import attrs

from tests.support import sampling
from tests.support.waiting import until

_NAME: Final = "rocketmq.messages"
_KINDS: Final = "iceberg", "delta", "parquet"
_PAUSE_S: Final = 0.3
"""Between two reads of a whole table."""


def _any_kind() -> str:
    return sampling.chance().choice(_KINDS)


@attrs.frozen
class Table:
    """A table in a folder, which does not exist before the first rows."""

    path: Path
    kind: str = attrs.field(factory=_any_kind)

    @property
    def to(self) -> str:
        """The value of ``--to``."""
        return f"{self.kind}:{self.path}"

    @property
    def named(self) -> tuple[str, ...]:
        """The options with the name of the table, where it can have one."""
        return ("--table", _NAME) if self.kind == "iceberg" else ()

    @property
    def words(self) -> tuple[str, ...]:
        """The words of a command that lands in few passes, by processes."""
        options = ", ".join(f'"{word}"' for word in (*self.named, "--engine", "processes"))
        return "--set", f"lake.options=[{options}]", "--to", self.to

    def rows(self, *columns: str) -> list[tuple[Any, ...]]:
        """Return these columns of all rows."""
        from plugins.lake.tests.landing.tables import read

        try:
            found = read(self.kind, self.path, _NAME).select(columns)
        except Exception:  # noqa: BLE001  # each library has its own error for a missing table
            return []
        return list(zip(*(found[name].to_pylist() for name in columns), strict=True))

    def offsets(self) -> list[int]:
        """Return the physical offsets of all rows, sorted."""
        return sorted(offset for (offset,) in self.rows("physical_offset"))

    def await_rows(self, count: int) -> None:
        """Wait until the table has so many rows."""
        self.wait_for(lambda: len(self.offsets()) == count)

    def wait_for(self, is_so: Callable[[], bool]) -> None:
        """Wait for a condition that reads the table."""

        def holds() -> bool:
            if is_so():
                return True
            time.sleep(_PAUSE_S)
            return False

        until(holds, f"the rows of {self.to} are not those", seconds=120)
