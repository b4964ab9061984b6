"""Units of lost records lead to the record that a repair put in place of the damage."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from core.tests.format.handmade import record, run
from lakelog.files.filesystem import RealFileSystem
from lakelog.format.layout import RECORD_MIN_BYTES
from lakelog.format.properties import REPAIRED_TOPIC
from lakelog.format.record_batch import RecordBatch
from lakelog_queues.check import queues_with_replacements
from lakelog_queues.dispatching.consumequeues import ConsumeQueues
from plugins.queues.tests.consumequeue.support import contents, plain, queues

QUEUE = ("t", 0)
EVERYTHING = 1 << 40
FILLER = (0, 0x7FFFFFFF, 0)


def opened(path: Path, *, minimum: int = 0, clean: bool = True) -> ConsumeQueues:
    made = queues(path, clean=clean)
    made.resume(minimum, EVERYTHING)
    return made


def replacement(offset: int, size: int, number: int = 0) -> RecordBatch:
    body = b" " * (size - RECORD_MIN_BYTES - len(REPAIRED_TOPIC))
    return run(record(REPAIRED_TOPIC, b"", body, number, offset), start=offset)


def both(offset: int, size: int, number: int) -> RecordBatch:
    """A replacement, and the record behind it, in one run."""
    one, other = replacement(offset, size), plain("t", [number], offset + size)
    return run(bytes(one.buffer), bytes(other.buffer), start=offset)


def mended(path: Path, lost: int, *, minimum: int = 0) -> ConsumeQueues:
    """Five records, one in place of all ``lost`` ones, then three."""
    made = opened(path, minimum=minimum)
    made.dispatch(plain("t", range(5)))
    made.dispatch(replacement(1000, lost * 200))
    made.dispatch(plain("t", range(5 + lost, 8 + lost), (5 + lost) * 200))
    return made


def raw(path: Path, first: int, count: int) -> list[tuple[int, int, int]]:
    """Units as in the files, which have ten units each."""
    files = sorted((path / "consumequeue" / "t" / "0").iterdir())
    data = b"".join(each.read_bytes() for each in files)[first * 20 : (first + count) * 20]
    found: list[tuple[int, int, int]] = np.frombuffer(data, ">i8,>i4,>i8").tolist()
    return found


@pytest.mark.parametrize("lost", [1, 2, 25])
@pytest.mark.parametrize("clean", [True, False])
def test_the_place_leads_there_and_reads_pass_over_it(
    tmp_path: Path, lost: int, clean: bool
) -> None:
    made = mended(tmp_path, lost)
    before = contents(made)
    assert raw(tmp_path, 5, lost) == [(1000, lost * 200, 0)] * lost
    made.close()
    again = opened(tmp_path, clean=clean)
    assert contents(again) == before
    assert again.bounds(QUEUE, 0) == (0, 8 + lost)
    behind = [5 + lost, 6 + lost, 7 + lost]
    assert again.units(QUEUE, 0, 100).queue_offsets.tolist() == [*range(5), *behind]
    for first in (5, 4 + lost):
        assert again.units(QUEUE, first, 1).queue_offsets.tolist() == behind[:1]
    assert again.units((REPAIRED_TOPIC, 0), 0, 10).offsets.tolist() == [1000]
    again.close()
    assert queues_with_replacements(RealFileSystem(), tmp_path) == (QUEUE,)


def test_a_crash_left_the_first_ones_only(tmp_path: Path) -> None:
    """The next record takes the place that it states, and not the one after these units."""
    made = mended(tmp_path, 25)
    before = raw(tmp_path, 0, 33)
    made.close()
    for first in (10, 20):
        (tmp_path / "consumequeue" / "t" / "0" / f"{first * 20:020d}").unlink()
    again = opened(tmp_path, clean=False)
    again.dispatch(plain("t", range(5)))
    again.dispatch(replacement(1000, 5000))
    again.dispatch(plain("t", range(30, 33), 6000))
    assert raw(tmp_path, 0, 33) == before
    again.close()


def test_what_comes_again_changes_nothing(tmp_path: Path) -> None:
    made = mended(tmp_path, 3)
    log = plain("t", range(5)), replacement(1000, 600), plain("t", range(8, 11), 1600)
    before = raw(tmp_path, 0, 11)
    for batch in log:
        made.dispatch(batch)
    assert raw(tmp_path, 0, 11) == before
    made.close()
    assert problems(tmp_path, *log) == []
    file = tmp_path / "consumequeue" / "t" / "0" / f"{0:020d}"
    data = bytearray(file.read_bytes())
    data[5 * 20 + 11] += 1  # one of them leads to another length
    file.write_bytes(data)
    assert len(problems(tmp_path, *log)) == 1


def test_the_first_records_of_a_queue_were_lost(tmp_path: Path) -> None:
    made = opened(tmp_path)
    made.dispatch(both(0, 400, 2))
    assert raw(tmp_path, 0, 3) == [(0, 400, 0)] * 2 + [(400, 200, 0)]
    assert made.units(QUEUE, 0, 1).queue_offsets.tolist() == [2]
    made.close()


def test_a_queue_whose_log_has_grown_old_starts_as_ever(tmp_path: Path) -> None:
    made = opened(tmp_path, minimum=4000)
    made.dispatch(both(4000, 400, 2))
    assert raw(tmp_path, 0, 2) == [FILLER] * 2
    assert made.bounds(QUEUE, 4000) == (2, 3)
    made.close()


def test_one_that_stands_elsewhere_is_not_meant(tmp_path: Path) -> None:
    made = opened(tmp_path)
    made.dispatch(plain("t", range(5)))
    made.dispatch(plain("t", [6], 1200))
    made.dispatch(replacement(1400, 200))
    assert raw(tmp_path, 5, 1) == [FILLER]
    made.close()
    assert queues_with_replacements(RealFileSystem(), tmp_path) == ()


def test_they_go_with_the_log_behind_its_end(tmp_path: Path) -> None:
    made = mended(tmp_path, 3)
    made.truncate(1000)
    assert made.queues() == [QUEUE]
    assert made.bounds(QUEUE, 0) == (0, 5)
    made.dispatch(plain("t", range(5, 9), 1000))
    assert made.units(QUEUE, 0, 100).queue_offsets.tolist() == list(range(9))
    made.close()


# --- the check ---


def problems(path: Path, *batches: RecordBatch, minimum: int = 0) -> list[str]:
    reader = queues(path, read_only=True)
    verifier = reader.verifier(minimum, living=False)
    found = [each for batch in batches for each in verifier.take(batch)]
    found += verifier.finish(EVERYTHING)
    verifier.close()
    reader.close()
    return [f"{each.position}: {each.what}" for each in found]


def test_a_filler_is_wrong_once_there_is_a_replacement(tmp_path: Path) -> None:
    made = opened(tmp_path)
    made.dispatch(plain("t", range(5)))
    made.dispatch(plain("t", range(7, 9), 1400))
    made.dispatch(replacement(1000, 400))
    made.close()
    first, behind = plain("t", range(5)), plain("t", range(7, 9), 1400)
    (found,) = problems(tmp_path, first, replacement(1000, 400), behind)
    assert found.startswith("100: the unit of a lost record does not lead")
    assert problems(tmp_path, first, behind)[0].endswith("of this queue")  # the replacement's


@pytest.mark.parametrize(("minimum", "count"), [(0, 1), (100, 0)])
def test_so_is_one_at_the_front_of_a_log_from_0(tmp_path: Path, minimum: int, count: int) -> None:
    made = opened(tmp_path)
    made.dispatch(plain("t", [2], 500))
    made.dispatch(replacement(100, 400))
    made.close()
    found = problems(tmp_path, both(100, 400, 2), minimum=minimum)
    assert len(found) == count
    assert all(each.startswith("0: the unit of a lost record") for each in found)


# --- places of lost records without a replacement: they have fillers ---


def holed(path: Path, lost: int = 2000, *, read_only: bool = False) -> ConsumeQueues:
    """Five records, then ``lost`` lost ones, then three."""
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
    if not read_only:  # as RocketMQ fills the front of a queue
        assert raw(tmp_path, 5, lost) == [FILLER] * lost
    assert places(made, 0) == [0, 1, 2, 3, 4, *behind]
    assert places(made, 4, 1) == [4]
    for first in (5, 4 + lost, 5 + lost):
        assert places(made, first, 1) == behind[:1]
        assert places(made, first, 2)[:1] == behind[:1]
    assert places(made, 8 + lost, 1) == []
    assert made.bounds(QUEUE, 801) == (5 + lost, 8 + lost)
    assert made.bounds(QUEUE, 200 * (6 + lost)) == (6 + lost, 8 + lost)
    made.close()


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
