"""Owners killed inside of the copy of an append, at every byte of it: no hole is built upon.

A C library may copy in any order: the head of a large copy is stored last. So the end of an append
can be in the log, and its start not. The next owner goes on where the last whole append ended, and
the real store keeps all that was acknowledged before and after.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import attrs
import pytest

import lakelog
from core.tests.recovery.support import StoppingFiles
from lakelog.files.filesystem import RealFileSystem
from lakelog.format.record_batch import Blank, RecordBatch
from lakelog.processes.shared_page import (
    APPENDED,
    INTENT_END,
    INTENT_START,
    PROOF,
    page_path,
    whole_end,
)
from lakelog.recovery.filler import FILLER_TOPIC
from lakelog_testing.samples import copy_store
from tests.faults.checking import takes_direct
from tests.support import forked
from tests.support.dying import LOST, MADE, Death, message, settings
from tests.support.rows import by_kind
from tests.support.sampling import at_every, below
from tests.support.twostores import JAVA, SEGMENT

if TYPE_CHECKING:
    from tests.oracle.java import Oracle

PAGE: Final = 4096
MORE: Final = 3
SIZE: Final = 168
"""Of each record with the usual body."""
COPIED: Final = ("backward", "hole", "ends last", "forward")
FILES: Final = RealFileSystem()
SOAK: Final = (pytest.mark.soak, pytest.mark.timeout(3600))
KILLED: Final = -9
FAULT: Final = -11


def died(deaths: Iterable[Death]) -> Iterator[tuple[Death, list[int], int]]:
    """Let each owner die; what it had acknowledged, and how it ended."""
    with forked.start("tests.support.dying", []) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for each in deaths:
            process.stdin.write(each.line())
            process.stdin.flush()
            offsets: list[int] = []
            while not (line := process.stdout.readline()).startswith("ended "):
                assert line, each
                offsets = [int(word) for word in line.split()]
            ended = int(line.split()[1])
            assert ended, f"{each} lived on"
            yield each, offsets, ended


def check(death: Death, acknowledged: list[int]) -> list[int]:
    """Open what was left, put more: all that was acknowledged is in a log without a hole."""
    with lakelog.open(death.path, **settings(death.writer)) as store:
        report = store.recovery
        assert report is not None
        assert not report.clean
        assert report.damage == ()
        more = [store.put(message(1000 + at, 60)).physical_offset for at in range(MORE)]
    due = acknowledged + more
    found: list[int] = []
    with lakelog.open(death.path, mode="read", **settings(death.writer)) as reader:
        for piece in reader.scan_pieces():
            assert isinstance(piece, RecordBatch | Blank), (death, piece)
            if isinstance(piece, RecordBatch):
                found += piece.physical_offsets.tolist()
    assert len(found) <= len(due) + LOST, death
    assert [each for each in due if each not in found] == [], death
    return found


def check_real(oracle: Oracle, death: Death, found: list[int]) -> None:
    """The real store has the same, as it was left and where its owner died once more."""
    for _ in range(2):
        rows = by_kind(oracle.dump(Path(death.path), JAVA))
        assert [row["physOffset"] for row in rows["rec"]] == found, death
        (Path(death.path) / "abort").write_text("4711")
        assert rows.keys().isdisjoint({"badrec", "undecodable", "msgerr"})


def borders(start: int) -> list[int]:
    """Bytes of an append at ``start``: the ends of a record and of a page, and those beside."""
    ends = {SIZE * 2, PAGE - start % PAGE}
    return sorted({LATE, *(end + by for end in ends for by in (-1, 0, 1))})


def deaths(folder: Path, writer: str, at: Iterable[int], **more: Any) -> Iterator[Death]:
    """One in every order at each of these bytes."""
    for order, byte in product(COPIED, at):
        path = folder / f"{writer}-{order.replace(' ', '-')}-{byte}"
        yield Death(str(path), writer, order, byte, **more)


def killed_late(tmp_path: Path, writer: str = "file") -> Death:
    """A death that leaves whole records behind a hole."""
    return Death(str(tmp_path / "store"), writer, "backward", LATE)


LATE: Final = 16
"""Without so many bytes, the first record of an append is none, and those behind it are whole."""
START: Final = PAGE // SIZE * SIZE - SIZE
"""An append that begins here goes over the end of a page."""


@pytest.mark.parametrize("writer", ["file", "mmap"])
@pytest.mark.parametrize(
    ("at", "stride"),
    [
        pytest.param(borders(START), 12, id="some borders"),
        pytest.param(borders(START), 1, id="any border", marks=pytest.mark.slow),
        pytest.param(range(LOST * SIZE), 1, id="any byte", marks=SOAK),
    ],
)
def test_a_copy_that_ends_anywhere(
    at: Iterable[int], stride: int, writer: str, oracle: Oracle, tmp_path: Path
) -> None:
    """At the border of a record or a page, or at a byte beside it."""
    each = [*deaths(tmp_path, writer, at, filled=START)]
    some = (each[at] for at in below(len(each), stride))
    for number, (death, acknowledged, ended) in enumerate(died(some)):
        assert (acknowledged[-1] + SIZE, ended) == (START, KILLED), death
        found = check(death, acknowledged)
        if not number % 20:
            check_real(oracle, death, found)


@pytest.mark.parametrize("writer", ["file", "mmap"])
def test_a_copy_that_a_page_fault_ends(writer: str, oracle: Oracle, tmp_path: Path) -> None:
    """In the order of the C library that is here: what it keeps for the end is not there."""
    each = [
        Death(
            str(tmp_path / f"{size}-{page}"), writer, "fault", page, filled=START, body_bytes=size
        )
        for size, page in ((60, 1), (1000, 1), (3000, 1), (3000, 2), (3000, 3))
    ]
    found: list[int] = []
    for death, acknowledged, ended in died(each):
        assert ended == FAULT, death
        found = check(death, acknowledged)
    check_real(oracle, death, found)


@at_every(4)
def test_the_first_copy_into_a_segment(stride: int, oracle: Oracle, tmp_path: Path) -> None:
    """And that of the blank record before it."""
    filled = SEGMENT - 3 * 3200
    blanks = deaths(tmp_path, "file", (1, 4, 7), filled=filled, body_bytes=3000)
    firsts = deaths(tmp_path / "x", "file", (1, 3200), writes=1, filled=filled, body_bytes=3000)
    each, found = [*blanks, *firsts], list[int]()
    for death, acknowledged, ended in died(each[at] for at in below(len(each), stride)):
        assert ended == KILLED, death
        assert acknowledged[-1] < SEGMENT < acknowledged[-1] + 5 * 3200
        found = check(death, acknowledged)
    check_real(oracle, death, found)


@at_every(3)
def test_a_commit_that_ends_anywhere(stride: int, oracle: Oracle, tmp_path: Path) -> None:
    """The writer ``staged`` writes in order."""
    ends = borders(START)
    each = [
        Death(str(tmp_path / f"{at}"), "staged", "forward", ends[at], filled=START)
        for at in below(len(ends), stride)
    ]
    found: list[int] = []
    for death, acknowledged, ended in died(each):
        assert ended == KILLED
        found = check(death, acknowledged)
    check_real(oracle, death, found)


@pytest.mark.disk
def test_buffers_that_land_out_of_order(oracle: Oracle, tmp_path: Path) -> None:
    """The writer ``direct`` writes several at a time: one may be there, and none before it."""
    if not takes_direct(tmp_path):
        pytest.skip("the file system of the temporary folder takes no O_DIRECT")
    each = [
        Death(str(tmp_path / f"{at}"), "direct", "skipped", 0, writes=at, body_bytes=3000)
        for at in range(2)
    ]
    found: list[int] = []
    for death, acknowledged, ended in died(each):
        assert ended == KILLED
        found = check(death, acknowledged)
        assert found == [*acknowledged, *found[-MORE:]]
    check_real(oracle, death, found)


# --- the recovery ------------------------------------------------------------------------------


def test_it_says_why_the_log_ends(tmp_path: Path) -> None:
    """What stands behind the hole was never acknowledged; it is kept in the quarantine."""
    ((death, acknowledged, _),) = died([killed_late(tmp_path)])
    before = (tmp_path / "store" / "commitlog" / f"{0:020}").read_bytes()
    report = lakelog.recover(death.path, **settings("file"))
    end = acknowledged[-1] + SIZE
    assert (report.end_offset, report.damage, report.mended) == (end, (), ())
    (cut,) = report.cut
    assert "its owner was killed before all of this append was written" in cut.reason
    assert f"{LOST - 1} whole records in it are not proved" in cut.reason
    assert cut.path is not None
    assert cut.path.read_bytes() == before[end : end + LOST * SIZE]


def test_damage_before_it_is_damage(tmp_path: Path) -> None:
    """What had been acknowledged is kept, although bytes before it are bad."""
    ((death, acknowledged, _),) = died([killed_late(tmp_path)])
    _flip(death, acknowledged[1] + SIZE // 2)
    report = lakelog.recover(death.path, **settings("file"))
    assert [each.offset for each in report.damage] == [acknowledged[1]]
    assert report.end_offset == acknowledged[-1] + SIZE


@at_every(12)
def test_a_recovery_that_stops_anywhere(stride: int, tmp_path: Path) -> None:
    """The next one finds the same end: the page proves it until the tail is gone."""
    steps = [*below(48, stride)]
    each = [Death(str(tmp_path / str(at)), "file", "backward", LATE) for at in steps]
    stopped = 0
    for number, (death, acknowledged, _) in zip(steps, died(each), strict=True):
        files = StoppingFiles(number)
        with suppress(Exception):  # whatever it turns into: the machine is down
            lakelog.recover(death.path, files=files, **settings("file"))
        stopped += files.stopped
        assert check(death, acknowledged)[: len(acknowledged) + 1] == [
            *acknowledged,
            acknowledged[-1] + SIZE,
        ]
    assert 2 * stopped >= len(steps)


def _flip(death: Death, at: int) -> None:
    with (Path(death.path) / "commitlog" / f"{0:020}").open("r+b") as file:
        file.seek(at)
        (byte,) = file.read(1)
        file.seek(at)
        file.write(bytes([byte ^ 1]))


# --- when the page proves nothing --------------------------------------------------------------


def test_only_the_page_of_a_killed_owner_proves_its_log(tmp_path: Path) -> None:
    """Not one of another boot or of another opening, and no copy: it may be older than the log."""
    ((death, acknowledged, ended),) = died([killed_late(tmp_path)])
    assert (acknowledged, ended) == ([SIZE * at for at in range(MADE)], KILLED)
    path = Path(death.path)
    page = page_path(path)
    good = page.read_bytes()
    assert whole_end(FILES, path) == acknowledged[-1] + SIZE
    assert whole_end(FILES, copy_store(path, tmp_path / "copy")) is None
    for word in PROOF:
        words = array("Q", good)
        words[word] ^= 1
        page.write_bytes(words.tobytes())
        assert whole_end(FILES, path) is None
    page.write_bytes(good)
    lakelog.recover(path, **settings("file"))
    assert whole_end(FILES, path) is None


def test_a_page_from_before_the_real_store_proves_nothing(oracle: Oracle, tmp_path: Path) -> None:
    """RocketMQ wrote behind the page's end, and was killed: none of that is cut."""
    ((death, acknowledged, _),) = died([killed_late(tmp_path)])
    path = Path(death.path)
    page = page_path(path).read_bytes()
    oracle.fill(path, JAVA, halt=True, messages=20)
    rows = by_kind(oracle.dump(path, JAVA))["rec"]
    assert page_path(path).read_bytes() == page
    written = [row["physOffset"] for row in rows][len(acknowledged) :]
    assert written[0] == acknowledged[-1] + SIZE
    assert whole_end(FILES, path) is None
    _flip(death, written[5] + 60)
    with lakelog.open(path, **settings("file")) as store:
        found = [each.physical_offset for each in store.scan(on_damage=lambda _: None)]
    assert set(acknowledged + written[:5] + written[6:]) <= set(found)


