"""Stores to damage and to repair, and their contents afterwards."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

import lakelog
from core.tests.store.support import SEGMENT, segments
from lakelog import PutResult
from lakelog.files.filesystem import RealFileSystem
from lakelog.log.reading.pieces import Damage
from lakelog_doctor.check import check
from lakelog_doctor.repair import RepairReport, repair

FILES = RealFileSystem()


def repair_small(path: Path, **more: Any) -> RepairReport:
    return repair(path, **{"plugins": [], "segment_size_bytes": SEGMENT, **more})


def read(path: Path) -> tuple[list[tuple[int, bytes]], list[Damage]]:
    """Offset and body of every message except fillers, and the damage."""
    with lakelog.open(path, mode="read", plugins=[], segment_size_bytes=SEGMENT) as store:
        found = [
            (each.physical_offset, bytes(each.body))
            for each in store.scan(on_damage=lambda _: None)
            if each.topic == "t"
        ]
        return found, [each for each in store.scan_pieces() if isinstance(each, Damage)]


def bodies(puts: list[PutResult], *, without: Collection[int] = ()) -> list[tuple[int, bytes]]:
    return [
        (each.physical_offset, b"%06d" % number + b"." * 394)
        for number, each in enumerate(puts)
        if number not in without
    ]


def write(path: Path, offset: int, data: bytes) -> None:
    with (path / "commitlog" / f"{offset - offset % SEGMENT:020}").open("r+b") as file:
        file.seek(offset % SEGMENT)
        file.write(data)


def sound(path: Path) -> bool:
    """Whether log, files and queues have no fault, and the store was closed cleanly."""
    wrong = list(check(path, index=False, plugins=[], segment_size_bytes=SEGMENT))
    whole = all(each.stat().st_size == SEGMENT for each in segments(path))
    return not wrong and not read(path)[1] and whole and not (path / "abort").exists()
