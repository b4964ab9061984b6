"""What the real store left, damaged and not: everything whole is there after a recovery."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import lakelog
from lakelog_rocketmq import plugin
from tests.support.fixtures import StoreFixtures

# Where the log ends, how many whole records were read in it, damaged places that stay in it,
# bytes that were set aside, and files of a wrong length.
_LEFT = {
    "abnormal": (704504, 1015, 0, 0, 0),
    "no_checkpoint": (704504, 1015, 0, 0, 0),
    "no_cq": (704504, 1015, 0, 0, 0),
    "torn_garbage": (704235, 1014, 0, 269, 0),
    "torn_header": (704235, 1014, 0, 4, 0),
    "torn_zero": (704235, 1014, 0, 134, 0),
    "torn_zero_body": (704235, 1014, 0, 269, 0),
    "truncated_file": (704235, 1014, 0, 134, 1),
    "corrupt_late": (704504, 1015, 0, 241, 1),  # a crash may have left it: a record is there now
    "corrupt_early": (704504, 1014, 0, 0, 0),  # the damage is before the part that is read
    "corrupt_clean_late": (483422, 674, 1, 0, 0),
    "corrupt_clean_early": (483422, 674, 1, 0, 0),
    "real_broker_crash": (621155, 2036, 0, 0, 0),
}


@pytest.fixture(scope="session")
def store_fixtures(tmp_path_factory: pytest.TempPathFactory) -> StoreFixtures:
    return StoreFixtures(tmp_path_factory.mktemp("store_fixtures"))


@pytest.mark.sample(5)
@pytest.mark.parametrize("name", _LEFT)
def test_recovery_of(name: str, store_fixtures: StoreFixtures, tmp_path: Path) -> None:
    left = store_fixtures.copy(name, tmp_path)
    given: dict[str, Any] = {"plugins": [plugin], "broker_conf": left.folder / "options"}
    end, records, damage, cut, mended = _LEFT[name]
    report = lakelog.recover(left.store, **given)
    assert report.end_offset == end
    assert len(report.damage) == damage
    assert sum(each.end_offset - each.offset for each in report.cut) == cut
    assert len(report.mended) == mended
    with lakelog.open(left.store, mode="read", **given) as store:
        found = {each.physical_offset for each in store.scan()}
    assert len(found) == records
    expected = {row["physOffset"] for row in left.expected.get("rec", ())}
    assert {at for at in expected if at < end} <= found | _damaged(name)
    again = lakelog.recover(left.store, **given)
    assert again.clean
    assert not again.changed
    assert again.end_offset == end


def _damaged(name: str) -> set[int]:
    return {"corrupt_early": {22182}, "corrupt_clean_early": {22182}}.get(name, set())
