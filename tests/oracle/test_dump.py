"""The dump of each fixture equals the dump that was recorded when the fixture was made."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.fixtures import NAMES, StoreFixtures
from tests.support.rows import difference

if TYPE_CHECKING:
    from pathlib import Path

    from tests.oracle.java import Oracle


@pytest.mark.sample(8)
@pytest.mark.parametrize("name", NAMES)
def test_dump_repeats_what_was_recorded(
    name: str, oracle: Oracle, store_fixtures: StoreFixtures
) -> None:
    fixture = store_fixtures.get(name)
    assert difference(oracle.dump(fixture.store, fixture.options), fixture.expected_rows) == ""


def test_a_store_that_is_refused_gives_one_row(
    oracle: Oracle, store_fixtures: StoreFixtures
) -> None:
    fixture = store_fixtures.get("truncated_file")
    (row,) = oracle.dump(fixture.store, fixture.options)
    assert row["loaded"] is False


def test_dump_in_place_leaves_a_stopped_store(
    oracle: Oracle, store_fixtures: StoreFixtures, tmp_path: Path
) -> None:
    fixture = store_fixtures.copy("abnormal", tmp_path)
    recovered = oracle.dump(fixture.store, fixture.options, in_place=True)
    assert not (fixture.store / "abort").exists()
    again = oracle.dump(fixture.store, fixture.options)
    assert difference(again[1:], recovered[1:]) == ""


def test_dump_names_an_unknown_option(oracle: Oracle, tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="no property mapedFileSize"):
        oracle.dump(tmp_path, {"mapedFileSize": "1"})
