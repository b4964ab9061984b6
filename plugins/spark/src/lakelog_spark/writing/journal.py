"""The durable state of a job: its manifest, and a journal written before each append.

``manifest.json`` lists the files to append, and is written once. ``journal.json`` has the progress.
A job without a manifest has appended no row. A job with ``done`` in its journal has appended all.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import attrs

from lakelog.files.filesystem import FileSystem, read_file, write_file
from lakelog_spark.writing.errors import BadJournal
from lakelog_spark.writing.staging import StagedPart

JOURNAL: Final = "journal.json"
MANIFEST: Final = "manifest.json"
VERSION: Final = 1
_SHOWN: Final = 80


@attrs.frozen
class Journal:
    """The progress of a job.

    :ivar part: index of the next part in the manifest
    :ivar batch: index of the next batch in that part
    :ivar left: indices of the messages of that batch to append; ``None`` for all
    :ivar offset: physical offset at which an append of these messages may have begun; ``None`` if
        none has begun. Some of the messages may be in the log from there on
    :ivar rows: number of rows in the log, without an append that may have begun
    :ivar done: whether all rows are in the log
    :ivar named: whether a user gave the job its id, and so may use it again at any time
    """

    part: int = 0
    batch: int = 0
    left: tuple[int, ...] | None = None
    offset: int | None = None
    rows: int = 0
    done: bool = False
    named: bool = False


def read_journal(files: FileSystem, folder: Path) -> Journal | None:
    """Read the journal of a job; ``None`` without one. Raises :class:`.BadJournal`."""
    found = _read(files, folder / JOURNAL)
    if found is None:
        return None
    try:
        left = found.pop("left")
        return Journal(left=None if left is None else tuple(left), **found)
    except (KeyError, TypeError):
        raise BadJournal(folder / JOURNAL, _short(found)) from None


def write_journal(files: FileSystem, folder: Path, journal: Journal) -> None:
    """Write the journal durably; raises ``OSError``."""
    _write(files, folder / JOURNAL, attrs.asdict(journal))


def read_manifest(files: FileSystem, folder: Path) -> list[StagedPart] | None:
    """Read the parts to append; ``None`` without a manifest. Raises :class:`.BadJournal`."""
    found = _read(files, folder / MANIFEST)
    if found is None:
        return None
    try:
        return [StagedPart(**each) for each in found["parts"]]
    except (KeyError, TypeError):
        raise BadJournal(folder / MANIFEST, _short(found)) from None


def write_manifest(files: FileSystem, folder: Path, parts: Sequence[StagedPart]) -> None:
    """Write the list of parts to append durably; raises ``OSError``."""
    _write(files, folder / MANIFEST, {"parts": [attrs.asdict(each) for each in parts]})


def _read(files: FileSystem, path: Path) -> dict[str, Any] | None:
    content = read_file(files, path)
    if content is None:
        return None
    try:
        found = json.loads(content)
    except ValueError:
        raise BadJournal(path, repr(content[:_SHOWN])) from None
    if not isinstance(found, dict) or found.pop("version", None) != VERSION:
        raise BadJournal(path, _short(found))
    return found


def _short(found: object) -> str:
    return str(found)[:_SHOWN]


def _write(files: FileSystem, path: Path, content: dict[str, Any]) -> None:
    text = json.dumps({"version": VERSION, **content})
    write_file(files, path, text.encode() + b"\n")


LAST_FILE: Final = "last_batch"


@attrs.frozen
class LastBatch:
    """The record of the last micro-batch of one query.

    :ivar folder: the folder of the query
    """

    files: FileSystem
    folder: Path

    def read(self) -> int:
        """The number of the last batch in the log; -1 before the first one."""
        content = read_file(self.files, self.folder / LAST_FILE)
        if content is None:
            return -1
        try:
            return int(content)
        except ValueError:
            raise BadJournal(self.folder / LAST_FILE, repr(content[:80])) from None

    def write(self, number: int) -> None:
        """Record that batch ``number`` and all before it are in the log."""
        self.files.make_dir(self.folder)
        write_file(self.files, self.folder / LAST_FILE, b"%d\n" % number)
