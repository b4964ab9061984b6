"""Compares index files with the log that they were built from, for ``lakelog verify``.

First each file is checked by itself (see :mod:`lakelog_hash_index.indexfile`). Then, in one pass
over the log, each key must have an entry, and each entry a key. Files with an error are reported,
and the records that they cover are not compared. Memory holds the slots of one file, and the keys
of one run of records. Not checked: times of entries, and entries of records before the log.

:func:`verify` checks files without their log.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import attrs

from lakelog.files.filesystem import FileSystem, RealFileSystem
from lakelog.format.queue_offsets import Flags, Longs
from lakelog.format.record_batch import RecordBatch
from lakelog.hooks.dispatching import DamagedRanges, Problem
from lakelog.lazy import np
from lakelog_hash_index.indexfile import BROKEN, IndexFile, examine
from lakelog_hash_index.keys import find_keys
from lakelog_hash_index.shape import UNFINISHED, IndexShape, is_name, usual_shape

if TYPE_CHECKING:
    from numpy.typing import NDArray

Entries: TypeAlias = "NDArray[Any]"
"""Consecutive entries, complete for each record: the physical offset of the record, the stored hash
of topic and key, the index of the file from the oldest, and the number in that file."""
_ENTRY: Final = [("offset", "i8"), ("hash", "i8"), ("file", "i8"), ("number", "i8")]
_LEAST: Final = 1 << 12
_MOST: Final = 1 << 18


class EntryCursor:
    """Starts at the first entry of a record at or behind ``minimum``; ``files`` have entries.

    :ivar reach: offset of the last record with an entry, which may get more; 0 if there is none
    """

    def __init__(self, files: Sequence[IndexFile], minimum: int) -> None:
        self._counts = [file.settled_header().count for file in files]
        self._files = files
        self._file = 0
        self._number = 1
        self.reach = files[-1].offset(self._counts[-1] - 1) if files else 0
        while self._read(minimum, _LEAST) is not None:
            pass

    def until(self, end: int, about: int) -> Iterator[tuple[Entries, bool]]:
        """Yield runs of entries before ``end``, at least one, and whether each is the last.

        :param about: approximate number of entries in a run
        """
        most = min(max(2 * about, _LEAST), _MOST)
        held = np.zeros(0, _ENTRY)
        while (found := self._read(end, most)) is not None:
            held = np.concatenate((held, found))
            # The last record may have more entries, in this file or the next.
            whole = int(held["offset"].searchsorted(held["offset"][-1]))
            if whole:
                yield held[:whole], False
            held = held[whole:]
        yield held, True

    def place(self, entries: Entries, at: int) -> tuple[Path, int] | None:
        """File and byte position of one of ``entries``, or of the next entry to come."""
        if not self._files:
            return None
        if at < len(entries):
            file, number = int(entries["file"][at]), int(entries["number"][at])
        else:
            file, number = min(self._file, len(self._files) - 1), self._number
        found = self._files[file]
        return found.path, found.shape.entry_at(number)

    def _read(self, end: int, most: int) -> Entries | None:
        """The next entries before ``end`` in one file; ``None`` if there are none."""
        while self._file < len(self._files):
            file, count = self._files[self._file], self._counts[self._file]
            raw = file.entries(self._number, min(self._number + most, count))
            part = int(raw["offset"].astype(np.int64).searchsorted(end))
            if part:
                found = np.zeros(part, _ENTRY)
                found["offset"], found["hash"] = raw["offset"][:part], raw["hash"][:part]
                found["file"] = self._file
                found["number"] = np.arange(self._number, self._number + part)
                self._number += part
                return found
            if self._number < count or self._file == len(self._files) - 1:
                return None
            self._file, self._number = self._file + 1, 1
        return None


NOT_ONE: Final = "it is not an index file"
WRONG_LENGTH: Final = "the index file has a wrong length"
MISSING: Final = "keys are missing in the index"
OF_NO_KEY: Final = "the entry has no key in the log"
_ENDLESS: Final = (1 << 63) - 1


@attrs.define
class _Missing:
    """Adjacent missing keys: place in the index, first and last record, count."""

    place: tuple[Path, int]
    first: int
    last: int
    count: int = 0


@attrs.define(eq=False, slots=False)
class IndexVerifier:
    """A :class:`~lakelog.hooks.dispatching.Verifier`.

    While an owner writes, keys are expected up to the record of the last entry that the header
    counted when the check began. Then, and after a crash, entries that the header does not count
    yet are not an error.
    """

    _files: FileSystem
    _directory: Path
    _shape: IndexShape
    _minimum: int
    _living: bool = attrs.field(kw_only=True)
    _crashed: bool = attrs.field(default=False, kw_only=True)
    _skipped: list[tuple[int, int]] = attrs.field(factory=list, init=False)
    _damaged: DamagedRanges = attrs.field(factory=DamagedRanges, init=False)
    _own: list[Problem] = attrs.field(factory=list, init=False)
    _missing: _Missing | None = attrs.field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        self._cursor = EntryCursor(self._examine(), self._minimum)
        self._reach = self._cursor.reach if self._living else _ENDLESS

    # --- each file by itself ---

    def _examine(self) -> list[IndexFile]:
        """The files without errors, oldest first; collects the ranges that others cover."""
        sound: list[IndexFile] = []
        end, broken = 0, False
        growing = self._living or self._crashed
        for name, length in self._files.list(self._directory):
            file = IndexFile(self._files, self._directory / name, self._shape)
            found = list(_problems(file, name, length, end, growing=growing))
            self._own += found
            if found and is_name(name):
                broken = True
            elif not found and is_name(name) and length and not file.header().is_empty:
                header = file.header()
                if broken:
                    self._skipped.append((end, header.begin_offset))
                end, broken = header.end_offset, False
                sound.append(file)
        if broken:
            self._skipped.append((end, _ENDLESS))
        return sound

    # --- entries and keys ---

    def take(self, batch: RecordBatch) -> Iterator[Problem]:
        """Compare with the keys of a run of records."""
        yield from self._take_problems()
        keys = find_keys(batch)
        offsets = (batch.base_offset + batch.starts)[keys.records]
        due = offsets < self._reach
        offsets, hashes = offsets[due], keys.hashes[due].astype(np.int64)
        end = min(batch.end_offset, self._reach)
        for entries, is_last in self._cursor.until(end, len(offsets)):
            until = end if is_last else int(entries["offset"][-1]) + 1
            part = int(offsets.searchsorted(until))
            yield from self._compare(entries, offsets[:part], hashes[:part])
            offsets, hashes = offsets[part:], hashes[part:]

    def pass_damage(self, offset: int, end_offset: int) -> None:
        """Accept entries of these records: the damage is reported for the log."""
        self._damaged.add(offset, end_offset)

    def finish(self, end_offset: int) -> Iterator[Problem]:
        """Compare the rest: no entry may be behind the log, except new ones of a live owner."""
        yield from self._take_problems()
        none = np.zeros(0, np.int64)
        end = min(end_offset, self._reach) if self._living else _ENDLESS
        for entries, _ in self._cursor.until(end, 0):
            yield from self._compare(entries, none, none, end_offset)
        yield from self._missed(at_end=True)

    def close(self) -> None:
        """Nothing to do: maps are closed with the object."""

    def _take_problems(self) -> Iterator[Problem]:
        while self._own:
            yield self._own.pop(0)

    def _compare(
        self, entries: Entries, offsets: Longs, hashes: Longs, log_end: int = _ENDLESS
    ) -> Iterator[Problem]:
        there = entries["offset"]
        if np.array_equal(offsets, there) and np.array_equal(hashes, entries["hash"]):
            if len(offsets):
                yield from self._missed()
            return
        expected, found = _pairs(offsets, hashes), _pairs(there, entries["hash"])
        missing = ~np.isin(expected, found) & ~self._is_skipped(offsets)
        yield from self._note_missing(offsets, missing, entries)
        strange = ~np.isin(found, expected) & ~self._damaged.hits(there)
        for at in np.flatnonzero(strange).tolist():
            place, offset = self._place(entries, at), int(there[at])
            what = f"hash {int(entries['hash'][at])} of the record at {offset}"
            yield Problem(*place, OF_NO_KEY, "", what, recoverable=offset >= log_end)

    def _is_skipped(self, offsets: Longs) -> Flags:
        skipped = np.zeros(len(offsets), np.bool_)
        for first, last in self._skipped:
            skipped |= (offsets >= first) & (offsets <= last)
        return skipped

    def _note_missing(self, offsets: Longs, missing: Flags, entries: Entries) -> Iterator[Problem]:
        """Merge adjacent missing keys to one problem, also across runs."""
        cuts = np.flatnonzero(missing[1:] != missing[:-1]) + 1
        for part in np.split(np.arange(len(missing)), cuts) if len(missing) else ():
            if not missing[part[0]]:
                yield from self._missed()
                continue
            first, last = int(offsets[part[0]]), int(offsets[part[-1]])
            if self._missing is None:
                place = self._place(entries, int(entries["offset"].searchsorted(first)))
                self._missing = _Missing(place, first, last)
            self._missing.last = last
            self._missing.count += len(part)

    def _place(self, entries: Entries, at: int) -> tuple[Path, int]:
        return self._cursor.place(entries, at) or (self._directory, 0)

    def _missed(self, *, at_end: bool = False) -> Iterator[Problem]:
        missing, self._missing = self._missing, None
        if missing is not None:
            expected = f"{missing.count} keys of the records from {missing.first} to {missing.last}"
            yield Problem(*missing.place, MISSING, expected, "nothing", recoverable=at_end)


def _problems(
    file: IndexFile, name: str, length: int, end: int, *, growing: bool = False
) -> Iterator[Problem]:
    """The errors of one file that follows entries up to ``end``."""
    if not is_name(name):
        if not name.endswith(UNFINISHED):  # being created, or left by a crash
            yield Problem(file.path, 0, NOT_ONE, "a name of 17 digits", name)
    elif length not in (0, file.shape.length):
        yield Problem(file.path, length, WRONG_LENGTH, f"{file.shape.length} bytes", str(length))
    elif length:
        yield from examine(file, growing=growing)
        header = file.header()
        if not header.is_empty and header.begin_offset < end:
            what = f"one that begins at {header.begin_offset}"
            yield Problem(file.path, 16, BROKEN, f"records at or behind {end}", what)


def _pairs(offsets: Longs, hashes: Longs) -> NDArray[np.complex128]:
    """Offset and hash as one complex value each, exact for offsets below 2**53."""
    pairs: NDArray[np.complex128] = offsets + 1j * hashes
    return pairs


def verify(
    path: Path,
    slots: int | None = None,
    entries: int | None = None,
    files: FileSystem | None = None,
) -> list[Problem]:
    """The errors of the index files in the folder ``path``; no process may be writing to them.

    Checks counts, chains (every entry is linked exactly once, from its own slot), slots, and the
    order of the files. Missing keys cannot be found without the log.

    :param slots: as in the settings; by default from each file's length
    :param entries: the same
    """
    files, found, end = files or RealFileSystem(), list[Problem](), 0
    for name, length in files.list(path):
        shape = IndexShape(slots, entries) if slots and entries else usual_shape(length)
        if shape is None:
            found.append(Problem(path / name, length, WRONG_LENGTH, found=f"{length} bytes"))
            continue
        file = IndexFile(files, path / name, shape)
        problems = list(_problems(file, name, length, end))
        found += problems
        if not problems and is_name(name) and length:
            end = file.header().end_offset
    return found
