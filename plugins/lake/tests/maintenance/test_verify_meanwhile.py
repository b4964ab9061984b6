"""A table is compared while a dispatcher is at work, and says nothing false of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import attrs
import pyarrow as pa
import pytest

from lakelog_lake.landing.dispatcher import LandingSource, land
from lakelog_lake.log.selection import EVERYTHING
from lakelog_lake.readback.landed_table import LandedTable
from lakelog_lake.readback.open import opened
from lakelog_lake.sinks.base import Sink
from lakelog_lake.tasks.engines import in_process
from lakelog_lake.verify.verify import VerifyRequest, verify_here
from plugins.lake.tests.landing.tables import SMALL, make
from plugins.lake.tests.stores import filled


@attrs.frozen
class Landing:
    """A table in which a pass lands between the look at the position and the first row."""

    table: LandedTable
    source: LandingSource
    sink: Sink

    def __getattr__(self, name: str) -> Any:
        return getattr(self.table, name)

    def batches(self, store: str | None, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        assert land(self.source, self.sink, in_process, SMALL) is not None
        yield from self.table.batches(store, columns)


@pytest.mark.sample(1)
def test_what_lands_while_rows_are_read_is_no_difference(
    kind: str, store_path: Path, tmp_path: Path
) -> None:
    source, sink = LandingSource(store_path, "S"), make(kind, tmp_path / "t")
    land(source, sink, in_process, SMALL)
    table: Any = Landing(opened(f"{kind}:{tmp_path / 't'}"), source, sink)
    found = verify_here(VerifyRequest(store_path, "S", table, EVERYTHING))
    assert found.is_clean, list(found.differences.each())
    tallies = found.differences.tallies.values()
    assert 0 < sum(each.log for each in tallies) == sum(each.table for each in tallies) < 300
    after = table.position("S")
    assert after is not None
    assert found.position.end < after.end


def test_rows_of_a_store_that_did_not_move_are_still_told(store_path: Path, tmp_path: Path) -> None:
    """The store under another name lands meanwhile, which hides nothing of the first."""
    other = tmp_path / "other"
    filled(other, 300)
    sink = make("parquet", tmp_path / "t")
    land(LandingSource(store_path, "S"), sink, in_process, SMALL)
    table: Any = Landing(opened(f"parquet:{tmp_path / 't'}"), LandingSource(other, "O"), sink)
    assert verify_here(VerifyRequest(store_path, "S", table, EVERYTHING)).is_clean
