"""Checks queues and index against the log in a single scan; checkpoint and segments by themselves.

Nothing is opened for writing, and no lock is taken. So it works beside a running owner, and after a
crash. Dispatchers that support it are ``Verifiable``.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import attrs

from lakelog import Store
from lakelog.dispatch import NamedDispatcher
from lakelog.errors import BadSegment, PluginError
from lakelog.files import segment_files
from lakelog.files.checkpoint import read_checkpoint
from lakelog.files.filesystem import FileSystem, RealFileSystem, read_file
from lakelog.format.layout import CHECKPOINT, CHECKPOINT_BYTES, CHECKPOINT_FILE
from lakelog.format.record_batch import Blank, Damage, Piece
from lakelog.hooks import Context, KeyIndex, QueueReader
from lakelog.hooks.dispatching import DamageAware, Problem, Verifiable, Verifier
from lakelog.processes.ownership import is_owned
from lakelog.registry import Registry
from lakelog.store.open import open_store
from lakelog.store.strategies import make_dispatchers
from lakelog_doctor.parallel_scan import directory_of


def check(
    path: str | os.PathLike[str],
    *,
    queues: bool = True,
    index: bool = True,
    plugins: Sequence[object] | None = None,
    files: FileSystem | None = None,
    **opening: Any,
) -> Iterator[Problem]:
    """Yield the problems in the queues, the index, or both, of the store in ``path``.

    Damage in the log itself is skipped, with units and keys that point into it. A rebuild repairs
    every problem found. The other arguments are those of :func:`lakelog.open`.

    Raises :class:`~lakelog.errors.PluginError` if no installed dispatcher supports a requested
    check, and the errors of :func:`lakelog.open`.
    """
    with open_store(path, mode="read", plugins=plugins, files=files, **opening) as store:
        checking = Checking.of(store, queues=queues, index=index, plugins=plugins, files=files)
        with closing(checking):
            for piece in store.scan_pieces():
                yield from checking.take(piece)
            yield from checking.finish()


def check_checkpoint(
    path: Path, end_offset: int, last_timestamp_ms: int, files: FileSystem | None = None
) -> Iterator[Problem]:
    """Yield claims of the checkpoint that exceed the log; skipped while a process owns the store.

    :param end_offset: end of the log
    :param last_timestamp_ms: its last store time
    """
    seam = files or RealFileSystem()
    file = path / CHECKPOINT_FILE
    content = read_file(seam, file)
    if is_owned(seam, path) or (content is None and not end_offset):
        return
    if content is None or len(content) < CHECKPOINT.size:
        size = f"{len(content or b'')} bytes" if content is not None else "no file"
        words = "the checkpoint is missing"
        yield Problem(file, 0, words, f"{CHECKPOINT_BYTES} bytes", size, recoverable=True)
        return
    found = read_checkpoint(seam, path)
    for position, what, claimed, most in (
        (0, "store times of the log", found.physic_timestamp_ms, last_timestamp_ms),
        (8, "store times of the queues", found.logics_timestamp_ms, last_timestamp_ms),
        (16, "store times of the index", found.index_timestamp_ms, last_timestamp_ms),
        (32, "the confirmed offset", found.confirm_offset, end_offset),
    ):
        if claimed > most:
            words = f"the checkpoint claims more than the log holds: {what}"
            yield Problem(file, position, words, f"at most {most}", str(claimed))


@attrs.define
class Checking:
    """Checks in progress, alongside one scan of the whole log; create it before the scan.

    :ivar names: the dispatchers that are checked
    """

    names: tuple[str, ...]
    _verifiers: tuple[Verifier, ...]
    _end_offset: int

    @classmethod
    def of(
        cls,
        store: Store,
        *,
        queues: bool,
        index: bool,
        plugins: Sequence[object] | None = None,
        files: FileSystem | None = None,
    ) -> Checking:
        """Start the checks of a store that is open for reading; raises like :func:`check`."""
        if not queues and not index:
            return cls((), (), store.min_offset)
        seam = files or RealFileSystem()
        context = Context(store.path, store.settings.core, seam, read_only=True)
        made = make_dispatchers(Registry.load(plugins, os.environ), store.settings, context)
        asked = [each for each in made if is_asked_for(each, queues=queues, index=index)]
        _check_all_asked_for(asked, queues=queues, index=index)
        living, minimum = is_owned(seam, store.path), store.min_offset
        verifiers = {
            each.name: each.dispatcher.verifier(minimum, living=living)
            for each in asked
            if isinstance(each.dispatcher, Verifiable)
        }
        return cls(tuple(verifiers), tuple(verifiers.values()), minimum)

    def take(self, piece: Piece) -> Iterator[Problem]:
        """Compare with the next piece of the log; iterate to the end."""
        if isinstance(piece, Damage):
            for each in self._verifiers:
                if isinstance(each, DamageAware):
                    each.pass_damage(piece.offset, piece.end_offset)
            return
        self._end_offset = piece.end_offset
        if not isinstance(piece, Blank):
            for each in self._verifiers:
                yield from each.take(piece)

    def finish(self) -> Iterator[Problem]:
        """Compare the remainder, after the last piece of the log."""
        for each in self._verifiers:
            yield from each.finish(self._end_offset)

    def close(self) -> None:
        """Close files."""
        for each in self._verifiers:
            each.close()


def is_asked_for(named: NamedDispatcher, *, queues: bool, index: bool) -> bool:
    """Whether to treat a dispatcher; with neither queues nor keys, only if both are requested."""
    if isinstance(named.dispatcher, QueueReader):
        return queues
    if isinstance(named.dispatcher, KeyIndex):
        return index
    return queues and index


def _check_all_asked_for(asked: Sequence[NamedDispatcher], *, queues: bool, index: bool) -> None:
    for wanted, kind, words in ((queues, QueueReader, "queues"), (index, KeyIndex, "the index")):
        able = [each for each in asked if isinstance(each.dispatcher, kind)]
        if wanted and not any(isinstance(each.dispatcher, Verifiable) for each in able):
            names = ", ".join(each.name for each in able)
            raise PluginError(
                f"nothing here can check {words}"
                + (f": {names} cannot" if names else "; no dispatcher for it is in use")
            )


def problems(store: Store) -> list[BadSegment]:
    """All problems of the names and lengths of a store's segments.

    RocketMQ refuses to load a store with any of them.
    """
    directory, size_bytes = directory_of(store), store.settings.core.segment_size_bytes
    listing = directory.files.list(directory.commitlog)
    found = segment_files.segment_files(directory.commitlog, listing)
    wrong = [each for each in found if each.length != size_bytes]
    if len(found) == 1 and segment_files.may_be_of_another_size(found[0].length, size_bytes):
        wrong = []  # it is among the bad ones
    bad = segment_files.bad_segments(directory.commitlog, listing, size_bytes)
    return bad + [_wrong_length(each, size_bytes) for each in wrong]


def _wrong_length(segment: segment_files.SegmentFile, size_bytes: int) -> BadSegment:
    """The problem of a segment whose length no other setting explains."""
    length, path = segment.length, segment.path
    what = (
        f"the file is truncated: {length} bytes are left of {size_bytes}; restore it from a "
        "backup, or let 'lakelog recover' keep its whole records and extend it with zeros"
        if length < size_bytes
        else f"the file is too long: {length} bytes instead of {size_bytes}; 'lakelog recover' "
        "cuts it, and keeps the surplus in lakelog/quarantine"
    )
    end = segment.start_offset + min(length, size_bytes)
    return BadSegment(what, path=path, offset=end, expected=size_bytes, found=length)
