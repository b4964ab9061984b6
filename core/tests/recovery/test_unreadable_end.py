"""A durable end of the log that is no whole records: a plugin is missing, or a disk bad."""

from __future__ import annotations

import signal
import subprocess
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from core.tests.recovery.support import (
    StoppingFiles,
    crash,
    log_bytes,
    offsets,
    open_and_close,
    quarantine,
    recover_small,
    starts,
)
from core.tests.store.support import (
    SEGMENT,
    a_store,
    fill,
    open_small,
    overwrite,
    read_small,
    refused,
    segments,
    tree,
)
from lakelog import PutResult
from lakelog.errors import LakelogError, UnreadableEnd
from lakelog_testing.samples import copy_store


def change_bytes(path: Path, results: list[PutResult]) -> None:
    """Store these records as a plugin would that encrypts them."""
    for each in results:
        begin, end = each.physical_offset, each.end_offset
        overwrite(path, begin, bytes(byte ^ 0x5A for byte in log_bytes(path)[begin:end]))


@pytest.mark.both_ways
@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("first", [0, 7])
def test_bytes_that_were_durable_are_not_set_aside(tmp_path: Path, first: int, clean: bool) -> None:
    results = a_store(tmp_path, 10)
    change_bytes(tmp_path, results[first:])
    if not clean:
        crash(tmp_path)
    words = "install and choose the plugin", "on_damage='cut-end'", "checkpoint confirms it"
    for way in (partial(recover_small, dry_run=True), recover_small, open_small):
        with refused(tmp_path, UnreadableEnd, *words):
            way(tmp_path)
    report = open_and_close(tmp_path, on_damage="cut-end").recovery
    assert report is not None
    assert report.end_offset == results[first].physical_offset
    assert {each.end_offset for each in report.missing} == {results[-1].end_offset}
    assert sum(map(len, quarantine(tmp_path).values())) > 100
    with open_small(tmp_path) as store:  # the request is needed once
        assert offsets(store) == starts(results[:first])
        assert fill(store, 1)[0].queue_offset == first


def test_a_store_of_which_only_the_end_is_unreadable_is_read(tmp_path: Path) -> None:
    results = a_store(tmp_path, 10)
    change_bytes(tmp_path, results[7:])
    before = tree(tmp_path)
    with read_small(tmp_path) as store:
        assert offsets(store) == starts(results[:7])
    assert tree(tmp_path) == before


def test_what_a_killed_process_had_synced_is_not_set_aside(tmp_path: Path) -> None:
    """Its last checkpoint is older than its last sync."""
    code = (
        "import os, signal, sys, lakelog\n"
        f"store = lakelog.open(sys.argv[1], plugins=[], segment_size_bytes={SEGMENT},"
        " flush='inline')\n"
        "for _ in range(10): last = store.put(lakelog.Message('t', bytes(300), queue_id=0))\n"
        "print(last.physical_offset, last.end_offset, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    begin, end = map(int, done.stdout.split())
    assert recover_small(copy_store(tmp_path, tmp_path.parent / "whole")).end_offset == end
    overwrite(tmp_path, begin + 100, b"\xff")
    with refused(tmp_path, UnreadableEnd, "the shared page of the killed owner", str(end)):
        open_small(tmp_path)
    assert recover_small(tmp_path, on_damage="cut-end").end_offset == begin


def test_a_cut_that_was_asked_for_is_continued_after_a_stop(tmp_path: Path) -> None:
    path = tmp_path / "store"
    results = a_store(path, 10)
    change_bytes(path, results[5:])
    for number in range(100):
        copy = copy_store(path, tmp_path / str(number))
        files = StoppingFiles(number)
        with suppress(LakelogError, OSError):
            recover_small(copy, on_damage="cut-end", files=files)
        report = recover_small(copy, on_damage="cut-end")
        assert report.end_offset == results[5].physical_offset
        if not files.stopped:
            break
    assert 5 < number < 99


def test_the_surplus_of_a_segment_that_is_too_long_was_never_durable(tmp_path: Path) -> None:
    a_store(tmp_path, 110)
    with segments(tmp_path)[0].open("ab") as file:
        file.write(b"surplus")
    assert [each.end_offset - each.offset for each in recover_small(tmp_path).cut] == [7]