@pytest.mark.parametrize("writer", ["file", "mmap"])
def test_a_hole_without_proof_is_filled(writer: str, oracle: Oracle, tmp_path: Path) -> None:
    """What stands behind it may have been acknowledged: it stays, and what comes behind it, too."""
    ((death, acknowledged, _),) = died([killed_late(tmp_path, writer)])
    copy = attrs.evolve(death, path=str(copy_store(death.path, tmp_path / "copy")))
    found = check(copy, acknowledged)
    assert len(found) == len(acknowledged) + LOST + MORE
    with lakelog.open(copy.path, mode="read", **settings(writer)) as reader:
        (filler,) = reader.get(FILLER_TOPIC, 0, 0).messages
    assert (filler.physical_offset, filler.size) == (acknowledged[-1] + SIZE, SIZE)
    check_real(oracle, copy, found)


# --- RocketMQ appends where a killed owner had begun to ----------------------------------------

COUNT: Final = 20
DEATHS: Final = {
    "nothing of it is whole": ("backward", LATE),
    "two of its records are whole": ("forward", 2 * SIZE + LATE),
}


def word(path: Path, at: int) -> int:
    """One of the shared page that the dead have left."""
    return int(struct.unpack_from("=q", page_path(path).read_bytes(), 8 * at)[0])


