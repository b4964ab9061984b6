"""Every real store directory, recovered in place: all that is whole in the log can be found.

What the real store read is the least. Beyond it, an independent walk over the log says what must
stand in queues and under keys: nothing that lakelog built is asked for that. `_MORE` and
`_LESS` are the list of differences from the real store.
"""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

import lakelog
from lakelog.format.layout import PREPARED, ROLLBACK, TRANSACTION_MASK
from lakelog.format.properties import KEYS, UNIQUE_KEY
from lakelog_cli.exitcodes import FOUND
from lakelog_doctor.check import check
from tests.support.commands import invoke
from tests.support.fixtures import DAMAGED, EXACT, NAMES, StoreFixture, StoreFixtures
from tests.support.rows import Row, by_kind, parse

if TYPE_CHECKING:
    from lakelog import Store, StoredMessage

FULL_QUERY: Final = 64
"""No query answers with more."""
CUT: Final = "truncated_file"
"""The real store does not start with it, and so read nothing."""
TWIN: Final = {CUT: "torn_zero"}
DAMAGED_OFFSET: Final = 22182
_STAYING: Final = {"corrupt_early", "corrupt_clean_early", "corrupt_clean_late"}
"""Stores in which a recovery leaves damage: a dump of them exits with `FOUND`."""
_LESS: Final = {"corrupt_early": {DAMAGED_OFFSET}, "corrupt_clean_early": {DAMAGED_OFFSET}}
"""Records that the real store serves although their bodies are damaged."""
_MORE: Final = {
    "corrupt_late": (
        49,
        "records behind a damaged one, and the one in its place: the real store cuts there",
    ),
    "corrupt_clean_late": (4, "the same after a clean stop"),
    "no_cq": (522, "messages before the file that its recovery begins with: not dispatched"),
    CUT: (952, "it refuses to start over a file of a wrong length"),
}
"""Messages in queues that the real store does not find, and why."""
_MORE_KEYS: Final = {
    **dict.fromkeys(
        ["abnormal", "corrupt_early", "torn_garbage", "torn_header", "torn_zero", "torn_zero_body"],
        "the index file that was being filled is deleted at an unclean stop, and not all of its "
        "records are indexed again",
    ),
    "corrupt_late": "both",
    "corrupt_clean_late": "the log is cut",
    "no_cq": "records before the file that its recovery begins with",
    CUT: "it refuses to start",
}
"""Stores in which the real one finds fewer offsets of some keys, and why."""


@pytest.fixture(scope="module")
def recovered(
    store_fixtures: StoreFixtures, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[str], StoreFixture]]:
    """Copies, recovered when first asked for."""
    folder = tmp_path_factory.mktemp("recovered")

    @cache
    def recover(name: str) -> StoreFixture:
        copy = store_fixtures.copy(name, folder)
        lakelog.recover(copy.store, broker_conf=copy.folder / "options")
        return copy

    yield recover
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def dumps(recovered: Callable[[str], StoreFixture]) -> Callable[[str], list[Row]]:
    """What ``lakelog dump`` prints of each."""
    return cache(lambda name: dumped(recovered(name)))


def dumped(fixture: StoreFixture) -> list[Row]:
    done = invoke("dump", fixture.store, "--broker-conf", fixture.folder / "options")
    assert done.exit_code == (FOUND if fixture.name in _STAYING else 0), done.stderr
    return parse(done.stdout)


@pytest.mark.sample(5)
@pytest.mark.parametrize("name", NAMES)
def test_everything_whole_that_the_real_store_found(
    recovered: Callable[[str], StoreFixture], dumps: Callable[[str], list[Row]], name: str
) -> None:
    rows, less = dumps(name), _LESS.get(name, set())
    lines = Counter(map(_text, rows))
    kinds = by_kind(rows)
    ends = {(row["topic"], row["queueId"]): row["maxOffset"] for row in kinds["queue"]}
    queries = {(row["topic"], row["key"]): row["physOffsets"] for row in kinds["query"]}
    for row in recovered(TWIN.get(name, name)).expected_rows:
        if row["kind"] == "queue":
            assert ends[row["topic"], row["queueId"]] >= row["maxOffset"]
        elif row["kind"] == "query":
            found = queries.get((row["topic"], row["key"]), [])
            assert {*row["physOffsets"]} - less <= {*found} or len(found) == FULL_QUERY
        elif row["kind"] != "store" and row.get("physOffset") not in less:
            assert lines[_text(row)] == 1, row


