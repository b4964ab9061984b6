"""Places of records that the log has lost: fillers stand there, and reads pass over them."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakelog_queues.dispatching.consumequeues import ConsumeQueues
from plugins.queues.tests.consumequeue.support import contents, plain, queues

QUEUE = ("t", 0)
FILLER = bytes(8) + b"\x7f\xff\xff\xff" + bytes(8)
EVERYTHING = 1 << 40


def holed(path: Path, lost: int = 2000, *, read_only: bool = False) -> ConsumeQueues:
    """Five records, then as many lost ones, then three."""
    made = queues(path, read_only=read_only)
    made.resume(0, 0)
    made.dispatch(plain("t", range(5)))
    made.dispatch(plain("t", range(5 + lost, 8 + lost), (5 + lost) * 200))
    return made


def places(made: ConsumeQueues, first: int, count: int = EVERYTHING) -> list[int]:
    found: list[int] = made.units(QUEUE, first, count).queue_offsets.tolist()
    return found


@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.parametrize("lost", [1, 7, 2000])
def test_reads_go_on_behind_a_hole(tmp_path: Path, lost: int, read_only: bool) -> None:
    made = holed(tmp_path, lost, read_only=read_only)
    behind = [5 + lost, 6 + lost, 7 + lost]
    assert made.bounds(QUEUE, 0) == (0, 8 + lost)
    assert places(made, 0) == [0, 1, 2, 3, 4, *behind]
    assert places(made, 4, 1) == [4]
    for first in (5, 4 + lost, 5 + lost):
        assert places(made, first, 1) == behind[:1]
        assert places(made, first, 2)[:1] == behind[:1]
    assert places(made, 8 + lost, 1) == []
    assert made.bounds(QUEUE, 801) == (5 + lost, 8 + lost)
    assert made.bounds(QUEUE, 200 * (6 + lost)) == (6 + lost, 8 + lost)
    made.close()


def test_a_hole_is_written_as_rocketmq_fills_the_front_of_a_queue(tmp_path: Path) -> None:
    holed(tmp_path, 3).close()
    data = (tmp_path / "consumequeue" / "t" / "0" / f"{0:020d}").read_bytes()
    assert data[100:160] == FILLER * 3
    assert data[160:168] == (8 * 200).to_bytes(8, "big")


@pytest.mark.parametrize("clean", [True, False])
def test_a_queue_with_a_hole_is_read_again_as_it_was(tmp_path: Path, clean: bool) -> None:
    made = holed(tmp_path)
    before = contents(made)
    made.close()
    again = queues(tmp_path, clean=clean)
    again.resume(0, EVERYTHING)
    assert contents(again) == before
    again.dispatch(plain("t", range(5)))
    again.dispatch(plain("t", range(2005, 2008), 2005 * 200))
    assert contents(again) == before
    again.close()


def test_no_filler_is_left_at_the_end(tmp_path: Path) -> None:
    made = holed(tmp_path)
    made.truncate(2005 * 200)
    assert made.bounds(QUEUE, 0) == (0, 5)
    made.dispatch(plain("t", [5, 6], 1000))
    assert places(made, 0) == list(range(7))
    made.close()


def test_a_hole_that_can_be_filled_again_is(tmp_path: Path) -> None:
    """The lost segment was put back: its records come before those behind the hole."""
    made = holed(tmp_path, 20)
    made.close()
    again = queues(tmp_path, clean=False)
    again.resume(0, EVERYTHING)
    again.dispatch(plain("t", range(28)))
    assert places(again, 0) == list(range(28))
    assert contents(again)[QUEUE][1][1] == [200 * at for at in range(28)]
    again.close()


@pytest.mark.parametrize("stated", [10 + 1000 * 200 // 91, 1 << 40, (1 << 62)])
def test_a_hole_that_no_lost_records_explain_is_none(tmp_path: Path, stated: int) -> None:
    made = queues(tmp_path)
    made.dispatch(plain("t", range(5)))
    made.dispatch(plain("t", [stated, stated + 1], 1000 * 200))
    assert places(made, 0) == list(range(7))
    made.close()
    assert sum(path.stat().st_size for path in tmp_path.rglob("0*") if path.is_file()) == 200
