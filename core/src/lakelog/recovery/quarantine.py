"""``lakelog/quarantine/``: bytes that do not belong to the log, each with its place.

They are behind the end of the log, or behind the end of a segment. A file holds the bytes only; its
name consists of their log offset, length and SHA-256. ``quarantine.jsonl`` has a line for each:
``file``, ``segment``, ``position`` in it, ``offset`` in the log, ``length``, ``reason`` and
``time`` (ISO 8601, UTC). Nothing is ever removed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import attrs

from lakelog.errors import StoreError
from lakelog.files.filesystem import (
    WINDOW_BYTES,
    File,
    FileSystem,
    last_nonzero,
    read_file,
    write_file,
)
from lakelog.files.segment_files import SegmentFile
from lakelog.format.layout import OWN_DIR, QUARANTINE_DIR
from lakelog.lazy import np
from lakelog.recovery.report import Aside

LIST_FILE: Final = "quarantine.jsonl"
COPYING: Final = "copying"
"""Name of an incomplete copy."""
BEHIND: Final = "behind the end of the log"
_SURPLUS: Final = "behind the end of its segment"


@attrs.frozen
class Tail:
    """Bytes to move to quarantine.

    :ivar path: the segment file
    :ivar position: where they begin in the file
    :ivar length: number of bytes up to the last non-zero one
    :ivar offset: where they begin in the log
    :ivar reason: why they are not part of the log
    """

    path: Path
    position: int
    length: int
    offset: int
    reason: str

    @property
    def end_offset(self) -> int:
        """Offset behind the last byte."""
        return self.offset + self.length


def tails(
    files: FileSystem,
    segments: Sequence[SegmentFile],
    size_bytes: int,
    end_offset: int,
    refused: Sequence[int],
    zeros: Mapping[int, int],
) -> Iterator[Tail]:
    """Yield the tails, in log order.

    :param refused: offsets of whole records that do not belong to the log
    :param zeros: by segment start, the offset from which on it is known to be zero
    """
    for each in segments:
        begin = max(end_offset - each.start_offset, 0)
        known = zeros.get(each.start_offset, each.start_offset + size_bytes) - each.start_offset
        stop = min(each.length, size_bytes, known)
        if begin < stop:
            unproven = sum(begin <= at - each.start_offset < stop for at in refused)
            reason = f"{BEHIND}; {unproven} whole records in it are not proved" * bool(unproven)
            yield from _tail(files, each, begin, stop, reason or BEHIND)
        if each.length > size_bytes:
            yield from _tail(files, each, size_bytes, each.length, _SURPLUS)


def _tail(
    files: FileSystem, segment: SegmentFile, begin: int, stop: int, reason: str
) -> Iterator[Tail]:
    with closing(files.open(segment.path)) as file:
        last = last_nonzero(file.next_data, file.read_at, begin, stop)
    if last is not None:
        yield Tail(segment.path, begin, last + 1 - begin, segment.start_offset + begin, reason)


def keep(files: FileSystem, path: Path, tail: Tail) -> Aside:
    """Copy bytes of a segment to the quarantine of the store directory ``path``, durably.

    Bytes already in quarantine are not copied again. A copy from an interrupted recovery counts
    too, if the segment's bytes differ only where they have been zeroed since.

    Raises :class:`~lakelog.errors.StoreError` if the copy fails, such as for lack of space, and
    then leaves no new file; ``OSError`` if the segment cannot be opened.
    """
    folder = path / OWN_DIR / QUARANTINE_DIR
    with closing(files.open(tail.path)) as source:
        try:
            kept = _there(files, folder, source, tail)
            if kept is None:
                files.make_dir(folder)
                kept = _copy(files, folder, source, tail)
        except OSError as error:
            raise StoreError(
                f"no copy of {tail.length} bytes of {tail.path} could be kept: "
                f"{error.strerror or error}; nothing was changed. Make room, or make the folder "
                "writable",
                path=folder,
            ) from error
    _note(files, folder, kept, tail)
    return Aside(tail.offset, tail.end_offset, tail.reason, kept)


def entries(files: FileSystem, path: Path) -> list[dict[str, Any]]:
    """The entries of the quarantine of the store directory ``path``, oldest first."""
    return list(_lines(files, path / OWN_DIR / QUARANTINE_DIR))


def _there(files: FileSystem, folder: Path, source: File, tail: Tail) -> Path | None:
    """An earlier copy that contains all of these bytes that are non-zero, if any."""
    begin = f"{tail.offset:020d}-"
    for name, size in files.list(folder):
        if name.startswith(begin) and name.endswith(".bytes") and size >= tail.length:
            with closing(files.open(folder / name)) as file:
                if _holds(file, source, tail):
                    return folder / name
    return None


def _holds(kept: File, source: File, tail: Tail) -> bool:
    for at, data in _pieces(source, tail):
        new = np.frombuffer(data, np.uint8)
        old = np.frombuffer(kept.read_at(at, len(data)), np.uint8)
        if not ((new == old) | (new == 0)).all():
            return False
    return True


def _copy(files: FileSystem, folder: Path, source: File, tail: Tail) -> Path:
    temporary = folder / COPYING
    try:
        digest = _fill(files, temporary, source, tail)
        target = folder / f"{tail.offset:020d}-{tail.length}-{digest[:16]}.bytes"
        files.rename(temporary, target)
    except BaseException:  # Ctrl-C too: half a copy would fill the disk
        with suppress(OSError):
            files.unlink(temporary)
        raise
    files.sync_dir(folder)
    return target


def _fill(files: FileSystem, target: Path, source: File, tail: Tail) -> str:
    from hashlib import sha256  # slow to import

    digest = sha256()
    with closing(files.open(target, write=True, create=True)) as file:
        file.truncate(0)
        for at, data in _pieces(source, tail):
            file.write_at(at, data)
            digest.update(data)
        file.sync()
    return digest.hexdigest()


def _pieces(source: File, tail: Tail) -> Iterator[tuple[int, bytes]]:
    for at in range(0, tail.length, WINDOW_BYTES):
        yield at, source.read_at(tail.position + at, min(WINDOW_BYTES, tail.length - at))


def _note(files: FileSystem, folder: Path, kept: Path, tail: Tail) -> None:
    """Record the origin of a copy, once."""
    known = list(_lines(files, folder))
    if any(each.get("file") == kept.name for each in known):
        return
    line = {
        "file": kept.name,
        "segment": tail.path.name,
        "position": tail.position,
        "offset": tail.offset,
        "length": tail.length,
        "reason": tail.reason,
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
