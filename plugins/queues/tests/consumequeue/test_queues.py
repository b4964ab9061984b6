"""Queues on disk: places, damage, restarts, truncation, and records dispatched again."""

from __future__ import annotations

from pathlib import Path

import attrs
import pytest

from core.tests.format.handmade import record, run
from lakelog.files.filesystem import RealFileSystem
from lakelog_queues.dispatching.consumequeues import ConsumeQueues
from lakelog_queues.files.openfiles import OpenFiles
from lakelog_testing.contracts.writer import open_in
from plugins.queues.tests.consumequeue.support import SMALL, contents, keep_log, plain, queues

QUEUE = ("t", 0)
UNIT_BYTES = 20
FILE_BYTES = 10 * UNIT_BYTES
EVERYTHING = 1 << 40


def path_of(store: Path, number: int = 0, topic: str = "t") -> Path:
    return store / "consumequeue" / topic / "0" / f"{number * FILE_BYTES:020d}"


def offsets(reader: ConsumeQueues, first: int = 0, count: int = EVERYTHING) -> list[int]:
    found: list[int] = reader.units(QUEUE, first, count).offsets.tolist()
    return found


def dispatched(store: Path, count: int = 25, first: int = 0) -> ConsumeQueues:
    """Queues with ``count`` units of records of 200 bytes, which the log holds."""
    made = queues(store)
    made.resume(0, 0)
    batch = plain("t", range(first, first + count))
    keep_log(store, batch)
    made.dispatch(batch)
    return made


def stored(store: Path, count: int = 25, first: int = 0) -> None:
    dispatched(store, count, first).close()


def held(folder: Path) -> int:
    """Number of open descriptors of files in ``folder``, without those of other tests."""
    return len(open_in(folder))


def overwrite(path: Path, position: int, data: bytes) -> None:
    content = bytearray(path.read_bytes())
    content[position : position + len(data)] = data
    path.write_bytes(content)


# --- places ---


def test_units_as_bytes(tmp_path: Path) -> None:
    made = queues(tmp_path)
    batch = run(record("t", b"TAGS\x01a\x02", b"body", 0, 0), record("t", b"", b"", 1, 103))
    made.dispatch(batch)
    made.close()
    unit = (0).to_bytes(8, "big") + (103).to_bytes(4, "big") + (97).to_bytes(8, "big")
    second = (103).to_bytes(8, "big") + (92).to_bytes(4, "big") + (0).to_bytes(8, "big")
    assert path_of(tmp_path).read_bytes() == (unit + second).ljust(FILE_BYTES, b"\x00")


def test_a_queue_that_starts_late_is_filled_up_to_there(tmp_path: Path) -> None:
    stored(tmp_path, count=3, first=14)
    filler = bytes(8) + b"\x7f\xff\xff\xff" + bytes(8)
    assert path_of(tmp_path, 1).read_bytes()[: 5 * UNIT_BYTES].startswith(filler * 4 + bytes(8))
    assert not path_of(tmp_path, 0).exists()
    again = queues(tmp_path)
    again.resume(0, EVERYTHING)
    assert again.bounds(QUEUE, 0) == (14, 17)
    assert offsets(again, 14) == [0, 200, 400]
    assert offsets(again, 3) == []
    again.close()


def test_reads_stop_where_the_queue_does(tmp_path: Path) -> None:
    made = dispatched(tmp_path)
    assert offsets(made, 8, 4) == [1600, 1800, 2000, 2200]
    assert offsets(made, 24) == [4800]
    for first in (-1, 25, EVERYTHING):
        assert offsets(made, first) == []
    assert offsets(made, 3, 0) == []
    assert made.units(("none", 0), 0, 5).offsets.tolist() == []
    assert made.bounds(("none", 0), 0) is None
    assert made.bounds(("t", 1), 0) is None
    made.close()


