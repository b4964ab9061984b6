"""After a repair the real store keeps all of a damaged log, and reads the same of it as lakelog."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from lakelog.recovery.filler import FILLER_TOPIC
from lakelog.repairing import RepairReport, repair
from tests.oracle.java import NO_OPTIONS
from tests.support.rows import by_kind, difference, parse

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tests.oracle.java import Oracle
    from tests.support.fixtures import StoreFixture, StoreFixtures
    from tests.support.rows import Row

JAVA_CRC = {"enabledAppendPropCRC": "true", "forceVerifyPropCRC": "true"}


def repaired(fixture: StoreFixture) -> RepairReport:
    return repair(fixture.store, broker_conf=fixture.folder / "options")


def ours(fixture: StoreFixture) -> list[Row]:
    command = [sys.executable, "-m", "lakelog.cli.main", "dump", str(fixture.store)]
    command += ["--broker-conf", str(fixture.folder / "options")]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return parse(done.stdout)


def compare(
    fixture: StoreFixture,
    oracle: Oracle,
    *,
    apart_from: Row | None = None,
    options: Mapping[str, str] = NO_OPTIONS,
) -> dict[str, list[Row]]:
    """Both dumps of one store, which have to be the same; the rows by kind.

    :param apart_from: of what rows are not compared
    """
    theirs = oracle.dump(fixture.store, {**fixture.options, **options})
    left_out = (apart_from or {"kind": "none"}).items()
    dumps = [
        [row for row in each if not left_out <= row.items()] for each in (ours(fixture), theirs)
    ]
    assert difference(*dumps) == ""
    rows = by_kind(theirs)
    assert rows.keys().isdisjoint({"badrec", "undecodable"})
    return rows


def whole_twin(name: str) -> str:
    return "basic" if "clean" in name else "abnormal"


@pytest.mark.parametrize(
    ("name", "offset", "size"),
    [
        ("corrupt_late", 665145, 241),
        ("corrupt_clean_late", 481458, 471),
    ],
)
def test_only_the_damaged_record_is_lost(
    name: str,
    offset: int,
    size: int,
    oracle: Oracle,
    store_fixtures: StoreFixtures,
    tmp_path: Path,
) -> None:
    """A flipped bit costs the real store up to 39 KB of whole records, unless it is mended."""
    fixture = store_fixtures.copy(name, tmp_path)
    report = repaired(fixture)
    assert [(each.offset, each.end_offset) for each in report.kept] == [(offset, offset + size)]
    check_log(compare(fixture, oracle), store_fixtures.get(whole_twin(name)), offset, size)


def check_log(rows: dict[str, list[Row]], twin: StoreFixture, offset: int, size: int) -> None:
    """All records of the undamaged twin are there, and a filler for the one that is damaged."""
    found = {row["physOffset"]: row for row in rows["rec"]}
    filler = found.pop(offset)
    assert (filler["topic"], filler["storeSize"]) == (FILLER_TOPIC, size)
    expected = {row["physOffset"]: row for row in twin.expected["rec"]}
    assert expected.pop(offset)
    assert found == expected


@pytest.mark.parametrize("name", ["corrupt_early", "corrupt_clean_early"])
def test_a_damaged_body_in_the_first_segment_is_served_no_longer(
    name: str, oracle: Oracle, store_fixtures: StoreFixtures, tmp_path: Path
) -> None:
    """Of the one queue that lost a message, the real store passes over more than that.

    The place of the lost message is filled with a unit of offset 0. A log that starts at 0 has
    that place: the real store looks there, finds nothing as long as the unit says, and goes on at
    the next segment.
    """
    fixture = store_fixtures.copy(name, tmp_path)
    repaired(fixture)
    rows = compare(fixture, oracle, apart_from={"topic": "TopicA", "queueId": 2})
    check_log(rows, store_fixtures.get(whole_twin(name)), 22182, 256)
    passed_over = {
        row["physOffset"]
        for row in ours(fixture)
        if row["kind"] == "msg" and (row["topic"], row["queueId"]) == ("TopicA", 2)
    } - {row["physOffset"] for row in rows["msg"]}
    size = int(fixture.options["mappedFileSizeCommitLog"])
    assert all(offset < size for offset in passed_over)


def test_a_file_that_the_real_store_refuses_is_mended(
    oracle: Oracle, store_fixtures: StoreFixtures, tmp_path: Path
) -> None:
    fixture = store_fixtures.copy("truncated_file", tmp_path)
    repaired(fixture)
    rows = compare(fixture, oracle)
    twin = store_fixtures.get("abnormal").expected["rec"]
    assert rows["rec"] == twin[:-1]


@pytest.mark.parametrize("name", ["basic", "abnormal"])
def test_a_missing_segment_is_passed_over(
    name: str, oracle: Oracle, store_fixtures: StoreFixtures, tmp_path: Path
) -> None:
    fixture = store_fixtures.copy(name, tmp_path)
    size = int(fixture.options["mappedFileSizeCommitLog"])
    start = 3 * size
    (fixture.store / "commitlog" / f"{start:020}").unlink()
    repaired(fixture)
    rows = compare(fixture, oracle)
    twin = store_fixtures.get(name).expected["rec"]
    assert rows["rec"] == [row for row in twin if not start <= row["physOffset"] < start + size]
    assert {"kind": "blank", "physOffset": start, "size": size}.items() <= next(
        row for row in rows["blank"] if row["physOffset"] == start
    ).items()


def test_a_filler_has_the_checksum_that_the_real_store_asks_for(
    oracle: Oracle, store_fixtures: StoreFixtures, tmp_path: Path
) -> None:
    fixture = store_fixtures.copy("propcrc", tmp_path)
    twin = store_fixtures.get("propcrc").expected["rec"]
    bad = twin[len(twin) // 2]
    size = int(fixture.options["mappedFileSizeCommitLog"])
    at = bad["physOffset"]
    with (fixture.store / "commitlog" / f"{at - at % size:020}").open("r+b") as file:
        file.seek(at % size + bad["storeSize"] - 30)
        file.write(b"\xff")
    repaired(fixture)
    rows = compare(fixture, oracle, options=JAVA_CRC)
    assert len(rows["rec"]) == len(twin)
    assert [row for row in rows["rec"] if row["physOffset"] != at] == [
        row for row in twin if row["physOffset"] != at
    ]
