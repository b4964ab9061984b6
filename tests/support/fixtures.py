"""Store directories that the real RocketMQ store wrote, unpacked on demand.

Several fixtures share most of their bytes, so they are together in one archive
(tests/data/fixtures/README.md describes each).
"""

from __future__ import annotations

import shutil
import tarfile
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.support.rows import Row, by_kind, parse

if TYPE_CHECKING:
    from collections.abc import Mapping

ARCHIVES: Final = Path(__file__).parents[1] / "data" / "fixtures"

# lakelog must read exactly the same from these as the real store; from damaged ones it reads more.
EXACT: Final = (
    "basic",
    "batchcq",
    "cqext",
    "edge8",
    "lmq",
    "mid",
    "propcrc",
    "real_broker",
    "rebuilt",
    "sync",
)
DAMAGED: Final = (
    "abnormal",
    "corrupt_clean_early",
    "corrupt_clean_late",
    "corrupt_early",
    "corrupt_late",
    "no_checkpoint",
    "no_cq",
    "real_broker_crash",
    "torn_garbage",
    "torn_header",
    "torn_zero",
    "torn_zero_body",
    "truncated_file",
)
NAMES: Final = tuple(sorted(EXACT + DAMAGED))

_ARCHIVE_OF: Final[Mapping[str, str]] = {
    "sync": "basic",
    "cqext": "basic",
    "propcrc": "basic",
    "rebuilt": "basic",
    "corrupt_clean_early": "basic",
    "corrupt_clean_late": "basic",
    "corrupt_early": "abnormal",
    "corrupt_late": "abnormal",
    "no_checkpoint": "abnormal",
    "no_cq": "abnormal",
    "torn_garbage": "abnormal",
    "torn_header": "abnormal",
    "torn_zero": "abnormal",
    "torn_zero_body": "abnormal",
    "truncated_file": "abnormal",
    "real_broker_crash": "real_broker",
}


@dataclass(frozen=True)
class StoreFixture:
    """One store directory as it was left, and the rows that the real store read from it."""

    name: str
    folder: Path

    @property
    def store(self) -> Path:
        """The store directory; to be read only, unless this is a copy."""
        return self.folder / "store"

    @cached_property
    def options(self) -> dict[str, str]:
        """The settings that differ from the defaults, by RocketMQ's names."""
        lines = (self.folder / "options").read_text(encoding="utf-8").splitlines()
        return dict(line.split("=", 1) for line in lines)

    @cached_property
    def expected_rows(self) -> list[Row]:
        """The rows that the real store read after its own recovery, in the order of its dump."""
        return parse((self.folder / "expected.jsonl").read_text(encoding="utf-8"))

    @cached_property
    def expected(self) -> dict[str, list[Row]]:
        """The same, by kind: store, queue, msg, rec, blank, query."""
        return by_kind(self.expected_rows)


class StoreFixtures:
    """Unpacks each archive once into one folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._unpacked: set[str] = set()

    def get(self, name: str) -> StoreFixture:
        """Give the shared fixture, for tests that only read it."""
        archive = _ARCHIVE_OF.get(name, name)
        if archive not in self._unpacked:
            with tarfile.open(ARCHIVES / f"{archive}.tar.xz") as tar:
                tar.extractall(self._folder, filter="data")
            self._unpacked.add(archive)
        return StoreFixture(name, self._folder / name)

    def copy(self, name: str, into: Path) -> StoreFixture:
        """Give a copy of its own, for a test that writes to it."""
        folder = into / name
        shutil.copytree(self.get(name).folder, folder)
        return StoreFixture(name, folder)
