"""``consumequeue_ext`` of one queue: tags codes and store times, to which its units point.

With it, a unit of the consume queue holds an address in the place of its tags code. Source:
RocketMQ's ``ConsumeQueueExt``; docs/format/consumequeue_ext.md.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from lakelog.codec.record_batch import gather
from lakelog.errors import CorruptQueue, StoreReadOnly
from lakelog.files.filesystem import FileSystem
from lakelog.format.queue_offsets import Queue
from lakelog_queues.files.batchfolder import SizedFiles
from lakelog_queues.files.openfiles import OpenFiles
from lakelog_queues.units import extunits
from lakelog_queues.units.extunits import (
    BLANK_BYTES,
    END_MARKER,
    LOWEST,
    MAX_OFFSET,
    UNIT,
    UNIT_BYTES,
    Longs,
    RawUnits,
)

_LOG: Final = logging.getLogger(__name__)
_SCANNED_AT_ONCE: Final = 1 << 20
_WIDEST_GAP: Final = 1 << 16
"""Units further apart than this, in bytes, are read by themselves."""


class ExtFiles:
    """One directory; one thread appends, any thread resolves.

    :param file_size_bytes: length of every file, at least 24
    :param read_only: nothing on disk is changed or made; files may grow meanwhile
    :param opened: open files that queues share; without it, this one keeps two of its own open

    Raises :class:`~lakelog.errors.CorruptQueue` for files of other lengths, or gaps between them.
    """

    is_address = staticmethod(extunits.is_address)

    def __init__(
        self,
        files: FileSystem,
        directory: Path,
        file_size_bytes: int,
        read_only: bool = False,
        opened: OpenFiles | None = None,
    ) -> None:
        if file_size_bytes < UNIT_BYTES + BLANK_BYTES:
            raise ValueError(f"file_size_bytes is {file_size_bytes}; no unit fits below 24")
        self._folder = SizedFiles(
            files, directory, file_size_bytes, read_only=read_only, opened=opened
        )
        self._read_only = read_only
        self._folder.load()
        self._end = self._find_end()

    @property
    def end(self) -> int:
        """Offset behind the last unit, in bytes from the start of the first file ever made."""
        if self._read_only:
            self._folder.load()
            self._end = self._find_end()
        return self._end

    def append(self, tags_codes: Longs, store_times_ms: Longs) -> Longs:
        """Write a unit for each; one write for each file.

        :returns: ``int64``, their addresses; where no address is left (at 8 EiB), the tags code
            itself, as in RocketMQ
        """
        self._check_writable()
        addresses = np.array(tags_codes, np.int64)
        done = 0
        while done < len(addresses) and self._end + UNIT_BYTES <= MAX_OFFSET:
            count = min(self._room(), len(addresses) - done)
            part = slice(done, done + count)
            full = done + count < len(addresses)
            data = extunits.pack(tags_codes[part], store_times_ms[part])
            self._folder.write(self._end, data + END_MARKER if full else data)
            addresses[part] = self._end + LOWEST + np.arange(count, dtype=np.int64) * UNIT_BYTES
            self._end += self._folder.left(self._end) if full else len(data)
            done += count
        return addresses

    def resolve(self, addresses: Longs) -> tuple[Longs, Longs]:
        """Tags codes and store times (ms since 1970) of units, ``int64`` each, in the same order.

        Raises :class:`~lakelog.errors.CorruptQueue` for an address at which no unit stands.
        """
        self._check_addresses(addresses)
        offsets, back = np.unique(addresses - np.int64(LOWEST), return_inverse=True)
        raw = self._heads(offsets)[back]
        return raw["tags_code"].astype(np.int64), raw["store_time"].astype(np.int64)

    def first_lost(self, codes: Longs, queue: Queue) -> int | None:
        """Which of ``codes``, of units of ``queue``, is the first address where no unit stands."""
        places = np.flatnonzero(self.is_address(codes))
        try:
            self.resolve(codes[places])
        except CorruptQueue as error:
            _LOG.warning("queue %s/%d: %s; it is built again from there", *queue, error)
            return next(int(at) for at in places if not self._holds(codes[at : at + 1]))
        return None

    def _holds(self, address: Longs) -> bool:
        try:
            self.resolve(address)
        except CorruptQueue:
            return False
        return True

    def truncate_after(self, address: int | None) -> None:
        """Keep the unit at ``address`` and all before it; ``None`` drops everything.

        Raises :class:`~lakelog.errors.CorruptQueue` if no unit stands there; nothing changes then.
        """
        self._check_writable()
        self._end = 0 if address is None else self._end_of(address)
        self._folder.cut(self._end)

    def truncate_before(self, address: int) -> int:
        """Remove the files that end before the unit at ``address``, not the last one; how many."""
        self._check_writable()
        return self._folder.remove_front(address - LOWEST)

    def distrust(self) -> None:
        """Sync all of it at the next flush."""
        self._folder.distrust()

    def flush(self, least_pages: int = 0) -> None:
        """Make durable the files of which at least so many pages changed; 0 is all."""
        self._folder.flush(least_pages)

    def close(self) -> None:
        """Let go of the files; nothing is synced."""
        self._folder.close()

    def _check_writable(self) -> None:
        if self._read_only:
            raise StoreReadOnly("the store was opened for reading", path=self._folder.directory)

    def _room(self) -> int:
        """Units that fit at the end of the file; 0 when it must be rolled."""
        fit = (self._folder.left(self._end) - BLANK_BYTES) // UNIT_BYTES
        return max(0, min(fit, (MAX_OFFSET - self._end) // UNIT_BYTES))

    def _check_addresses(self, addresses: Longs) -> None:
        bad = ~extunits.is_address(addresses)
        if bad.any():
            raise CorruptQueue(
                f"{int(addresses[bad][0])} is no address of a unit: expected at most "
                f"{extunits.MAX_ADDRESS}; rebuild the queues",
                path=self._folder.directory,
            )

    def _heads(self, offsets: Longs) -> RawUnits:
        """The first 20 bytes of the units at ``offsets``, which ascend."""
        new_file = np.diff(offsets // self._folder.size_bytes) != 0
        cuts = np.flatnonzero(new_file | (np.diff(offsets) > _WIDEST_GAP)) + 1
        runs = np.split(offsets, cuts) if len(offsets) else []
        return np.concatenate([np.zeros(0, UNIT), *(self._run(run) for run in runs)])

    def _run(self, offsets: Longs) -> RawUnits:
        first, last = int(offsets[0]), int(offsets[-1])
        data = self._folder.read(first, last - first + UNIT_BYTES)
        there = offsets - first + UNIT_BYTES <= len(data)
        raw: NDArray[np.void] = np.zeros(len(offsets), UNIT)
        raw[there] = gather(data, UNIT, offsets[there] - first)
        inside = offsets % self._folder.size_bytes + raw["size"] <= self._folder.size_bytes
        good = extunits.is_whole(raw) & inside
        if not good.all():
            at = int(good.argmin())
            self._refuse(int(offsets[at]), int(raw["size"][at]))
        return raw

    def _refuse(self, offset: int, found: int) -> None:
        raise CorruptQueue(
            f"no unit stands at offset {offset} (byte {offset % self._folder.size_bytes} of this "
            f"file): expected a length of {UNIT_BYTES} or more that fits its bitmap, found {found};"
            " rebuild the queues",
            path=self._folder.path(offset),
        )

    def _end_of(self, address: int) -> int:
        self._check_addresses(np.array([address]))
        raw = self._heads(np.array([address - LOWEST]))
        return address - LOWEST + int(raw["size"][0])

    def _find_end(self) -> int:
        """Behind the last unit of the last file, which is all that RocketMQ goes by."""
        at = self._folder.bases[-1] if self._folder.bases else 0
        while (step := self._step(at)) > 0:
            at += step
        return at

    def _step(self, at: int) -> int:
        """Bytes of the next units: many without a bitmap, or one with; 0 at the end."""
        data = self._folder.read(at, min(_SCANNED_AT_ONCE, self._folder.left(at) - BLANK_BYTES))
        plain = extunits.plain_run(data) * UNIT_BYTES
        if plain or len(data) < UNIT_BYTES:
            return plain
        head = np.frombuffer(data, UNIT, 1)
        size = int(head["size"][0])
        whole = bool(extunits.is_whole(head)[0]) and size <= self._folder.left(at) - BLANK_BYTES
        return size if whole else 0
