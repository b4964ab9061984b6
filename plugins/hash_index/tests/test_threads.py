"""Looks from other threads, and through other opens, while the index grows."""

from __future__ import annotations

from pathlib import Path
from threading import Event, Thread
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
    done, looks, failures = Event(), [0, 0], list[BaseException]()

    def look(at: int, seen: Any) -> None:
        try:
            while not done.is_set() or looks[at] < 2:
                found = list(seen.offsets("t", "all", *FOREVER))
                assert found == offsets[: len(found)][::-1]
                looks[at] += 1
        except BaseException as error:  # noqa: BLE001  # told by the test's own thread
            failures.append(error)

    index.dispatch(batch[:STEP])
    stranger.resume(0, batch.end_offset)
    threads = [Thread(target=look, args=pair) for pair in enumerate((index, stranger))]
    for thread in threads:
        thread.start()
    for at in range(STEP, len(offsets), STEP):
        index.dispatch(batch[at : at + STEP])
    done.set()
    for thread in threads:
        thread.join()
    index.close()
    assert failures == []
    assert min(looks) >= 2
    assert list(index.offsets("t", "all", *FOREVER)) == offsets[::-1]