def log_of(path: Path, end: int) -> bytes:
    """What the log's first segment holds."""
    return (path / "commitlog" / f"{0:020}").read_bytes()[:end]


@pytest.mark.sample(2)
@pytest.mark.parametrize("halt", [True, False], ids=["killed", "closed"])
@pytest.mark.parametrize("how", DEATHS)
def test_what_rocketmq_appended_at_an_intent_stays(
    how: str, halt: bool, oracle: Oracle, tmp_path: Path
) -> None:
    """Nothing of it is ever zeroed.

    The shared page of the dead is still there, of the same boot, with an intent that covers bytes
    which hold messages of RocketMQ by now. A repair zeroes what an intent covers, but for the same
    run alone.
    """
    path = tmp_path / "store"
    order, at = DEATHS[how]
    ((death, acknowledged, _),) = died([Death(str(path), "file", order, at, filled=START)])
    assert (word(path, INTENT_START), word(path, APPENDED)) == (START, START)
    assert word(path, INTENT_END) == START + LOST * SIZE
    oracle.fill(path, JAVA, count=COUNT, halt=halt)
    before = by_kind(oracle.dump(path, JAVA))
    theirs = [row["physOffset"] for row in before["rec"]]
    assert len(theirs) >= len(acknowledged) + COUNT
    assert [each for each in theirs if START <= each < START + LOST * SIZE], "none is in the intent"
    end = theirs[-1] + before["rec"][-1]["storeSize"]
    bytes_before = log_of(path, end)

    with lakelog.open(death.path, **settings("file")) as store:
        assert log_of(path, end) == bytes_before
        more = [store.put(message(1000 + each, 60)).physical_offset for each in range(MORE)]
        with lakelog.open(death.path, **settings("file")) as beside:
            more.append(beside.put(message(2000, 60)).physical_offset)
    assert log_of(path, end) == bytes_before
    rows = by_kind(oracle.dump(path, JAVA))
    assert [row["physOffset"] for row in rows["rec"]] == theirs + more
    assert rows.keys().isdisjoint({"badrec", "undecodable", "msgerr"})
