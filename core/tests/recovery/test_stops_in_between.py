"""A machine that stops at any change of a recovery: the next one comes to the same log."""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path

import pytest

from core.tests.recovery.support import (
    StoppingFiles,
    a_crashed_store,
    flip,
    log_bytes,
    offsets,
    quarantine,
    recover_small,
    starts,
    tear,
)
from core.tests.store.support import SEGMENT, open_small, segments
from lakelog_testing.copies import copy_store


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


@pytest.mark.parametrize("way", ["open", "recover"])
def test_a_stop_at_some_changes(way: str, tmp_path: Path) -> None:
    _stop_at(range(3, 1000, 19), way, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("way", ["open", "recover"])
def test_a_stop_at_any_change(way: str, tmp_path: Path) -> None:
    assert _stop_at(range(1000), way, tmp_path) > 20


def _stop_at(numbers: range, way: str, path: Path) -> int:
    """Let the machine stop after so many changes each time, until it does not come to that."""
    model, right = path / "model", path / "right"
    whole = _in_disorder(model)
    copy_store(model, right)
    report = recover_small(right)
    assert len(quarantine(right)) == 3
    for number in numbers:
        store = path / "store"
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
            return number
        shutil.rmtree(store)
    raise AssertionError("it never came to its end")