def test_the_first_offset_follows_the_log(tmp_path: Path) -> None:
    made = dispatched(tmp_path)
    minimums = (0, 1, 200, 201, 4800, 4801, 9999, 200)
    found = [made.bounds(QUEUE, minimum) for minimum in minimums]
    assert found == [(first, 25) for first in (0, 1, 1, 2, 24, 25, 25, 1)]
    made.dispatch(plain("t", [25], 5000))
    assert made.bounds(QUEUE, 9999) == (26, 26)
    assert made.bounds(QUEUE, 5000) == (25, 26)
    made.close()


@pytest.mark.parametrize(
    ("stated", "taken"),
    [
        ([0, 1, 2], [0, 1, 2]),
        ([0, 1, 5, 6], [0, 1, 2, 3]),  # more are missing than fit in between: placed at the end
        ([0, 1, 1, 2], [0, 1, 2, 3]),  # the place is taken: placed at the end, and found
        ([3, 4, 1, 5], [0, 1, 2, 3]),
        ([0, 1, 0, 3], [0, 1, 2, 3]),
    ],
)
def test_records_that_cannot_have_their_place_go_to_the_end(
    tmp_path: Path, stated: list[int], taken: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    """And are logged, if they come together."""
    batch, expected = plain("t", stated), [200 * at for at in taken]
    for step in (9, 1):
        made = queues(tmp_path / str(step))
        for at in range(0, len(batch), step):
            made.dispatch(batch[at : at + step])
        assert offsets(made, stated[0]) == expected
        made.dispatch(batch)
        assert offsets(made, stated[0]) == expected
        made.close()
        assert ("cannot have their own queue offset" in caplog.text) == (stated != taken)


def test_prepared_and_rolled_back_records_have_no_unit(tmp_path: Path) -> None:
    made = queues(tmp_path)
    logs, at = [], 0
    for flag, stated in ((0, 0), (4, 0), (8, 1), (12, 0)):
        logs.append(record("t", b"", b"", stated, at, flag))
        at += len(logs[-1])
    made.dispatch(run(*logs))
    assert offsets(made) == [0, 2 * len(logs[0])]
    made.close()


@pytest.mark.parametrize(
    ("names", "places", "expected"),
    [
        ("%LMQ%a,%LMQ%b", "0,0", {("%LMQ%a", 0), ("%LMQ%b", 0)}),
        ("%LMQ%a,plain", "0", set()),
        ("%LMQ%a,plain", "0,0", {("%LMQ%a", 0), ("plain", 3)}),
        ("%LMQ%a/x,%LMQ%b", "0,0", {("%LMQ%b", 0)}),
        ("%LMQ%a", "x", set()),
        ("%LMQ%a", "", set()),
        ("%LMQ%a,", "0,", {("%LMQ%a", 0)}),
    ],
)
def test_light_queues(
    tmp_path: Path, names: str, places: str, expected: set[tuple[str, int]]
) -> None:
    properties = f"INNER_MULTI_DISPATCH\x01{names}\x02INNER_MULTI_QUEUE_OFFSET\x01{places}\x02"
    batch = run(record("t", properties.encode(), b"", 0, 0, queue_id=3))
    for light, found in ((True, expected | {("t", 3)}), (False, {("t", 3)})):
        made = queues(tmp_path / str(light), light_queues=light)
        made.dispatch(batch)
        assert set(made.queues()) == found
        made.close()


# --- restarts ---


@pytest.mark.parametrize(
    ("at", "data", "end"),
    [
        (0, b"\xff" * 8, 22),  # its neighbour too: it is not known which of the two is wrong
        (0, bytes(8), 22),
        (0, (2001).to_bytes(8, "big"), 22),
        (0, (9_999).to_bytes(8, "big"), 23),
        (8, bytes(4), 23),
        (8, b"\xff\xff\xff\xff", 23),
    ],
)
def test_a_corrupt_unit_ends_the_queue(tmp_path: Path, at: int, data: bytes, end: int) -> None:
    stored(tmp_path)
    overwrite(path_of(tmp_path, 2), 3 * UNIT_BYTES + at, data)
    again = queues(tmp_path, clean=False)
    assert again.resume(0, 5000) == 200 * end
    assert again.bounds(QUEUE, 0) == (0, end)
    again.dispatch(plain("t", range(25)))
    assert offsets(again) == [200 * at for at in range(25)]
    again.close()


# --- forgetting ---


def test_truncating_to_nothing_removes_the_queue(tmp_path: Path) -> None:
    made = dispatched(tmp_path, first=14)
    made.truncate(0)
    assert made.queues() == []
    assert list((tmp_path / "consumequeue").rglob("0000*")) == []
    made.dispatch(plain("t", range(3)))
    assert offsets(made) == [0, 200, 400]
    made.close()


def test_a_forgotten_topic_stays_forgotten(tmp_path: Path) -> None:
    made = dispatched(tmp_path)
    made.dispatch(plain("other", range(3), 5000))
    made.forget_topic("t", 5200)
    assert made.queues() == [("other", 0)]
    assert not (tmp_path / "consumequeue" / "t").exists()
    made.dispatch(plain("t", [25, 26, 27], 5000))
    assert contents(made)[QUEUE][0] == (26, 28)
    made.close()
    again = queues(tmp_path / "again", tombstones={"t": 400})
    again.dispatch(plain("t", range(4)))
    assert offsets(again, 2) == [400, 600]
    again.close()


# --- many queues ---


def test_a_file_that_is_dropped_while_it_is_read_is_closed_behind_the_read(tmp_path: Path) -> None:
    opened = OpenFiles(RealFileSystem(), write=True)
    with opened.use(tmp_path / "a", create=True) as held:
        held.write_at(0, b"a")
        opened.drop(tmp_path / "a")
        assert held.read_at(0, 1) == b"a"
    with pytest.raises(OSError, match="Bad file descriptor"):
        held.size()
    opened.close()


def test_all_queues_share_the_files_they_keep_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    most = 20
    defaults = OpenFiles.__init__.__kwdefaults__
    assert defaults is not None
    monkeypatch.setitem(defaults, "most", most)
    settings = attrs.evolve(SMALL, ext_enabled=True, ext_file_size_bytes=64)
    topics = [f"topic-{number:04d}" for number in range(30)]
    size = 91 + len(topics[0])
    made = queues(tmp_path, settings)
    batch = run(*(record(topic, offset=size * at) for at, topic in enumerate(topics)))
    keep_log(tmp_path, batch)
    made.dispatch(batch)
    assert 0 < held(tmp_path) <= most
    made.close()
    again = queues(tmp_path, settings)
    assert again.resume(0, 1 << 40) == size * len(topics)
    assert 0 < held(tmp_path) <= most
    again.close()
    assert held(tmp_path) == 0


def test_a_topic_that_is_forgotten_twice_does_not_come_back(tmp_path: Path) -> None:
    made = dispatched(tmp_path)
    made.forget_topic("t", 5000)
    more = plain("t", [25, 26], 5000)
    made.dispatch(more)
    made.forget_topic("t", more.end_offset)
    made.dispatch(more)
    assert made.queues() == []
    made.close()


def test_a_tombstone_beyond_the_log_hides_no_later_record(tmp_path: Path) -> None:
    """The end of the log was lost after the topic was removed."""
    made = queues(tmp_path, tombstones={"t": 9000})
    made.resume(0, 400)
    made.dispatch(plain("t", [2, 3], 400))
    assert contents(made)[QUEUE][0] == (2, 4)
    made.close()


def test_files_that_were_removed_are_not_taken_for_lost_after_a_crash(tmp_path: Path) -> None:
    made = dispatched(tmp_path)
    made.flush()
    assert made.remove_before(4000) == 2
    again = queues(tmp_path, clean=False)
    assert again.resume(4000, 5000) == 5000
    assert again.bounds(QUEUE, 4000) == (20, 25)
    again.close()
    made.close()
