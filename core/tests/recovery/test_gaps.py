"""A hole that a crash may have made is filled with records: nothing is built upon it.

The last sync came behind the fifth record: the checkpoint vouches for these. The machine stopped
when eleven were in the log, and lost the seventh and the eighth.
"""

from __future__ import annotations

import json
import shutil
import time
from contextlib import suppress
from pathlib import Path

import pytest

from core.tests.recovery.support import (
    StoppingFiles,
    a_crashed_store,
    crash,
    flip,
    kept_lines,
    log_bytes,
    offsets,
    quarantine,
    recover_small,
    starts,
    tear,
    zero,
)
from core.tests.store.support import SEGMENT, fill, open_small, refused, segments
from lakelog import Message, PutResult
from lakelog.errors import BadSegment
from lakelog.files.checkpoint import read_checkpoint, write_checkpoint
from lakelog.files.filesystem import RealFileSystem
from lakelog.format.checksum import is_sealed
from lakelog.format.layout import ROLLBACK
from lakelog.format.record import decode
from lakelog.format.record_batch import decode_run
from lakelog.recovery.filler import (
    FILLER_TOPIC,
    MOST_FILLER_BYTES,
    FillerMaker,
    LogGap,
    least_filler_bytes,
)
from lakelog_testing.samples import copy_store
from plugins.tools.tests.doctor.repair_support import sound
from tests.support.sampling import at_every, every

FILES = RealFileSystem()


@pytest.fixture
def puts(tmp_path: Path) -> list[PutResult]:
    path = tmp_path / "store"
    with open_small(path) as store:
        before = fill(store, 5)
    checkpoint = read_checkpoint(FILES, path)
    time.sleep(0.002)  # no store time of the one is one of the others
    with open_small(path) as store:
        behind = fill(store, 6)
    write_checkpoint(FILES, path, checkpoint)
    crash(path)
    zero(path, behind[1].physical_offset, behind[1].end_offset)
    flip(path, behind[2])
    return before + behind


def whole(puts: list[PutResult]) -> list[int]:
    return starts([*puts[:6], *puts[8:]])


@pytest.mark.both_ways
def test_it_is_filled(tmp_path: Path, puts: list[PutResult]) -> None:
    path, gap = tmp_path / "store", (puts[6].physical_offset, puts[7].end_offset)
    before = log_bytes(path)[slice(*gap)]
    dry = recover_small(path, dry_run=True)
    assert log_bytes(path)[slice(*gap)] == before
    report = recover_small(path)
    assert (report.damage, report.end_offset) == ((), puts[-1].end_offset)
    assert [(each.offset, each.end_offset) for each in report.cut] == [gap]
    assert list(quarantine(path).values()) == [before]
    assert kept_lines(path)[0]["offset"] == gap[0]
    (mended,) = report.mended
    assert "put filler records in their place" in mended
    assert (dry.damage, dry.mended) == (report.damage, report.mended)
    assert [each._replace(path=None) for each in report.cut] == list(dry.cut)
    assert json.loads((path / "lakelog" / "damage.json").read_text()) == {"damage": []}
    assert sound(path)
    assert recover_small(path).changed is False


@pytest.mark.both_ways
def test_what_is_left_keeps_its_place_in_the_queue(tmp_path: Path, puts: list[PutResult]) -> None:
    path = tmp_path / "store"
    with open_small(path) as store:
        assert [each for each in offsets(store) if each != puts[6].physical_offset] == whole(puts)
        found = store.get("t", 0, 0, 100).messages
        assert [each.physical_offset for each in found] == whole(puts)
        assert [each.queue_offset for each in found] == [0, 1, 2, 3, 4, 5, 8, 9, 10]
        (filler,) = store.get(FILLER_TOPIC, 0, 0).messages
        assert filler.size == puts[7].end_offset - puts[6].physical_offset
        assert json.loads(filler.body)["lakelog"] == "repaired"
        assert store.put(Message("t", b"next", queue_id=0)).queue_offset == len(puts)
    assert sound(path)


def test_a_hole_before_an_earlier_filler_gets_one_of_another_queue(
    tmp_path: Path, puts: list[PutResult]
) -> None:
    """Queue offsets must not decrease in the order of the log."""
    path = tmp_path / "store"
    checkpoint = read_checkpoint(FILES, path)
    recover_small(path)
    write_checkpoint(FILES, path, checkpoint)
    crash(path)
    zero(path, puts[5].physical_offset, puts[5].end_offset)
    assert recover_small(path).damage == ()
    with open_small(path) as store:
        fillers = [store.get(FILLER_TOPIC, queue_id, 0).messages for queue_id in (0, 1)]
        places = [[each.physical_offset for each in found] for found in fillers]
    assert places == [[puts[6].physical_offset], [puts[5].physical_offset]]
    assert sound(path)


