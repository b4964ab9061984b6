"""Units, keys and offsets that lead to old records which nothing proves: no read serves them.

After a gap there are two old, whole records, whose units still exist, and after these one that the
checkpoint or its age proves. Reads are made by the owner first, then by another process.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest

from core.tests.recovery.support import crash, log_bytes, recover_small, store_at, tear
from core.tests.store.support import open_small, overwrite, read_small
from lakelog import GetStatus, Message, PutResult, Store
from lakelog.errors import CorruptRecord
from lakelog.files.checkpoint import read_checkpoint, write_checkpoint
from lakelog.files.filesystem import RealFileSystem
from lakelog.format.record_batch import Blank, Damage
from lakelog_queues.finding.search import KeyQuery
from lakelog_testing.samples import copy_store

PROVED_MS = 9_000_000_000_000


@attrs.frozen
class Stale:
    """Reads must return ``found``; records of ``hidden`` are whole, old, and have units."""

    path: Path
    found: list[PutResult]
    hidden: list[PutResult]
    damage: tuple[int, int]


@pytest.fixture
def stale(tmp_path: Path) -> Stale:
    """Ten records, cut after the fifth; two new ones, the second torn; the last one is proved."""
    path, short = tmp_path / "store", tmp_path / "short"
    with open_small(path) as store:
        kept = put(store, b"k", 5)
    copy_store(path, short)
    with open_small(path) as store:
        old = put(store, b"o", 5)
    with open_small(short) as store:
        new = put(store, b"n", 2)
    for each in new:
        here = log_bytes(short)[each.physical_offset : each.end_offset]
        overwrite(path, each.physical_offset, here)
    for each in old[2:4]:
        store_at(path, each, 1_000)
    store_at(path, old[4], PROVED_MS)
    tear(path, new[1])
    checkpoint = read_checkpoint(RealFileSystem(), path)._replace(
        confirm_offset=0,
        physic_timestamp_ms=PROVED_MS + 1,  # no crash made that damage: it stays
    )
    write_checkpoint(RealFileSystem(), path, checkpoint)
    crash(path)
    assert recover_small(path).end_offset == old[4].end_offset
    damage = (new[1].physical_offset, old[4].physical_offset)
    return Stale(path, [*kept, new[0], old[4]], old[2:4], damage)


@pytest.fixture(params=[open_small, read_small])
def store(stale: Stale, request: pytest.FixtureRequest) -> Iterator[Store]:
    with request.param(stale.path) as opened:
        yield opened


def test_get_passes_over_them_though_their_units_are_there(store: Store, stale: Stale) -> None:
    units = store.queue_units("t", 0, 0, 100)
    assert {each.physical_offset for each in stale.hidden} <= set(units.offsets.tolist())
    for count in (1, 2, 32, 1000):
        found, at = [], 0
        for _ in range(20):
            result = store.get("t", 0, at, count)
            found += [each.physical_offset for each in result.messages]
            at = result.next_offset
        assert found == offsets_of(stale.found)


def test_get_says_where_they_are(
    store: Store, stale: Stale, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "lakelog"):
        result = store.get("t", 0, stale.hidden[0].queue_offset, 2)
    assert f"offset {stale.hidden[0].physical_offset}," in caplog.text
    assert [each.physical_offset for each in result.messages] == offsets_of(stale.found[-1:])
    only = store.get("t", 0, stale.hidden[0].queue_offset, 1, tags="none")
    assert only.status is GetStatus.NO_MATCHED_MESSAGE


def test_columns_and_consumers_leave_them_out(store: Store, stale: Stale) -> None:
    for verify in (True, False):
        batch = store.get_columns("t", 0, 0, 100, columns=["physical_offset"], verify=verify).batch
        assert batch["physical_offset"].to_pylist() == offsets_of(stale.found)
    polled = store.consumer("g", "t", start="earliest").poll(100)
    assert [each.physical_offset for each in polled] == offsets_of(stale.found)


def test_no_offset_and_no_message_id_leads_to_them(store: Store, stale: Stale) -> None:
    begin, end = stale.damage
    for each in stale.hidden:
        for where in (each.physical_offset, each.message_id):
            with pytest.raises(CorruptRecord, match=rf"damaged range \({begin} to {end}\)"):
                store.look_up(where)
    for each in stale.found:
        assert store.look_up(each.physical_offset).queue_offset == each.queue_offset


def test_no_key_leads_to_them(store: Store, stale: Stale) -> None:
    every = offsets_of(sorted((*stale.found, *stale.hidden), key=lambda each: each.queue_offset))
    found = KeyQuery(_Index(every), store._reader, lambda _: 0).query("t", "k")
    assert [each.physical_offset for each in found] == offsets_of(stale.found)


def test_no_time_leads_to_them(store: Store, stale: Stale) -> None:
    """A search that used one would take all earlier messages for older: they are from 1970."""
    before, behind = stale.found[-2:]
    assert store.offset_by_time("t", 0, PROVED_MS - 1, "upper") == before.queue_offset
    assert store.offset_by_time("t", 0, PROVED_MS) == behind.queue_offset


@pytest.mark.parametrize("verify", [True, False])
def test_a_scan_from_one_of_them_begins_with_damage(
    store: Store, stale: Stale, verify: bool
) -> None:
    at = stale.hidden[1].physical_offset
    damage, batch = store.scan_pieces(at, verify=verify)
    assert isinstance(damage, Damage)
    assert (damage.offset, damage.end_offset) == (at, stale.damage[1])
    assert not isinstance(batch, Blank | Damage)
    assert batch.physical_offsets.tolist() == offsets_of(stale.found[-1:])
    (short,) = store.scan_pieces(at, at + 10, verify=verify)
    assert isinstance(short, Damage)
    assert (short.offset, short.end_offset) == (at, at + 10)


def test_what_was_written_there_since_is_read(stale: Stale) -> None:
    """Another program cut the log at the damage, and continued: the list does not cover that."""
    torn, end = stale.damage
    other = stale.path.parent / "other"
    with open_small(other) as store:
        put(store, b"k", 6)
        again = put(store, b"a", 3)
    assert again[0].physical_offset == torn
    overwrite(stale.path, torn, log_bytes(other)[torn:end])
    with read_small(stale.path) as store:
        assert [each.physical_offset for each in store.get("t", 0, 6).messages][:3] == offsets_of(
            again
        )
        assert store.look_up(again[1].physical_offset).body == b"a" * 400


@attrs.frozen
class _Index:
    """A key index that returns the offsets of all records."""

    every: list[int]

    def offsets(self, *_: object) -> Iterator[int]:
        return iter(self.every)


def put(store: Store, fill: bytes, count: int) -> list[PutResult]:
    """Put messages of one length and one key."""
    message = Message("t", fill * 400, queue_id=0, keys="k")
    return [store.put(message) for _ in range(count)]


def offsets_of(results: list[PutResult]) -> list[int]:
    return [each.physical_offset for each in results]
