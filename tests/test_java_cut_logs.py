"""Logs that the real store cut: what it left behind the new end never comes back.

It cuts a log by forgetting where it ended. If it then writes less than it cut, records of the same
size, and the last one is torn, then old, whole records stand behind a gap, at their places, with
sound checksums, and their old units stand in the queue.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import attrs
import pytest

import lakelog
from lakelog import Message
from lakelog.files.checkpoint import read_checkpoint
from lakelog.files.filesystem import RealFileSystem
from tests.support.rows import Row, by_kind, difference
from tests.support.twostores import alike, ours

if TYPE_CHECKING:
    from tests.oracle.java import Oracle

SEGMENT: Final = 64 << 10
JAVA, SETTINGS = alike(SEGMENT, light_queues=False)
UNIT_BYTES: Final = 20


@attrs.frozen
class Left:
    """What the real store left in a directory.

    :ivar old: ten records, of which the sixth was damaged, so that it cut the log there
    :ivar new: two that it wrote in their place; the second is torn
    """

    path: Path
    old: list[Row]
    new: list[Row]

    @property
    def whole(self) -> list[int]:
        """Where the records start that belong to the log."""
        return [row["offset"] for row in (*self.old[:5], self.new[0])]


def put(oracle: Oracle, path: Path, count: int, mark: str, end: str, *more: str) -> list[Row]:
    arguments = ["--count", str(count), "--mark", mark, "--exit", end, *more]
    return oracle.run("PutSame", path, arguments, JAVA)


def tear(path: Path, row: Row) -> None:
    """Lose the second half of a record."""
    half = row["size"] // 2
    with (path / "commitlog" / f"{0:020}").open("r+b") as file:
        file.seek(row["offset"] + half)
        file.write(bytes(row["size"] - half))


def a_cut_log(oracle: Oracle, path: Path, stops: tuple[str, ...]) -> Left:
    """:param stops: how the real store ended before it cut the log, each time that it ran."""
    old = put(oracle, path, 10, "a", stops[0])
    for stop in stops[1:]:
        put(oracle, path, 0, "", stop)
    tear(path, old[5])
    new = put(oracle, path, 2, "n", "halt", "--pause-ms", "0")  # before the checkpoint is written
    assert [row["offset"] for row in new] == [row["offset"] for row in old[5:7]]
    tear(path, new[1])
    return Left(path, old, new)


def units(path: Path) -> list[int]:
    """Where the units of the queue point to, those behind its end included."""
    data = (path / "consumequeue" / "t" / "0" / f"{0:020}").read_bytes()
    return [
        int.from_bytes(data[at : at + 8], "big") for at in range(0, 12 * UNIT_BYTES, UNIT_BYTES)
    ]


STALE: Final = ("shutdown", "shutdown")
TRIES: Final = 8


def cut_logs(oracle: Oracle, folder: Path, stops: tuple[str, ...]) -> Iterator[Left]:
    """One after the other: how far the real store says it got depends on its threads' times."""
    for number in range(TRIES):
        yield a_cut_log(oracle, folder / str(number), stops)


def is_stale(left: Left, stops: tuple[str, ...]) -> bool:
    """Whether the checkpoint is from before the cut where it is to be, and only there."""
    confirmed = read_checkpoint(RealFileSystem(), left.path).confirm_offset
    cut_at: int = left.new[1]["offset"]
    return (confirmed > cut_at) == (stops == STALE)


@pytest.mark.parametrize(
    "stops",
    [
        pytest.param(("halt",), id="halt"),
        pytest.param(("shutdown",), id="clean", marks=pytest.mark.slow),
        pytest.param(STALE, id="stale"),
    ],
)
def test_old_records_behind_a_torn_one_stay_away(
    stops: tuple[str, ...], oracle: Oracle, tmp_path: Path
) -> None:
    left = next(each for each in cut_logs(oracle, tmp_path, stops) if is_stale(each, stops))
    assert units(left.path)[:10] == [row["offset"] for row in left.old]
    segment = (left.path / "commitlog" / f"{0:020}").read_bytes()

    report = lakelog.recover(left.path, **SETTINGS)
    end = left.new[1]["offset"]
    assert (report.end_offset, report.damage) == (end, ())
    (cut,) = report.cut
    assert cut.offset == end
    assert "3 whole records in it are not proved" in cut.reason
    assert cut.path is not None
    assert cut.path.read_bytes() == segment[end : cut.end_offset]
    assert left.old[8]["offset"] + left.old[8]["size"] < cut.end_offset
    check(oracle, left)


def check(oracle: Oracle, left: Left) -> None:
    """Six records are there, in log and queue, and go on; also after another crash."""
    with lakelog.open(left.path, **SETTINGS) as store:
        assert [each.physical_offset for each in store.scan()] == left.whole
        assert store.queue_units("t", 0, 0, 100).offsets.tolist() == left.whole
        assert store.query_offsets("t", "a9") == []
        result = store.put(Message("t", b"next", keys="next", queue_id=0))
        assert (result.queue_offset, result.physical_offset) == (6, left.new[1]["offset"])
    (left.path / "abort").write_text("4711")
    lakelog.recover(left.path, **SETTINGS)
    found = ours(left.path, JAVA)
    assert [row["physOffset"] for row in by_kind(found)["msg"]] == [
        *left.whole,
        result.physical_offset,
    ]
    assert difference(found, oracle.dump(left.path, JAVA, in_place=True)) == ""
