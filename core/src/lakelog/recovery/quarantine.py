"""``lakelog/quarantine/``: bytes removed from the log, each with its place.

A file holds the bytes only; its name consists of their log offset, length and SHA-256.
``quarantine.jsonl`` has a line for each: ``file``, ``segment``, ``position`` in it, ``offset`` in
the log, ``length``, ``reason`` and ``time`` (ISO 8601, UTC). Nothing is ever removed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import attrs

from lakelog.errors import StoreError
from lakelog.files.filesystem import File, FileSystem, read_file, write_file
from lakelog.format.layout import OWN_DIR, QUARANTINE_DIR
from lakelog.recovery.report import Aside

LIST_FILE: Final = "quarantine.jsonl"
_COPYING: Final = "copying"
_WINDOW_BYTES: Final = 4 << 20


def keep(
    files: FileSystem,
    path: Path,
    segment_path: Path,
    position: int,
    length: int,
    log_offset: int,
    reason: str,
) -> Aside:
    """Copy bytes of a segment to the quarantine of the store directory ``path``, durably.

    Bytes already there are not copied again. A copy from an interrupted recovery counts too, if
    the segment's bytes differ only where they are zero by now. Raises
    :class:`~lakelog.errors.StoreError` for lack of space, and then leaves no new file.
    """
    folder = path / OWN_DIR / QUARANTINE_DIR
    source = files.open(segment_path)
    try:
        kept = _there(files, folder, source, position, length, log_offset)
        if kept is None:
            files.make_dir(folder)
            kept = _copy(files, folder, source, position, length, log_offset)
    except OSError as error:
        raise StoreError(
            f"no copy of {length} bytes of {segment_path} could be kept: {error.strerror or error};"
            " nothing was changed. Make room, or make the folder writable",
            path=folder,
        ) from error
    finally:
        source.close()
    _note(files, folder, kept, segment_path, position, length, log_offset, reason)
    return Aside(log_offset, log_offset + length, reason, kept)


@attrs.frozen
class QuarantinedRange:
    """The size of a quarantine.

    :ivar entries: number of copies of log bytes, and of files of queues and index moved there
    :ivar length_bytes: their total size
    """

    entries: int
    length_bytes: int


def holding(files: FileSystem, path: Path) -> QuarantinedRange:
    """The size of the quarantine of the store directory ``path``; it never shrinks."""
    found = files.list(path / OWN_DIR / QUARANTINE_DIR)
    lengths = [length for name, length in found if name not in (LIST_FILE, _COPYING)]
    return QuarantinedRange(len(lengths), sum(lengths))


def entries(files: FileSystem, path: Path) -> list[dict[str, Any]]:
    """The entries of the quarantine of the store directory ``path``, oldest first."""
    return list(_lines(files, path / OWN_DIR / QUARANTINE_DIR))


def _there(
    files: FileSystem, folder: Path, source: File, position: int, length: int, log_offset: int
) -> Path | None:
    """An earlier copy that contains all of these bytes that are non-zero, if any."""
    for name, size in files.list(folder):
        if name.startswith(f"{log_offset:020d}-") and name.endswith(".bytes") and size >= length:
            file = files.open(folder / name)
            try:
                if _holds(file, source, position, length):
                    return folder / name
            finally:
                file.close()
    return None


def _holds(kept: File, source: File, position: int, length: int) -> bool:
    import numpy as np

    for at, data in _pieces(source, position, length):
        new = np.frombuffer(data, np.uint8)
        old = np.frombuffer(kept.read_at(at, len(data)), np.uint8)
        if not ((new == old) | (new == 0)).all():
            return False
    return True


def _copy(
    files: FileSystem, folder: Path, source: File, position: int, length: int, log_offset: int
) -> Path:
    temporary = folder / _COPYING
    try:
        digest = _fill(files, temporary, source, position, length)
        target = folder / f"{log_offset:020d}-{length}-{digest[:16]}.bytes"
        files.rename(temporary, target)
    except BaseException:  # Ctrl-C too: half a copy would fill the disk
        with suppress(OSError):
            files.unlink(temporary)
        raise
    files.sync_dir(folder)
    return target


def _fill(files: FileSystem, target: Path, source: File, position: int, length: int) -> str:
    digest = hashlib.sha256()
    file = files.open(target, write=True, create=True)
    try:
        file.truncate(0)
        for at, data in _pieces(source, position, length):
            file.write_at(at, data)
            digest.update(data)
        file.sync()
    finally:
        file.close()
    return digest.hexdigest()


def _pieces(source: File, position: int, length: int) -> Iterator[tuple[int, bytes]]:
    for at in range(0, length, _WINDOW_BYTES):
        yield at, source.read_at(position + at, min(_WINDOW_BYTES, length - at))


def _note(
    files: FileSystem,
    folder: Path,
    kept: Path,
    segment: Path,
    position: int,
    length: int,
    log_offset: int,
    reason: str,
) -> None:
    """Record the origin of a copy, once."""
    known = list(_lines(files, folder))
    if any(each.get("file") == kept.name for each in known):
        return
    line = {
        "file": kept.name,
        "segment": segment.name,
        "position": position,
        "offset": log_offset,
        "length": length,
        "reason": reason,
        "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
    }
    text = "".join(json.dumps(each) + "\n" for each in (*known, line))
    write_file(files, folder / LIST_FILE, text.encode())


def _lines(files: FileSystem, folder: Path) -> Iterator[dict[str, Any]]:
    content = read_file(files, folder / LIST_FILE) or b""
    for line in content.splitlines():
        with suppress(ValueError):  # the line was edited; the copies are named well enough
            found = json.loads(line)
            if isinstance(found, dict):
                yield found
