"""After a repair the unit of a lost message leads to its replacement, which no read returns."""

from __future__ import annotations

import shutil
from collections.abc import Collection
from pathlib import Path

import pytest

from core.tests.store.support import fill, open_small, read_small, tree
from lakelog import Message, PutResult, Store
from lakelog.recovery.filler import FILLER_TOPIC
from lakelog_queues.units.simpleunits import UNIT, UNIT_BYTES
from plugins.tools.tests.doctor.repair_support import repair_small, sound, write

COUNT = 100
FILLER = (0, 0x7FFFFFFF)


def lose(path: Path, puts: list[PutResult], lost: Collection[int]) -> None:
    """Damage records, and build the queue without them."""
    for number in lost:
        write(path, puts[number].physical_offset + 200, b"\xff")
    shutil.rmtree(path / "consumequeue")
    with open_small(path) as store:
        assert store.queue_bounds("t", 0) is not None


def unit(path: Path, number: int) -> tuple[int, int]:
    import numpy as np

    (file,) = (path / "consumequeue" / "t" / "0").iterdir()
    data = file.read_bytes()[number * UNIT_BYTES : (number + 1) * UNIT_BYTES]
    found = np.frombuffer(data, UNIT)[0]
    return int(found["offset"]), int(found["size"])


def one_by_one(store: Store) -> list[int]:
    """Queue offsets by gets of one message each; checks that each call advances."""
    found, at = [], 0
    for _ in range(COUNT + 10):
        result = store.get("t", 0, at, 1)
        found += [each.queue_offset for each in result.messages]
        assert all(each.topic == "t" for each in result.messages)
        assert result.next_offset >= at
        if result.next_offset == at:
            return found
        at = result.next_offset
    raise AssertionError("it goes on for ever")


@pytest.mark.parametrize("lost", [{3}, {0}, {0, 1}, {50, 51, 52}, {3, 7, 50, 98}])
def test_the_fillers_of_an_earlier_recovery_lead_there_afterwards(
    path: Path, puts: list[PutResult], lost: set[int]
) -> None:
    lose(path, puts, lost)
    assert unit(path, max(lost)) == FILLER
    report = repair_small(path)
    assert report.rebuilt == ("consumequeue",)
    assert report.led == (("t", 0),)
    assert sound(path)
    with read_small(path) as store:
        for number in lost:
            offset, size = unit(path, number)
            assert store.look_up(offset).topic == FILLER_TOPIC
            assert store.look_up(offset).size == size
            assert offset <= puts[number].physical_offset < offset + size
    again = repair_small(path)
    assert (again.rebuilt, again.led) == ((), (("t", 0),))


def test_the_unit_that_the_lost_message_had_stays(path: Path, puts: list[PutResult]) -> None:
    before = tree(path / "consumequeue")
    write(path, puts[3].physical_offset + 200, b"\xff")
    report = repair_small(path)
    assert (report.rebuilt, report.led) == ((), (("t", 0),))
    after = tree(path / "consumequeue")
    assert {name: after[name] for name in before} == before


@pytest.mark.parametrize("lost", [{0, 1}, {3, 50, 51, 98}])
@pytest.mark.parametrize("mode", ["own", "read"])
def test_every_way_of_reading_passes_over_it(
    path: Path, puts: list[PutResult], lost: set[int], mode: str
) -> None:
    for number in lost:
        write(path, puts[number].physical_offset + 200, b"\xff")
    with open_small(path) as store:
        fill(store, 1)
    repair_small(path)
    left = [number for number in range(COUNT + 1) if number not in lost]
    with open_small(path) if mode == "own" else read_small(path) as store:
        assert store.queue_units("t", 0, 0, 1000).queue_offsets.tolist() == left
        assert one_by_one(store) == left
        assert [each.queue_offset for each in store.read("t", 0)] == left
        columns = store.get_columns("t", 0, 0, 1000, columns=["queue_offset"])
        assert columns.batch.column("queue_offset").to_pylist() == left
        group = store.consumer("g", "t", start="earliest")
        assert [each.queue_offset for each in group.poll(1000)] == left
        if mode == "own":
            assert store.put(Message("t", b"new", queue_id=0)).queue_offset == COUNT + 1


def test_a_repair_that_died_behind_the_fillers_serves_none_of_them(
    path: Path, puts: list[PutResult], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The queue still has the unit of the lost message; a recovery finds its present record."""
    with open_small(path) as store:
        fill(store, 1)
    write(path, puts[3].physical_offset + 200, b"\xff")

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("lakelog_doctor.repair.keep_damage", die)
        with pytest.raises(KeyboardInterrupt):
            repair_small(path)
    with open_small(path) as store:
        assert store.look_up(puts[3].physical_offset).topic == FILLER_TOPIC
        assert one_by_one(store) == [number for number in range(COUNT + 1) if number != 3]


def test_the_topic_that_they_lead_to_stays(path: Path, puts: list[PutResult]) -> None:
    write(path, puts[3].physical_offset + 200, b"\xff")
    repair_small(path)
    with open_small(path) as store:
        with pytest.raises(ValueError, match="units of other queues lead to it"):
            store.delete_topic(FILLER_TOPIC)
        assert FILLER_TOPIC in store.topics()


def test_before_a_repair_it_leads_nowhere(path: Path, puts: list[PutResult]) -> None:
    lose(path, puts, {3})
    with open_small(path) as store:
        fill(store, 1)
    assert unit(path, 3) == FILLER
    assert sound_queues(path)


def sound_queues(path: Path) -> bool:
    from lakelog_doctor.check import check

    return not list(check(path, index=False, plugins=[]))
