"""What a recovery did not read: noted damage stays known, and nothing is vouched for."""

from __future__ import annotations

from pathlib import Path

import attrs
import pytest

from core.tests.recovery.support import a_crashed_store, flip, offsets, recover_small, starts
from core.tests.store.support import SEGMENT, a_store, open_small, refused, segments
from lakelog import PutResult
from lakelog.errors import BadSegment, StoreError
from lakelog.files.filesystem import RealFileSystem
from lakelog.files.state.checkpoint import read_checkpoint, write_checkpoint

FILES = RealFileSystem()


def noted(path: Path) -> list[PutResult]:
    """A store whose recovery noted damage, and was followed by a clean stop."""
    results = a_crashed_store(path)
    flip(path, results[10])
    read_from_the_start = attrs.evolve(read_checkpoint(FILES, path), logics_timestamp_ms=0)
    write_checkpoint(FILES, path, read_from_the_start)
    assert recover_small(path).damage
    return results


def test_noted_damage_is_told_again(tmp_path: Path) -> None:
    results = noted(tmp_path)
    report = recover_small(tmp_path)
    assert report.read_from > results[10].end_offset
    assert not report.read_all
    (damage,) = report.damage
    assert (damage.offset, damage.path) == (results[10].physical_offset, segments(tmp_path)[0])
    assert "noted earlier" in str(damage)
    (damage,) = recover_small(tmp_path, full=True).damage
    assert "noted earlier" not in str(damage)
    (damage,) = recover_small(tmp_path).damage
    assert str(damage).count("noted earlier") == 1


def test_refuse_heeds_it(tmp_path: Path) -> None:
    results = noted(tmp_path)
    with refused(tmp_path, BadSegment, str(results[10].physical_offset), "noted earlier"):
        open_small(tmp_path, on_damage="refuse")


def test_truncate_cuts_there(tmp_path: Path) -> None:
    results = noted(tmp_path)
    assert recover_small(tmp_path, on_damage="truncate").end_offset == results[9].end_offset
    report = recover_small(tmp_path)
    assert (report.damage, report.missing) == ((), ())
    with open_small(tmp_path) as store:
        assert offsets(store) == starts(results[:10])


def test_full_reads_all_and_finds_what_else_nobody_would(tmp_path: Path) -> None:
    results = a_store(tmp_path)
    flip(tmp_path, results[10])
    report = recover_small(tmp_path)
    assert (report.damage, report.read_all, report.read_from > SEGMENT) == ((), False, True)
    for dry_run in (True, False):
        report = recover_small(tmp_path, full=True, dry_run=dry_run)
        assert (len(report.damage), report.read_all) == (1, True)


def test_a_dry_run_states_no_place_that_it_did_not_look_for(tmp_path: Path) -> None:
    a_crashed_store(tmp_path)
    assert recover_small(tmp_path, dry_run=True).dispatched_from is None
    assert recover_small(tmp_path).dispatched_from is not None


@pytest.mark.parametrize("name", ["abort", "abort.bak"])
def test_a_dry_run_says_what_is_in_the_way(tmp_path: Path, name: str) -> None:
    a_store(tmp_path)
    (tmp_path / name).unlink(missing_ok=True)
    (tmp_path / name).mkdir()
    with refused(tmp_path, StoreError, name, "a file belongs there"):
        recover_small(tmp_path, dry_run=True)
