"""``lakelog dump`` prints what the real store read, and nothing that is damaged.

A store that was stopped cleanly gives the same lines in the same order. Of one that was not,
lakelog keeps at least what the real store kept, and often more.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from typer.testing import Result

from tests.support.commands import invoke
from tests.support.fixtures import DAMAGED, EXACT, NAMES, StoreFixture, StoreFixtures
from tests.support.rows import Row, by_kind, difference, parse

DAMAGED_OFFSET: Final = 22182
"""The damaged record of the two early fixtures, which the real store serves all the same."""
FULL_QUERY: Final = 64
"""No query answers with more."""
CUT: Final = "truncated_file"
"""The real store does not start with it, and so read nothing."""
_TWINS: Final = {"corrupt_early": "abnormal", "corrupt_clean_early": "basic"}
_KEPT: Final = [name for name in DAMAGED if name != CUT]


def _lakelog(command: list[str], fixture: StoreFixture) -> Result:
    return invoke(*command, fixture.store, "--broker-conf", fixture.folder / "options")


def _dumped(fixture: StoreFixture, *options: str) -> tuple[list[Row], str]:
    done = _lakelog(["dump", *options], fixture)
    assert done.exit_code == int("damaged:" in done.stderr), done.stderr
    return parse(done.stdout), done.stderr


@pytest.fixture(scope="module")
def kept(request: pytest.FixtureRequest, store_fixtures: StoreFixtures) -> list[Row]:
    """What is printed of a store: once for all tests of it."""
    return _dumped(store_fixtures.get(request.param))[0]


each_kept = pytest.mark.parametrize(
    ("name", "kept"), [(each, each) for each in _KEPT], indirect=["kept"], scope="module"
)


def _of_the_log(rows: list[Row]) -> list[Row]:
    return [row for row in rows if row["kind"] in ("rec", "blank")]


def _text(row: Row) -> str:
    return json.dumps(row, sort_keys=True)


def _is_damaged(row: Row) -> bool:
    return row["kind"] in ("rec", "msg") and row["physOffset"] == DAMAGED_OFFSET


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", EXACT)
def test_exactly_what_the_real_store_read(store_fixtures: StoreFixtures, name: str) -> None:
    fixture = store_fixtures.get(name)
    rows, said = _dumped(fixture)
    assert not difference(rows, fixture.expected_rows)
    assert "damaged" not in said
    log, _ = _dumped(fixture, "--records")
    assert log == _of_the_log(rows)


@pytest.mark.sample(4)
@each_kept
def test_everything_the_real_store_kept(
    store_fixtures: StoreFixtures, name: str, kept: list[Row]
) -> None:
    rows = store_fixtures.get(name).expected_rows
    expected = [row for row in rows if name not in _TWINS or not _is_damaged(row)]
    assert list(_missing(kept, expected, {DAMAGED_OFFSET} if name in _TWINS else set())) == []


def _missing(ours: list[Row], expected: list[Row], damaged: set[int]) -> Iterator[Row]:
    """What of ``expected`` is not in ``ours``, and where ours has less."""
    lines = set(map(_text, ours))
    kinds = by_kind(ours)
    ends = {(row["topic"], row["queueId"]): row["maxOffset"] for row in kinds["queue"]}
    queries = {(row["topic"], row["key"]): row["physOffsets"] for row in kinds["query"]}
    for row in expected:
        if row["kind"] == "queue":
            is_there = ends.get((row["topic"], row["queueId"]), -1) >= row["maxOffset"]
        elif row["kind"] == "query":
            found = queries.get((row["topic"], row["key"]), [])
            is_there = {*row["physOffsets"]} - damaged <= {*found} or len(found) == FULL_QUERY
        else:
            is_there = row["kind"] == "store" or _text(row) in lines
        if not is_there:
            yield row


@pytest.mark.sample(4)
@each_kept
def test_whatever_more_is_found_is_whole_and_right(name: str, kept: list[Row]) -> None:
    kinds = by_kind(kept)
    records = {row["physOffset"]: row for row in kinds["rec"]}
    shared = records[next(iter(records))].keys() - {"kind", "pos"}
    for row in kinds["msg"]:
        record = records[row["cqPos"]]
        assert {key: row[key] for key in shared} == {key: record[key] for key in shared}
        assert (row["cqTopic"], row["cqQueueId"]) == (row["topic"], row["queueId"])
        assert row["cqSize"] == row["storeSize"]
        assert row["queueOffset"] == row["cqOffset"]
    for row in kinds["query"]:
        assert set(row["physOffsets"]) <= records.keys()
        assert row["physOffsets"] == sorted(set(row["physOffsets"]))


@pytest.mark.sample(4)
@each_kept
def test_every_message_is_in_its_queue_and_under_its_keys(name: str, kept: list[Row]) -> None:
    kinds = by_kind(kept)
    queries = {(row["topic"], row["key"]): row["physOffsets"] for row in kinds["query"]}
    queued = [row["cqPos"] for row in kinds["msg"]]
    prepared_or_rolled_back = [row for row in kinds["rec"] if (row["sysFlag"] & 12) in (4, 12)]
    assert len(queued) == len(set(queued)) == len(kinds["rec"]) - len(prepared_or_rolled_back)
    for row in kinds["msg"]:
        for key in [*(row["keys"] or "").split(), row["properties"].get("UNIQ_KEY")]:
            if key is not None:
                found = queries[row["topic"], key]
                assert row["physOffset"] in found or len(found) == FULL_QUERY


@pytest.mark.parametrize(("name", "twin"), _TWINS.items())
def test_behind_damage_all_is_as_in_the_undamaged_twin(
    store_fixtures: StoreFixtures, name: str, twin: str
) -> None:
    rows, said = _dumped(store_fixtures.get(name), "--records")
    whole, _ = _dumped(store_fixtures.get(twin), "--records")
    assert rows == [row for row in whole if not _is_damaged(row)]
    assert f"record at offset {DAMAGED_OFFSET}:" in said


def test_a_cut_segment_keeps_its_whole_records_and_blanks(store_fixtures: StoreFixtures) -> None:
    rows, _ = _dumped(store_fixtures.get(CUT))
    whole, _ = _dumped(store_fixtures.get("abnormal"))
    log = _of_the_log(rows)
    assert len(log) == 1024
    kept = {_text(row) for row in _of_the_log(whole)}
    assert {_text(row) for row in log} <= kept
    messages = {_text(row) for row in by_kind(whole)["msg"]}
    assert {_text(row) for row in by_kind(rows)["msg"]} <= messages


@pytest.mark.sample(8)
@pytest.mark.parametrize("name", [*EXACT, *_TWINS, CUT])
def test_verify_tells_whole_from_damaged(store_fixtures: StoreFixtures, name: str) -> None:
    done = _lakelog(["verify"], store_fixtures.get(name))
    assert done.exit_code == (0 if name in EXACT else 1), done.output


def test_a_path_beats_the_paths_of_the_conf(store_fixtures: StoreFixtures, tmp_path: Path) -> None:
    fixture = store_fixtures.get("basic")
    conf = tmp_path / "broker.conf"
    options = (fixture.folder / "options").read_text(encoding="utf-8")
    conf.write_text(f"{options}storePathRootDir=/nowhere/at/all\n", encoding="utf-8")
    done = invoke("dump", "--records", fixture.store, "--broker-conf", conf)
    assert not difference(parse(done.stdout), _of_the_log(fixture.expected_rows))


# --- doctor foresees what the real store made of each directory ---


def _doctor(fixture: StoreFixture) -> dict[str, Any]:
    conf = fixture.folder / "options"
    done = invoke("doctor", fixture.store, "--broker-conf", conf, "--json")
    document: dict[str, Any] = json.loads(done.stdout)
    assert done.exit_code == (1 if document["findings"] else 0)
    return document


@pytest.mark.sample(8)
@pytest.mark.parametrize("name", NAMES)
def test_what_rocketmq_would_do(name: str, store_fixtures: StoreFixtures) -> None:
    fixture = store_fixtures.get(name)
    real = fixture.expected["store"][0]
    document = _doctor(fixture)
    foreseen = document["rocketmq"]
    assert document["written_by"] == "rocketmq"
    assert document["is_clean_stop"] != real["abortFilePresent"]
    assert ("would not start" in foreseen) != real["loaded"]
    if not real["loaded"]:
        return
    cut = real["maxPhyOffset"] < document["end_offset"]
    assert (f"would cut the log at {real['maxPhyOffset']}," in foreseen) == cut


def test_a_damaged_directory_names_its_remedy(store_fixtures: StoreFixtures) -> None:
    fixture = store_fixtures.get("corrupt_clean_late")
    document = _doctor(fixture)
    assert document["damaged_places"] == 1
    assert document["next"] == [f"lakelog repair {fixture.store}"]
