"""The contenders of the table suites do the same work, as described. No time is checked."""

from __future__ import annotations

from pathlib import Path

from pyarrow import parquet

import lakelog
from tests.bench.lake import filling, raw
from tests.bench.lake.messages import BODY_BYTES, POOL, bodies
from tests.bench.model import CannotRunError, Contender, Sample
from tests.bench.report import as_json
from tests.bench.rounds import Score
from tests.bench.suites import SUITES
from tests.bench.suites.lake import Lake

ROWS = 1000


def test_messages_have_their_size_and_differ() -> None:
    assert {len(each) for each in bodies()} == {BODY_BYTES}
    assert len(set(bodies())) == POOL


def test_the_ranges_of_a_store_are_all_of_it(tmp_path: Path) -> None:
    store = tmp_path / "store"
    filling.fill(store, ROWS, segment_size_bytes="4MiB")
    spans = filling.ranges(store)
    with lakelog.open(store, mode="read") as opened:
        assert (spans[0][0], spans[-1][1]) == (opened.min_offset, opened.max_offset)
        assert sum(1 for _ in opened.scan()) == ROWS
    target = tmp_path / "raw.parquet"
    assert sum(raw.write((store, *span, target)) for span in spans) == ROWS
    table = parquet.read_table(target)
    assert table.column("body").to_pylist() == bodies()[:ROWS]
    assert table.column("keys").to_pylist()[-1] == [f"k{ROWS - 1}"]


def test_whoever_is_compared_with_is_there() -> None:
    for contest in (*Lake().contests(quick=True), *SUITES["lake_latency"].contests(quick=True)):
        names = {each.name for each in contest.contenders}
        assert {other for each in contest.contenders for other in each.beside.values()} <= names


def test_ratios_are_to_those_that_a_contender_names() -> None:
    def score(name: str, figure: float, beside: dict[str, str]) -> Score:
        return Score(Contender(name, "", absent, beside), [{"rows_s": figure}])

    scores = [score("raw", 10.0, {}), score("a", 5.0, {"raw": "raw", "kafka": "nobody"})]
    rows = as_json(Lake(), {"": scores})
    assert [row["times"] for row in rows] == [{}, {"raw": 0.5, "kafka": None}]
    assert rows[1]["median"] == {"rows_s": 5.0}


def absent(_directory: Path) -> Sample:
    raise CannotRunError("not installed")
