"""The index of a read-only open: the existing files, and in memory the keys that are in no file."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import Any, Final

import attrs

from lakelog.errors import CorruptIndex, StoreError
from lakelog.format.layout import ABORT_FILE, INDEX_DIR
from lakelog.format.queue_offsets import Flags, Ints, Longs
from lakelog.format.record_batch import RecordBatch
from lakelog.hooks import Context, HashChains
from lakelog.hooks.dispatching import Verifier
from lakelog.lazy import np
from lakelog_hash_index import indexfile
from lakelog_hash_index.coverage import CoveredSpan, clipped, gaps, log_of, spans, valid_progress
from lakelog_hash_index.keys import count_keys, find_keys, hash_key
from lakelog_hash_index.shape import IndexShape

_log: Final = logging.getLogger(__name__)


class ReaderIndex:
    """A dispatcher and key index that changes no file.

    Records behind the ``end`` of :meth:`resume` are not returned before they are dispatched, even
    if an owner has already added them to a file.
    """

    directories: Sequence[str] = (INDEX_DIR,)

    def __init__(self, shape: IndexShape, context: Context) -> None:
        self._shape = shape
        self._context = context
        self._files: tuple[indexfile.IndexFile, ...] = ()
        self._damage: Sequence[CorruptIndex] = ()
        self._spans: Sequence[CoveredSpan] = ()
        self._memory: MemoryKeys | None = None
        self._minimum = self._limit = self._seen = 0

    # --- Dispatcher ---

    def resume(self, minimum: int, end: int) -> int:
        """The offset of the first missing record: behind or between files, or in a damaged one.

        While ``abort`` exists (after a crash, or with an owner), files that the checkpoint does not
        cover are checked as a whole, and ignored if damaged. A file that is damaged after a clean
        stop is ignored too, but each look-up reports it.
        """
        self._minimum, self._limit, self._seen = minimum, end, 0
        self._memory = None
        sound = self._look_beside_an_owner()
        self._spans = clipped(spans(sound), end)
        missing = gaps(self._spans, log_of(self._context), minimum)
        last = max((span.last for span in self._spans), default=-1)
        progress = valid_progress(self._context, last, end)
        known = last if progress is None else progress.end_offset
        return min([max(last, known, minimum), end, *(gap.start for gap in missing)])

    def _look_beside_an_owner(self) -> list[indexfile.IndexFile]:
        """Look again if a file was deleted between listing and mapping."""
        try:
            return self._look()
        except StoreError as error:
            if not isinstance(error.__cause__, FileNotFoundError):
                raise
            return self._look()

    def _look(self) -> list[indexfile.IndexFile]:
        """Select the usable files, and those that cover their records completely."""
        context = self._context
        folder = context.path / INDEX_DIR
        files, self._damage = indexfile.index_files(context.files, folder, self._shape)
        if not (context.path / ABORT_FILE).exists():
            self._files = tuple(files)
            return [file for file in files if not any(True for _ in indexfile.outline(file))]
        vouched = context.checkpoint.read().index_timestamp_ms
        self._files = tuple(
            file
            for at, file in enumerate(files)
            if (file.header().end_timestamp_ms <= vouched and at < len(files) - 1)
            or not indexfile.is_broken(file)
        )
        for file in files:
            if file not in self._files:
                _log.warning("%s is damaged; its keys are looked up in the log", file.path)
        return list(self._files)

    def dispatch(self, batch: RecordBatch) -> None:
        """Keep the keys of records that no file covers."""
        if not len(batch):
            return
        if not self._ends_with(batch):
            self._add_new(batch)
        self._seen = max(self._seen, batch.end_offset)
        self._limit = max(self._limit, batch.end_offset)

    def _ends_with(self, batch: RecordBatch) -> bool:
        """Whether the newest file ends with all keys of the only record of ``batch``.

        :meth:`resume` lets the last record with keys be dispatched again.
        """
        offset = batch.base_offset + batch.head(0)[0]
        if len(batch) > 1 or not self._spans or self._spans[-1].last != offset:
            return False
        header, file = self._files[-1].settled_header(), self._files[-1]
        first = header.count - count_keys(batch)
        return first > 0 and all(file.offset(at) == offset for at in range(first, header.count))

    def _add_new(self, batch: RecordBatch) -> None:
        offsets = batch.base_offset + batch.starts
        known = int(offsets.searchsorted(self._seen))
        batch, offsets = batch[known:], offsets[known:]
        if not len(batch):
            return
        keys = find_keys(batch)
        missing = ~self._covered(offsets)[keys.records]
        records = keys.records[missing]
        if len(records):
            memory = self._memory or MemoryKeys()
            memory.add(keys.hashes[missing], offsets[records], batch.store_timestamps_ms[records])
            self._memory = memory

    def _covered(self, offsets: Longs) -> Flags:
        """Whether all keys of each record are in one file; false at the ends of files."""
        covered = np.zeros(len(offsets), np.bool_)
        for span in self._spans:
            if span.last >= offsets[0] and span.first <= offsets[-1]:
                covered |= (offsets > span.first) & (offsets < span.last)
        return covered

    def truncate(self, end_offset: int) -> None:
        """Return nothing at or behind ``end_offset`` until it is dispatched."""
        self._limit = min(self._limit, end_offset)
        self._seen = min(self._seen, end_offset)
        self._spans = clipped(self._spans, end_offset)
        if self._memory is not None:
            self._memory.truncate(end_offset)

    def flush(self) -> None:
        """Nothing to do: a reader writes no files."""

    def close(self) -> None:
        """Release the files and the memory."""
        self._files, self._spans, self._memory = (), (), None

    def verifier(self, minimum: int, *, living: bool) -> Verifier:
        """Start a check of the present files; see ``Verifiable``."""
        from lakelog_hash_index.checking import IndexVerifier

        files, path = self._context.files, self._context.path
        crashed, folder = (path / ABORT_FILE).exists(), path / INDEX_DIR
        return IndexVerifier(files, folder, self._shape, minimum, living=living, crashed=crashed)

    # --- KeyIndex ---

    def offsets(self, topic: str, key: str, begin_ms: int, end_ms: int) -> Iterator[int]:
        """Offsets of records that may have ``key``, newest first, each once.

        Store times are kept in whole seconds: records up to 999 ms outside of the window may be
        included, and none inside is missed. Raises :class:`~lakelog.errors.CorruptIndex` at the end
        if a file is damaged.
        """
        wanted = indexfile.KeyQuestion(hash_key(topic, key), begin_ms, end_ms)
        memory = self._memory or MemoryKeys()
        others = memory.find(wanted.key_hash, begin_ms, end_ms)
        within = range(self._minimum, self._limit)
        return indexfile.newest_first(reversed(self._files), others, wanted, within, self._damage)

    def hash_files(self) -> HashChains | None:
        """See :class:`~lakelog.hooks.HashFiles`."""
        if self._damage:
            return None
        memory, shape = self._memory, self._shape
        find = None if memory is None else memory.find
        return self._files, find, self._minimum, self._limit, shape.slots, shape.entries


@attrs.frozen(eq=False)
class _Run:
    """Keys sorted by hash, then in log order."""

    hashes: Ints
    offsets: Longs
    times_ms: Longs

    def __len__(self) -> int:
        return len(self.hashes)

    def __getitem__(self, part: Any) -> _Run:
        return _Run(self.hashes[part], self.offsets[part], self.times_ms[part])

    def sorted(self) -> _Run:
        return self[np.argsort(self.hashes, kind="stable")]

    def behind(self, older: _Run) -> _Run:
        pairs = zip(_columns(older), _columns(self), strict=True)
        return _Run(*(np.concatenate(pair) for pair in pairs)).sorted()


def _columns(run: _Run) -> tuple[Any, ...]:
    return run.hashes, run.offsets, run.times_ms


class MemoryKeys:
    """Sorted runs, merged as they grow: each is more than twice as long as the next.

    One thread adds; any thread may read.
    """

    def __init__(self) -> None:
        self._runs: tuple[_Run, ...] = ()

    def add(self, hashes: Ints, offsets: Longs, times_ms: Longs) -> None:
        """Add keys of records behind all previous ones."""
        run, runs = _Run(hashes, offsets, times_ms).sorted(), list(self._runs)
        while runs and len(runs[-1]) <= 2 * len(run):
            run = run.behind(runs.pop())
        self._runs = (*runs, run)

    def truncate(self, end_offset: int) -> None:
        """Remove records at or behind ``end_offset``."""
        self._runs = tuple(run[run.offsets < end_offset] for run in self._runs)

    def find(self, key_hash: int, begin_ms: int, end_ms: int) -> list[int]:
        """Offsets of records with a store time in the inclusive window, newest first."""
        found: list[int] = []
        for run in self._runs:
            sides = np.searchsorted(run.hashes, [key_hash, key_hash + 1])
            some = run[slice(*sides)]
            fits = (some.times_ms >= begin_ms) & (some.times_ms <= end_ms)
            found += some.offsets[fits].tolist()
        return sorted(found, reverse=True)
