"""Looks from other threads, and through other opens, while the index grows."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

from lakelog_hash_index.settings import HashIndexSettings
from plugins.hash_index.tests.support import FOREVER, Rec, batch_of, owner, reader, write_log

SIZES = HashIndexSettings(slots=7, entries=300)
STEP = 10


def test_looks_while_it_grows_find_whole_runs_and_no_damage(tmp_path: Path) -> None:
    batch = batch_of([Rec.keyed("all other") for _ in range(600)])
    offsets = batch.physical_offsets.tolist()
    write_log(tmp_path, batch[:0])
    (tmp_path / "abort").touch()
    index = owner(tmp_path, SIZES)
    index.resume(0, batch.end_offset)
    stranger = reader(tmp_path, SIZES)
    done = Event()

    def look(seen: Any) -> None:
        looks = 0
        while not done.is_set() or looks < 2:
            found = list(seen.offsets("t", "all", *FOREVER))
            assert found == offsets[: len(found)][::-1]
            looks += 1

    index.dispatch(batch[:STEP])
    stranger.resume(0, batch.end_offset)
    with ThreadPoolExecutor(2) as pool:
        looking = [pool.submit(look, each) for each in (index, stranger)]
        for at in range(STEP, len(offsets), STEP):
            index.dispatch(batch[at : at + STEP])
        done.set()
        for each in looking:
            each.result()
    index.close()
    assert list(index.offsets("t", "all", *FOREVER)) == offsets[::-1]
