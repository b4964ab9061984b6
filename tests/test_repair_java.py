"""After a repair the real store keeps all of a damaged log, and reads the same of it as lakelog."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lakelog.recovery.filler import FILLER_TOPIC
from lakelog_doctor.repair import RepairReport, repair
from tests.oracle.java import NO_OPTIONS
from tests.support.rows import by_kind, difference
from tests.support.twostores import dumped

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tests.oracle.java import Oracle
    from tests.support.fixtures import StoreFixture, StoreFixtures
    from tests.support.rows import Row

JAVA_CRC = {"enabledAppendPropCRC": "true", "forceVerifyPropCRC": "true"}


def repaired(fixture: StoreFixture) -> RepairReport:
    return repair(fixture.store, broker_conf=fixture.folder / "options")


def compare(
    fixture: StoreFixture, oracle: Oracle, *, options: Mapping[str, str] = NO_OPTIONS
) -> dict[str, list[Row]]:
    """Both dumps of one store, which have to be the same; the rows of the real store by kind.

    But for one thing: where a queue lost a message, the real store finds the record that replaces
    it, and lakelog nothing; these rows are of the kind ``led``.
    """
    theirs = [led(row) for row in oracle.dump(fixture.store, {**fixture.options, **options})]
    rows = by_kind(theirs)
    ours = dumped(fixture.store, fixture.folder / "options")
    assert difference(ours, [row for row in theirs if row["kind"] != "led"]) == ""
    assert rows.keys().isdisjoint({"badrec", "undecodable", "msgerr"})
    return rows


def led(row: Row) -> Row:
    """A row, which is of the kind ``led`` if a queue serves what replaces its message."""
    replaces = row["kind"] == "msg" and row["topic"] == FILLER_TOPIC != row["cqTopic"]
    return {**row, "kind": "led"} if replaces else row


def whole_twin(name: str) -> str:
    return "basic" if "clean" in name else "abnormal"


@pytest.mark.parametrize(
    ("name", "offset", "size"),
    [
        ("corrupt_early", 22182, 256),
        ("corrupt_clean_early", 22182, 256),
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
    """A flipped bit costs the real store up to 39 KB of whole records, unless it is mended.

    It finds all messages that are left, in all queues: the place of the lost one leads to the
    record that replaces it.
    """
    fixture = store_fixtures.copy(name, tmp_path)
    report = repaired(fixture)
    assert [(each.offset, each.end_offset) for each in report.kept] == [(offset, offset + size)]
    twin = store_fixtures.get(whole_twin(name))
    (lost,) = [row for row in twin.expected["rec"] if row["physOffset"] == offset]
    assert report.led == ((lost["topic"], lost["queueId"]),)
    rows = compare(fixture, oracle)
    check_log(rows, twin, offset, size)
    (found,) = rows["led"]
    place = (found["cqTopic"], found["cqQueueId"], found["cqOffset"])
    assert place == (lost["topic"], lost["queueId"], lost["queueOffset"])
    assert (found["cqPos"], found["cqSize"], found["physOffset"]) == (offset, size, offset)


def test_several_lost_at_the_start_of_the_log_cost_no_other_message(
    oracle: Oracle, store_fixtures: StoreFixtures, tmp_path: Path
) -> None:
    """Queues that lost their first message, and messages that one record replaces together."""
    fixture = store_fixtures.copy("basic", tmp_path)
    lost = [*fixture.expected["rec"][:3], *fixture.expected["rec"][20:40]]
    with (fixture.store / "commitlog" / f"{0:020}").open("r+b") as file:
        for row in lost:
            file.seek(row["physOffset"] + 4)
            file.write(b"\xff")
    report = repaired(fixture)
    rows = compare(fixture, oracle)
    assert len(rows["led"]) == sum(row["sysFlag"] & 4 == 0 for row in lost)  # others have no unit
    assert set(report.led) == {(row["cqTopic"], row["cqQueueId"]) for row in rows["led"]}


def check_log(rows: dict[str, list[Row]], twin: StoreFixture, offset: int, size: int) -> None:
    """All records of the undamaged twin are there, and a filler for the one that is damaged."""
    found = {row["physOffset"]: row for row in rows["rec"]}
    filler = found.pop(offset)
    assert (filler["topic"], filler["storeSize"]) == (FILLER_TOPIC, size)
    expected = {row["physOffset"]: row for row in twin.expected["rec"]}
    assert expected.pop(offset)
    assert found == expected


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
