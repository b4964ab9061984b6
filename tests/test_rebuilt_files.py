"""Queues and index built from the logs of real store directories are the real ones.

Every file of ``consumequeue/``, ``consumequeue_ext/`` and ``batchconsumequeue/`` is the same, byte
for byte, and there are no others. So are the files of the index, but for their names, which are the
times of their making. RocketMQ makes a file of the index for any record, lakelog for the first key.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

import lakelog
from core.tests.store.support import tree
from lakelog import Store
from lakelog_doctor.rebuild import rebuild
from lakelog_hash_index.indexfile import Header
from lakelog_queues.store import QueueParts
from tests.support.fixtures import DAMAGED, EXACT, StoreFixture, StoreFixtures

QUEUES: Final = ("consumequeue", "consumequeue_ext", "batchconsumequeue")
MOST_FOUND: Final = 64


def files_of(store: Path) -> tuple[dict[str, str], list[bytes]]:
    """The digests of the queues' files, and the contents of the index."""
    index = [file.read_bytes() for file in sorted((store / "index").glob("*"))]
    queues = {f"{name}/{file}": it for name in QUEUES for file, it in tree(store / name).items()}
    return queues, [each for each in index if Header.unpack(each).count > 1]


@contextmanager
def opened(fixture: StoreFixture, mode: Any) -> Iterator[Store]:
    with lakelog.open(fixture.store, mode=mode, broker_conf=fixture.folder / "options") as store:
        yield store


def check_reads(store: Store, fixture: StoreFixture, *, exact: bool = True) -> None:
    """Queues and queries answer as the real store did; after damage, with no less."""
    if exact:
        found = {
            (each.topic, each.queue_id): (each.min_offset, each.max_offset)
            for each in store.queues()
        }
        assert found == {
            (row["topic"], row["queueId"]): (row["minOffset"], row["maxOffset"])
            for row in fixture.expected["queue"]
        }
    for row in fixture.expected["query"]:
        places = store.query_offsets(row["topic"], row["key"])
        if exact:
            assert sorted(places) == row["physOffsets"], row
        else:
            assert {*row["physOffsets"]} <= {*places} or len(places) == MOST_FOUND, row


def lose_all(store: Path) -> None:
    for name in (*QUEUES, "index"):
        shutil.rmtree(store / name, ignore_errors=True)


def lose_a_queue(store: Path) -> None:
    name = next(each for each in QUEUES if (store / each).is_dir())
    queue = min((store / name).glob("*/*")).relative_to(store / name)
    for each in QUEUES:
        shutil.rmtree(store / each / queue, ignore_errors=True)


def lose_nothing(_store: Path) -> None:
    pass


@pytest.fixture(params=EXACT)
def fixture(
    request: pytest.FixtureRequest, store_fixtures: StoreFixtures, tmp_path: Path
) -> StoreFixture:
    return store_fixtures.copy(request.param, tmp_path)


def test_rebuilt_files_are_the_real_ones(fixture: StoreFixture) -> None:
    before = files_of(fixture.store)
    rebuild(fixture.store, broker_conf=fixture.folder / "options")
    assert files_of(fixture.store) == before


@pytest.mark.parametrize("lose", [lose_nothing, lose_a_queue])
def test_an_owner_completes_what_the_real_store_left(
    fixture: StoreFixture, lose: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It believes nothing in a store that only RocketMQ wrote: a queue's folder may be gone."""
    # A delivery of delayed messages would append.
    monkeypatch.setattr(QueueParts, "deliver", lambda *_: None)
    before = files_of(fixture.store)
    lose(fixture.store)
    with opened(fixture, "write") as store:
        assert store.wait_dispatched()
        check_reads(store, fixture)
    assert files_of(fixture.store) == before


@pytest.mark.parametrize("lose", [lose_nothing, lose_all])
def test_a_reader_keeps_in_memory_what_files_lack(
    fixture: StoreFixture, lose: Callable[[Path], None]
) -> None:
    lose(fixture.store)
    before = {each: each.stat() for each in fixture.store.rglob("*")}
    with opened(fixture, "read") as store:
        check_reads(store, fixture)
    assert before.keys() >= {*fixture.store.rglob("*")}


@pytest.mark.sample(5)
@pytest.mark.parametrize("name", DAMAGED)
def test_a_reader_finds_no_less_than_rocketmq_after_a_crash(
    store_fixtures: StoreFixtures, name: str
) -> None:
    fixture = store_fixtures.get(name)
    with opened(fixture, "read") as store:
        check_reads(store, fixture, exact=False)


def test_a_recovery_of_a_clean_store_trusts_queues_of_batches(
    store_fixtures: StoreFixtures, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fixture = store_fixtures.copy("batchcq", tmp_path)
    lakelog.recover(fixture.store, broker_conf=fixture.folder / "options")
    for _ in range(2):
        again = lakelog.recover(fixture.store, broker_conf=fixture.folder / "options")
        assert "a clean stop" in again.start_reason
    assert "lack" not in caplog.text