def _text(row: Row) -> str:
    return json.dumps(row, sort_keys=True)


@pytest.mark.sample(5)
@pytest.mark.parametrize("name", NAMES)
def test_everything_else_that_is_whole_is_found_by_queue_and_by_key(
    recovered: Callable[[str], StoreFixture], name: str
) -> None:
    fixture = recovered(name)
    with lakelog.open(fixture.store, mode="read", broker_conf=fixture.folder / "options") as store:
        records = [each for each in store.scan() if each.topic]
        places = queue_places(store)
        for each in records:
            if not each.sys_flag & PREPARED:  # neither prepared nor rolled back
                assert each.physical_offset in places[each.topic, each.queue_id], each
        check_keys(store, records)


def queue_places(store: Store) -> dict[tuple[str, int], dict[int, int]]:
    """Queue offset by physical offset, of each queue, read unit by unit."""
    found: dict[tuple[str, int], dict[int, int]] = {}
    for queue in store.queues():
        units = store.queue_units(queue.topic, queue.queue_id, queue.min_offset, 1 << 30)
        places = dict(zip(units.offsets.tolist(), units.queue_offsets.tolist(), strict=True))
        assert len(places) == len(units)
        found[queue.topic, queue.queue_id] = places
    return found


def check_keys(store: Store, records: list[StoredMessage]) -> None:
    """Every key leads to its record, and to nothing that does not have it."""
    wanted: dict[tuple[str, str], set[int]] = {}
    for each in records:
        if each.sys_flag & TRANSACTION_MASK == ROLLBACK:
            continue
        keys = [each.properties.get(UNIQUE_KEY), *each.properties.get(KEYS, "").split(" ")]
        for key in filter(None, keys):
            wanted.setdefault((each.topic, key), set()).add(each.physical_offset)
    for (topic, key), offsets in wanted.items():
        found = {each.physical_offset for each in store.query(topic, key, max_messages=1 << 16)}
        assert found == offsets, (topic, key)


@pytest.mark.sample(5)
@pytest.mark.parametrize("name", NAMES)
def test_queues_and_index_fit_the_log_and_a_second_recovery_has_nothing_to_do(
    recovered: Callable[[str], StoreFixture], name: str
) -> None:
    """What is left are units and keys of records that were damaged after these were written."""
    fixture = recovered(name)
    found = list(check(fixture.store, broker_conf=fixture.folder / "options"))
    spoilt = name in ("corrupt_early", "corrupt_clean_early", "corrupt_clean_late")
    assert len(found) <= 2 * spoilt, found
    assert all("of no " in each.what for each in found)
    before = _content(fixture.store)
    report = lakelog.recover(fixture.store, broker_conf=fixture.folder / "options")
    assert report.clean
    assert _content(fixture.store) == before


def _content(path: Path) -> dict[str, bytes]:
    folders = ("commitlog", "consumequeue", "consumequeue_ext", "batchconsumequeue", "index")
    return {
        str(each): each.read_bytes()
        for folder in folders
        for each in sorted((path / folder).rglob("*"))
        if each.is_file()
    }


@pytest.mark.sample(5)
@pytest.mark.parametrize("name", NAMES)
def test_the_differences_from_the_real_store(
    recovered: Callable[[str], StoreFixture], dumps: Callable[[str], list[Row]], name: str
) -> None:
    """These and no others: a list in the docs says the same."""
    ours = by_kind(dumps(name))
    theirs = by_kind(recovered(name).expected_rows)
    more = len(ours["msg"]) - len(theirs["msg"])
    assert more + len(_LESS.get(name, ())) == _MORE.get(name, (0, ""))[0]
    queries = {(row["topic"], row["key"]): {*row["physOffsets"]} for row in theirs["query"]}
    fuller = [
        row
        for row in ours["query"]
        if {*row["physOffsets"]} - queries.get((row["topic"], row["key"]), set())
    ]
    assert bool(fuller) == (name in _MORE_KEYS), (len(fuller), fuller[:2])


def test_the_list_of_differences_is_of_damaged_stores_only() -> None:
    assert {*_MORE, *_MORE_KEYS, *_LESS} <= {*DAMAGED}
    assert not {*_MORE, *_MORE_KEYS, *_LESS} & {*EXACT}
