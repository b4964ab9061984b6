"""Errors of files leave nothing behind."""

from __future__ import annotations

import gc
import weakref
from contextlib import suppress
from pathlib import Path

from lakelog.files.filesystem import RealFileSystem


class Held:
    """An object of a frame, as a view of a map would be."""


def failed_open(path: Path) -> weakref.ref[Held]:
    held = Held()
    reference = weakref.ref(held)
    with suppress(FileNotFoundError):
        RealFileSystem().open(path)
    return reference


def test_a_failed_open_keeps_no_frame(tmp_path: Path) -> None:
    """Python 3.12 and later keep the frames of an error that leaves a generator, in a cycle."""
    gc.collect()
    gc.disable()
    try:
        assert failed_open(tmp_path / "missing")() is None
    finally:
        gc.enable()
