"""Counts the bytes that are read through the seam to the files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from lakelog.files.filesystem import RealFile


@contextmanager
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, int]]:
    """Bytes read so far, by the folder of the store directory they stand in."""
    read: dict[str, int] = {}
    whole = RealFile.read_at

    def read_at(self: RealFile, position: int, length: int) -> bytes:
        data = whole(self, position, length)
        folder = _folder(self.path)
        read[folder] = read.get(folder, 0) + len(data)
        return data

    with monkeypatch.context() as patched:
        patched.setattr(RealFile, "read_at", read_at)
        yield read


def _folder(path: Path) -> str:
    known = ("commitlog", "consumequeue", "index")
    return next((each for each in known if each in path.parts), "other")
