"""``lakelog replicate``, and a table to which it lands; the seed of the run chooses the kind."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import attrs

import lakelog
from tests.support import forked, sampling
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
        return ("--table", _NAME) if self.kind == "iceberg" else ()

    @property
    def words(self) -> tuple[str, ...]:
        """The words of a command that lands in few passes."""
        engine = "--engine", "processes", "--processes", "1"
        options = ", ".join(f'"{word}"' for word in (*self.named, *engine))
        return "--set", f"lake.options=[{options}]", "--to", self.to

    def rows(self, *columns: str) -> list[tuple[Any, ...]]:
        from plugins.lake.tests.landing.tables import read

        try:
            found = read(self.kind, self.path, _NAME).select(columns)
        except Exception:  # noqa: BLE001  # each library has its own error for a missing table
            return []
        return list(zip(*(found[name].to_pylist() for name in columns), strict=True))

    def offsets(self) -> list[int]:
        return sorted(offset for (offset,) in self.rows("physical_offset"))

    def await_rows(self, count: int) -> None:
        self.wait_for(lambda: len(self.offsets()) == count)

    def wait_for(self, is_so: Callable[[], bool]) -> None:

        def holds() -> bool:
            if is_so():
                return True
            time.sleep(_PAUSE_S)
            return False

        until(holds, f"the rows of {self.to} are not those", seconds=120)


@contextmanager
def replicating(path: Path, *words: str, code: int = 0) -> Iterator[Callable[[], None]]:
    """Run ``lakelog replicate``, which must end with ``code``; what it prints is in ``out``.

    Yields a function that kills and restarts it.
    """
    out, quick = path.parent / "out", ("--set", "rocketmq-ha.reconnect_interval_ms=100")

    def started() -> forked.Forked:
        command = ("replicate", str(path), *quick, *words)
        return forked.start("tests.support.program", command, errors=out)

    process = started()

    def again() -> None:
        nonlocal process
        process.kill()
        process.wait()
        process = started()

    try:
        yield again
    finally:
        with suppress(ProcessLookupError):  # it has ended by itself
            process.send_signal(signal.SIGTERM)
        assert process.wait(60) == code, out.read_text()[-3000:]


def end_of(copy: Path) -> int:
    """Return the end offset of a copy that another process fills; -1 before it exists."""
    try:
        with lakelog.open(copy, mode="read") as reader:
            return reader.max_offset
    except lakelog.LakelogError:
        return -1


def offsets(store: Path) -> list[int]:
    """Return the physical offsets of all messages of a store."""
    with lakelog.open(store, mode="read") as reader:
        return [each.physical_offset for each in reader.scan()]
