"""Copies of a running store."""

from __future__ import annotations

from pathlib import Path
from threading import Thread

from lakelog_testing import copy_store

ROUNDS = 10
SEGMENTS = 200


def test_segments_that_are_renamed_meanwhile_are_left_out(tmp_path: Path) -> None:
    folder, log = tmp_path / "store" / "lakelog" / "tmp", tmp_path / "log"
    folder.mkdir(parents=True)
    log.mkdir()
    (tmp_path / "store" / "checkpoint").write_bytes(b"c")

    def rename() -> None:
        for path in reversed(made):
            path.replace(log / path.name)

    for number in range(ROUNDS):
        made = [folder / f"{each:020d}" for each in range(SEGMENTS)]
        for path in made:
            path.write_bytes(b"s")
        thread = Thread(target=rename)
        thread.start()
        try:
            copy = copy_store(tmp_path / "store", tmp_path / str(number))
        finally:
            thread.join()
        assert (copy / "checkpoint").read_bytes() == b"c"