@pytest.mark.both_ways
def test_it_has_a_record_checksum_where_its_neighbours_have_one(tmp_path: Path) -> None:
    """Whatever the settings of the recovery say."""
    with open_small(tmp_path, record_crc=True) as store:
        results = fill(store, 20)
    (tmp_path / "checkpoint").unlink()
    crash(tmp_path)
    zero(tmp_path, results[10].physical_offset, results[10].end_offset)
    recover_small(tmp_path, record_crc=False)
    with open_small(tmp_path, require_record_crc=True) as store:
        assert len(list(store.scan())) == 20
        (filler,) = store.get(FILLER_TOPIC, 0, 0).messages
        assert is_sealed(filler.properties_bytes)


@pytest.mark.parametrize("vouched", ["confirm_offset", "physic_timestamp_ms"])
def test_what_was_durable_is_not_touched(
    vouched: str, tmp_path: Path, puts: list[PutResult]
) -> None:
    """Whoever repairs it may want those bytes, or read them once more."""
    path = tmp_path / "store"
    last = {
        "confirm_offset": puts[-1].end_offset,
        "physic_timestamp_ms": puts[-1].store_timestamp_ms + 1,
    }
    checkpoint = read_checkpoint(FILES, path)._replace(**{vouched: last[vouched]})
    write_checkpoint(FILES, path, checkpoint)
    before = log_bytes(path)
    report = recover_small(path)
    assert [each.offset for each in report.damage] == [puts[6].physical_offset]
    assert (report.cut, report.mended, log_bytes(path)) == ((), (), before)


def test_refuse_refuses_and_changes_nothing(tmp_path: Path, puts: list[PutResult]) -> None:
    path = tmp_path / "store"
    before = log_bytes(path)
    with refused(path, BadSegment, "on_damage"):
        open_small(path, on_damage="refuse")
    assert log_bytes(path) == before
    assert recover_small(path, on_damage="truncate").end_offset == puts[5].end_offset


@pytest.fixture
def wide(tmp_path: Path) -> list[PutResult]:
    """A store in ``wide`` that lost the end of a segment, and the start of the next one."""
    path = tmp_path / "wide"
    with open_small(path) as store:
        puts = fill(store, 110)
    (path / "checkpoint").unlink()
    crash(path)
    second = next(at for at, each in enumerate(puts) if each.physical_offset == SEGMENT)
    zero(path, puts[second - 2].physical_offset, puts[second + 1].end_offset)
    return [each for each in puts if each not in puts[second - 2 : second + 2]]


STOPS = pytest.mark.parametrize(
    "numbers",
    [
        range(2, 200, 23),
        pytest.param(range(200), marks=[pytest.mark.soak, pytest.mark.timeout(1800)]),
    ],
    ids=["some", "all"],
)


@STOPS
def test_a_recovery_that_stops_anywhere(
    numbers: range, tmp_path: Path, puts: list[PutResult]
) -> None:
    """The next one fills what is left, and cuts nothing that was proved before."""
    _stop_at(numbers, tmp_path / "store", whole(puts))


@STOPS
def test_one_that_stops_between_two_segments(
    numbers: range, tmp_path: Path, wide: list[PutResult]
) -> None:
    """What is left of the hole is shorter then, and would prove less of what is behind it."""
    _stop_at(numbers, tmp_path / "wide", starts(wide))


def _stop_at(numbers: range, model: Path, due: list[int]) -> None:
    stopped = 0
    for number in numbers:
        path = copy_store(model, model.with_name(str(number)))
        files = StoppingFiles(number)
        with suppress(Exception):  # whatever it turns into: the machine is down
            recover_small(path, files=files)
        stopped += files.stopped
        assert recover_small(path).damage == (), files.seen[-1:]
        assert sound(path), files.seen[-1:]
        with open_small(path) as store:
            found = store.get("t", 0, 0, 999).messages
            assert [each.physical_offset for each in found] == due, files.seen[-1:]
    assert stopped > len(numbers) // 4


