"""The contract of its kind."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from lakelog.format.layout import segment_name
from lakelog.interfaces import SegmentSource
from lakelog_archive.archive import Archive
from lakelog_archive.lazy import place_at
from lakelog_testing import SegmentSourceContract


class TestArchive(SegmentSourceContract):
    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path) -> None:
        self.folder = tmp_path

    def make(self, segments: Mapping[int, bytes]) -> SegmentSource:
        archive = Archive(place_at(str(self.folder / "archive")), read_bytes=4096)
        for start, content in segments.items():
            file = self.folder / segment_name(start)
            file.write_bytes(content)
            archive.keep(file, start)
        return archive
