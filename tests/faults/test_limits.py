"""A limit on the length of files, and files that somebody cuts short under a reader."""

from __future__ import annotations

import os
from pathlib import Path

import lakelog
from tests.faults.checking import check_recovered
from tests.faults.conftest import Workers
from tests.faults.workload import SEGMENT_BYTES, message_of

SETTINGS = {"writer": "file", "flush": "none"}


def test_a_limit_on_the_length_of_files(workers: Workers, tmp_path: Path) -> None:
    path = tmp_path / "store"
    outcome = workers.run(path, SETTINGS, file_limit_bytes=SEGMENT_BYTES - 1)
    assert outcome.exit == 0
    assert not outcome.acks
    assert outcome.failures
    check_recovered(path, SETTINGS, [])


def test_a_segment_cut_short_under_a_reader(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with lakelog.open(path, segment_size_bytes=SEGMENT_BYTES, flush="none") as store:
        for at in range(40):
            store.put(message_of(f"k{at}"))
    damage = list[object]()
    with lakelog.open(path, mode="read", segment_size_bytes=SEGMENT_BYTES) as reader:
        messages = reader.scan(on_damage=damage.append)
        first = next(messages)
        segments = sorted((path / "commitlog").iterdir())
        os.truncate(segments[1], 100)
        rest = list(messages)
    assert damage
    found = {message.properties["KEYS"] for message in (first, *rest)}
    assert found < {f"k{at}" for at in range(40)}
    assert "k39" in found