def _in_disorder(path: Path) -> list[int]:
    """Damage in the middle, a torn tail, a file cut short, and files behind the end."""
    results = a_crashed_store(path)
    flip(path, results[20])
    tear(path, results[-1])
    last = segments(path)[-1]
    behind = [last.with_name(f"{int(last.name) + SEGMENT * n:020d}") for n in (1, 2)]
    behind[0].write_bytes(b"old" + bytes(SEGMENT - 3))
    behind[1].write_bytes(bytes(100))
    segments(path)[0].write_bytes(segments(path)[0].read_bytes() + b"surplus")
    return [at for at in starts(results[:-1]) if at != results[20].physical_offset]


@at_every(23)
@pytest.mark.parametrize("way", ["open", "recover"])
def test_a_stop_at_any_change(stride: int, way: str, tmp_path: Path) -> None:
    """The machine stops after so many changes each time, until it does not come to that."""
    model, right, store = tmp_path / "model", tmp_path / "right", tmp_path / "store"
    whole = _in_disorder(model)
    copy_store(model, right)
    report = recover_small(right)
    assert len(quarantine(right)) == 3
    for number in every(stride):
        copy_store(model, store)
        files = StoppingFiles(number)
        with suppress(Exception):  # whatever it turns into: the machine is down
            if way == "open":
                open_small(store, files=files).close()
            else:
                recover_small(store, files=files)
        assert recover_small(store).end_offset == report.end_offset, files.seen[-1:]
        assert log_bytes(store) == log_bytes(right), files.seen[-1:]
        assert quarantine(store) == quarantine(right), files.seen[-1:]
        with open_small(store) as opened:
            assert offsets(opened) == whole
        if not files.stopped:
            break
        shutil.rmtree(store)
    assert number > 20


NOW_MS = 1_700_000_009_000
OFFSET = 70_000


def gap(size: int, *, sealed: bool = False) -> LogGap:
    return LogGap(OFFSET, OFFSET + size, "its body is damaged", 1_700_000_000_123, sealed)


def made(given: LogGap, next_offset: int = 0) -> list[tuple[int, bytes]]:
    return list(FillerMaker((FILLER_TOPIC, 0), next_offset, NOW_MS).make(given))


@pytest.mark.parametrize("sealed", [False, True])
def test_a_filler_of_every_size_is_whole_and_exactly_as_long(sealed: bool) -> None:
    """Where there is no room for the whole topic, it is in no queue."""
    least = least_filler_bytes(sealed=sealed)
    assert least == (112 if sealed else 92)
    for size in range(least, least + 400):
        ((offset, record),) = made(gap(size, sealed=sealed), next_offset=7)
        assert (offset, len(record)) == (OFFSET, size)
        message = decode(record, offset=OFFSET)
        assert (message.size, message.store_timestamp_ms) == (size, 1_700_000_000_123)
        assert is_sealed(message.properties_bytes) is sealed
        is_whole = size + 1 >= least + len(FILLER_TOPIC)
        assert message.topic == (FILLER_TOPIC if is_whole else FILLER_TOPIC[: size + 1 - least])
        assert message.queue_offset == (7 if is_whole else 0)
        assert message.sys_flag == (0 if is_whole else ROLLBACK)
        batch = decode_run(record, OFFSET)
        assert (len(batch), batch.end_offset) == (1, OFFSET + size)


def test_its_body_says_what_was_there_as_far_as_there_is_room() -> None:
    said = {"lakelog": "repaired", "time_ms": NOW_MS, "reason": "its body is damaged"}
    for size, expected in (
        (400, {**said, "offset": OFFSET, "size_bytes": 400}),
        (160, {"offset": OFFSET, "size_bytes": 160}),
        (120, {}),
    ):
        ((_, record),) = made(gap(size))
        assert json.loads(decode(record, offset=OFFSET).body) == expected


@pytest.mark.parametrize("sealed", [False, True])
def test_a_gap_longer_than_a_record_can_be_gets_several(sealed: bool) -> None:
    """The first is short where it is long: each message that was lost there may lead to it."""
    size = 3 * MOST_FILLER_BYTES + 1
    records = [record for _, record in made(gap(size, sealed=sealed), next_offset=3)]
    assert [decode(each).queue_offset for each in records] == [3, 4, 5, 6]
    batch = decode_run(b"".join(records), OFFSET)
    assert (len(batch), batch.end_offset) == (4, OFFSET + size)
    assert max(map(len, records)) <= MOST_FILLER_BYTES
    for size, lengths in ((70_000, [1024, 70_000 - 1024]), (60_000, [60_000])):
        assert [len(record) for _, record in made(gap(size))] == lengths
