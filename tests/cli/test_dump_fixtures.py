"""``lakelog dump --records`` prints what the real store read, and nothing that is damaged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import pytest
from typer.testing import CliRunner, Result

from lakelog.cli.app import make_app
from tests.support.fixtures import DAMAGED, EXACT, StoreFixture, StoreFixtures
from tests.support.rows import Row, difference, parse

DAMAGED_OFFSET: Final = 22182
"""The damaged record of the two early fixtures, which the real store serves all the same."""
_TWINS: Final = {"corrupt_early": "abnormal", "corrupt_clean_early": "basic"}


def _lakelog(command: list[str], fixture: StoreFixture) -> Result:
    args = [*command, str(fixture.store), "--broker-conf", str(fixture.folder / "options")]
    return CliRunner().invoke(make_app(), args)


def _dumped(fixture: StoreFixture) -> tuple[list[Row], str]:
    done = _lakelog(["dump", "--records"], fixture)
    assert done.exit_code == 0, done.stderr
    return parse(done.stdout), done.stderr


def _expected(fixture: StoreFixture) -> list[Row]:
    return [row for row in fixture.expected_rows if row["kind"] in ("rec", "blank")]


def _text(row: Row) -> str:
    return json.dumps(row, sort_keys=True)


def _place(row: Row) -> tuple[str, int]:
    return row["kind"], row["physOffset"]


@pytest.mark.parametrize("name", EXACT)
def test_exactly_what_the_real_store_read(store_fixtures: StoreFixtures, name: str) -> None:
    fixture = store_fixtures.get(name)
    rows, said = _dumped(fixture)
    assert not difference(rows, _expected(fixture))
    assert "damaged" not in said


@pytest.mark.parametrize("name", [name for name in DAMAGED if name != "truncated_file"])
def test_everything_the_real_store_kept(store_fixtures: StoreFixtures, name: str) -> None:
    fixture = store_fixtures.get(name)
    ours = {_text(row) for row in _dumped(fixture)[0]}
    left_out = ("rec", DAMAGED_OFFSET) if name in _TWINS else None
    missing = [row for row in _expected(fixture) if _text(row) not in ours]
    assert [row for row in missing if _place(row) != left_out] == []


@pytest.mark.parametrize(("name", "twin"), _TWINS.items())
def test_behind_damage_all_is_as_in_the_undamaged_twin(
    store_fixtures: StoreFixtures, name: str, twin: str
) -> None:
    rows, said = _dumped(store_fixtures.get(name))
    whole, _ = _dumped(store_fixtures.get(twin))
    assert rows == [row for row in whole if _place(row) != ("rec", DAMAGED_OFFSET)]
    assert f"record at offset {DAMAGED_OFFSET}:" in said


def test_a_cut_segment_keeps_its_whole_records_and_blanks(store_fixtures: StoreFixtures) -> None:
    rows, _ = _dumped(store_fixtures.get("truncated_file"))
    whole, _ = _dumped(store_fixtures.get("abnormal"))
    assert len(rows) == 1024
    assert {_text(row) for row in rows} <= {_text(row) for row in whole}


@pytest.mark.parametrize("name", [*EXACT, *_TWINS, "truncated_file"])
def test_verify_tells_whole_from_damaged(store_fixtures: StoreFixtures, name: str) -> None:
    done = _lakelog(["verify"], store_fixtures.get(name))
    assert done.exit_code == (0 if name in EXACT else 1), done.output


def test_a_path_beats_the_paths_of_the_conf(store_fixtures: StoreFixtures, tmp_path: Path) -> None:
    fixture = store_fixtures.get("basic")
    conf = tmp_path / "broker.conf"
    options = (fixture.folder / "options").read_text(encoding="utf-8")
    conf.write_text(f"{options}storePathRootDir=/nowhere/at/all\n", encoding="utf-8")
    args = ["dump", "--records", str(fixture.store), "--broker-conf", str(conf)]
    done = CliRunner().invoke(make_app(), args)
    assert not difference(parse(done.stdout), _expected(fixture))
