"""Iterates over the entries of valid index files in log order, in runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import attrs
import numpy as np

from lakelog.format.units import Longs
from lakelog_hash_index.indexfile import IndexFile

_LEAST: Final = 1 << 12
_MOST: Final = 1 << 18
_NONE: Final = np.zeros(0, np.int64)


@attrs.frozen(eq=False)
class Entries:
    """Consecutive entries, complete for each record; columns are ``int64``.

    :ivar offsets: physical offsets of their records, in bytes
    :ivar hashes: the stored hashes of topic and key
    :ivar files: index of the file of each, from the oldest
    :ivar numbers: number of each in its file
    """

    offsets: Longs = _NONE
    hashes: Longs = _NONE
    files: Longs = _NONE
    numbers: Longs = _NONE

    def __len__(self) -> int:
        return len(self.offsets)

    def __getitem__(self, part: slice) -> Entries:
        """A slice of the entries."""
        return Entries(*(column[part] for column in attrs.astuple(self, recurse=False)))

    def followed_by(self, other: Entries) -> Entries:
        """These entries followed by others."""
        if not len(self):
            return other
        columns = (attrs.astuple(each, recurse=False) for each in (self, other))
        return Entries(*(np.concatenate(pair) for pair in zip(*columns, strict=True)))


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
        held = Entries()
        while (found := self._read(end, most)) is not None:
            held = held.followed_by(found)
            # The last record may have more entries, in this file or the next.
            whole = int(held.offsets.searchsorted(held.offsets[-1]))
            if whole:
                yield held[:whole], False
            held = held[whole:]
        yield held, True

    def place(self, entries: Entries, at: int) -> tuple[Path, int] | None:
        """File and byte position of one of ``entries``, or of the next entry to come."""
        if not self._files:
            return None
        if at < len(entries):
            file, number = int(entries.files[at]), int(entries.numbers[at])
        else:
            file, number = min(self._file, len(self._files) - 1), self._number
        found = self._files[file]
        return found.path, found.shape.entry_at(number)

    def _read(self, end: int, most: int) -> Entries | None:
        """The next entries before ``end`` in one file; ``None`` if there are none."""
        while self._file < len(self._files):
            file, count = self._files[self._file], self._counts[self._file]
            raw = file.entries()[self._number : min(self._number + most, count)]
            offsets = raw["offset"].astype(np.int64)
            part = int(offsets.searchsorted(end))
            if part:
                numbers = np.arange(self._number, self._number + part)
                self._number += part
                hashes = raw["hash"][:part].astype(np.int64)
                return Entries(offsets[:part], hashes, np.full(part, self._file), numbers)
            if self._number < count or self._file == len(self._files) - 1:
                return None
            self._file, self._number = self._file + 1, 1
        return None
