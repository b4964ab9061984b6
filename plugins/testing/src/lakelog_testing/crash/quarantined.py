"""Checks that whole records which a recovery removes from the log are in quarantine."""

from __future__ import annotations

from collections.abc import Container, Mapping
from pathlib import Path

import attrs

from lakelog.errors import CorruptRecord
from lakelog.files.filesystem import FileSystem
from lakelog.format.layout import COMMITLOG_DIR, OWN_DIR, QUARANTINE_DIR, segment_name
from lakelog.format.properties import REPAIRED_TOPIC
from lakelog.format.record import checked_frame
from lakelog.processes.queue_table import is_table
from lakelog.processes.shared_page import PAGE_FILE
from lakelog_testing.crash.ledger import Entry


@attrs.frozen
class LogBytes:
    """The log of an image, before it is opened.

    :ivar files: contents by path from the root of the image
    :ivar store: name of the store's directory
    """

    files: Mapping[str, bytes]
    store: str
    segment_bytes: int

    def whole(self, entries: Mapping[int, Entry], but: Container[int] = ()) -> dict[int, bytes]:
        """The bytes of the records that are whole at their places, by offset."""
        found = {
            offset: self._record(offset, entry.end_offset)
            for offset, entry in entries.items()
            if offset not in but
        }
        return {offset: data for offset, data in found.items() if data is not None}

    def others(self) -> tuple[tuple[str, bytes], ...]:
        """All files except the log and the files shared by processes, which are created anew."""
        log = f"{self.store}/{COMMITLOG_DIR}/"
        return tuple(
            each
            for each in self.files.items()
            if not each[0].startswith(log) and not self._is_shared(each[0])
        )

    def _is_shared(self, path: str) -> bool:
        folder, _, name = path.rpartition("/")
        return folder == f"{self.store}/{OWN_DIR}" and (name == PAGE_FILE or is_table(name))

    def _record(self, offset: int, end_offset: int) -> bytes | None:
        start = offset % self.segment_bytes
        name = segment_name(offset - start)
        segment = self.files.get(f"{self.store}/{COMMITLOG_DIR}/{name}", b"")
        data = segment[start : start + end_offset - offset]
        try:
            frame = checked_frame(memoryview(data), 0, len(data), offset, sealed=True)
        except CorruptRecord:
            return None
        if frame.topic == REPAIRED_TOPIC:
            return None  # written by a repair
        return data if frame.size == len(data) else None


def not_kept(files: FileSystem, path: Path, records: Mapping[int, bytes]) -> list[int]:
    """Offsets of records that are missing in the quarantine of the store in ``path``."""
    if not records:
        return []
    folder = path / OWN_DIR / QUARANTINE_DIR
    kept = [
        (folder / name).read_bytes() for name, _ in files.list(folder) if name.endswith(".bytes")
    ]
    return sorted(
        offset for offset, data in records.items() if not any(data in each for each in kept)
    )
