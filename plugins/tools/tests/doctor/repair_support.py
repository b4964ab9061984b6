"""Whether a store is as a repair should leave it."""

from __future__ import annotations

from pathlib import Path

from core.tests.store.support import SEGMENT, segments
from lakelog.format.record_batch import Damage
from lakelog.store.open import open_store
from lakelog_doctor.check import check


def sound(path: Path) -> bool:
    """Whether log, files and queues have no fault, and the store was closed cleanly."""
    wrong = list(check(path, index=False, plugins=[], segment_size_bytes=SEGMENT))
    with open_store(path, mode="read", plugins=[], segment_size_bytes=SEGMENT) as store:
        damaged = any(isinstance(each, Damage) for each in store.scan_pieces())
    whole = all(each.stat().st_size == SEGMENT for each in segments(path))
    return whole and not (wrong or damaged or (path / "abort").exists())
