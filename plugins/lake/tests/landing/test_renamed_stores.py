"""A store that gets a UUID or another folder after it landed: each message is one row."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakelog_lake.landing.dispatcher import LandingDispatcher
from lakelog_lake.landing.targets import TableSpec, identity_of
from lakelog_lake.log.records import store_name
from lakelog_lake.log.wanted import EVERYTHING
from lakelog_lake.maintenance.removal import planned
from lakelog_lake.maintenance.tables import statuses
from lakelog_lake.tasks.engines import in_process
from lakelog_lake.tasks.task import LandingSource, TaskLimits
from lakelog_lake.verify.verify import VerifyRequest, verify_here
from lakelog_testing.samples import copy_store
from plugins.lake.tests.landing.tables import KINDS, any_kind, keys_in, opened, read
from plugins.lake.tests.stores import filled


def land_once(path: Path, to: str, store_id: str | None = None) -> int:
    """As ``lakelog dispatch --once``; how many rows."""
    source = LandingSource(path, identity_of(path, store_id))
    with LandingDispatcher.of(source, TableSpec(to), in_process, TaskLimits()) as lander:
        return sum(each.rows for each in iter(lander.one_pass, None) if each is not None)


@pytest.fixture
def foreign(tmp_path: Path) -> Path:
    """A store that lakelog has never owned, as RocketMQ's are."""
    store = filled(tmp_path / "rocketmq", 300)
    (store / "lakelog" / "store.json").unlink()
    assert store_name(store) == "rocketmq"
    return store


def stores(kind: str, path: Path) -> set[str]:
    return set(read(kind, path)["store"].to_pylist())


@pytest.mark.parametrize("kind", KINDS)
def test_a_store_that_gets_a_uuid_keeps_its_name_in_the_table(
    kind: str, foreign: Path, tmp_path: Path
) -> None:
    path, to = tmp_path / "t", f"{kind}:{tmp_path / 't'}"
    assert land_once(foreign, to) == 300
    filled(foreign, 20)
    assert store_name(foreign) != "rocketmq"
    assert land_once(foreign, to) == 20
    assert land_once(foreign, to) == 0
    assert stores(kind, path) == {"rocketmq"}
    name = identity_of(foreign, None)
    assert verify_here(VerifyRequest(foreign, name, opened(to), EVERYTHING)).is_clean
    assert next(iter(statuses(foreign, name, to, None, {}))).lag_bytes == 0
    assert list(planned(foreign, name, to, None, None)) == []


@pytest.mark.parametrize("kind", ["delta"])
def test_tables_of_topics_go_on(kind: str, foreign: Path, tmp_path: Path) -> None:
    to = f"{kind}:{tmp_path / 't'}/{{topic}}"
    assert land_once(foreign, to) == 300
    filled(foreign, 21)
    assert land_once(foreign, to) == 21
    for topic in range(3):
        assert stores(kind, tmp_path / "t" / f"topic-{topic}") == {"rocketmq"}


@any_kind
def test_another_store_is_another_one(kind: str, foreign: Path, tmp_path: Path) -> None:
    """With the same messages at the same places, stored at other times; or named by the user."""
    path, to = tmp_path / "t", f"{kind}:{tmp_path / 't'}"
    land_once(foreign, to)
    other = filled(tmp_path / "o", 300)
    assert land_once(other, to) == 300
    copy_store(other, tmp_path / "copy")
    assert land_once(tmp_path / "copy", to, "copy") == 300
    assert stores(kind, path) == {"rocketmq", store_name(other), "copy"}
    assert len(set(keys_in(read(kind, path)))) == 900
