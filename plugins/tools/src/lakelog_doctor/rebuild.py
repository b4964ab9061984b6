"""Builds queues and index again from the log, and replaces the old ones.

The new folders are built in ``lakelog/tmp/rebuild``. Nothing else changes until all of them are
durable. Then the store is marked as crashed, the list of durable queues is removed, and the new
folders replace the old ones. After a crash meanwhile, the next open dispatches the whole log under
the tombstones that it finds. The log is only read; damage in it is skipped and reported.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import attrs

from lakelog.dispatch import DispatchCursor, NamedDispatcher
from lakelog.errors import StoreError
from lakelog.files import checkpoint, queue_ends
from lakelog.files.filesystem import FileSystem, overwrite_file, read_file, remove_tree
from lakelog.format.layout import ABORT_FILE, CONFIG_DIR, OWN_DIR, REBUILD_DIR, TMP_DIR
from lakelog.format.record_batch import Blank, Damage, Piece
from lakelog.hooks import Context, Dispatcher
from lakelog.log import sources, store_directory
from lakelog.log.scan import scan
from lakelog.processes import membership, ownership
from lakelog.recovery.report import Progress
from lakelog.store.open import Opening, prepare
from lakelog.store.strategies import make_dispatchers
from lakelog_doctor.check import is_asked_for
from lakelog_queues.dispatching.tombstones import add_tombstone, clear_tombstones, read_tombstones

_OLD: Final = "replaced"
_NO_FOLDER: Final = "none"
"""The name of a folder that never exists."""
_TOPICS: Final = ("topics.json", "topics.json.bak")


@attrs.frozen
class RebuildReport:
    """The result of a rebuild.

    :ivar records: number of records read
    :ivar bytes: their length and that of blanks, in bytes
    :ivar damage: skipped ranges of the log that are not whole records
    :ivar folders: the rebuilt folders of the store directory
    :ivar seconds: duration
    """

    records: int
    bytes: int
    damage: tuple[Damage, ...]
    folders: tuple[str, ...]
    seconds: float


def rebuild(  # noqa: PLR0913  # all but the path are optional keyword arguments
    path: str | os.PathLike[str],
    *,
    queues: bool = True,
    index: bool = True,
    keep_tombstones: bool = False,
    progress: Progress | None = None,
    settings: object | None = None,
    broker_conf: str | os.PathLike[str] | None = None,
    plugins: Sequence[object] | None = None,
    files: FileSystem | None = None,
    **arguments: Any,
) -> RebuildReport:
    """Rebuild the queues, the index, or both from the log of a store without an owner.

    Also works after a crash, and on damaged directories. Rebuilding drops the tombstones of removed
    topics: their queues return as long as the log has their records. A queue without records in the
    log is removed. The other arguments are those of :func:`lakelog.open`.

    :param progress: called with the bytes of the log read so far, and the total of its segments
    :param keep_tombstones: leave removed topics out of the queues, and keep their tombstones

    Raises :class:`~lakelog.errors.StoreLocked` while a process owns the store, and
    :class:`~lakelog.errors.StoreError`. On an error before the new folders are complete, everything
    but ``lock`` is unchanged. After a later one, the next open recovers.
    """
    opening = prepare(
        path,
        settings=settings,
        broker_conf=broker_conf,
        plugins=plugins,
        files=files,
        tolerate_missing=True,
        arguments=arguments,
    )
    seam, place = opening.files, opening.path
    directory = store_directory.StoreDirectory.of(seam, place, opening.settings.core)
    try:
        directory.check_readable()
        with ownership.unowned(seam, place), ExitStack() as held:
            held.callback(membership.alone(seam, place).leave)
            work = _Rebuild(directory, opening, progress or ignore_progress)
            held.callback(work.clear)
            return work.run(queues=queues, index=index, keep_tombstones=keep_tombstones)
    except OSError as error:
        raise store_directory.readable(error, place) from error


def ignore_progress(done_bytes: int, total_bytes: int) -> None:
    """The :data:`Progress` of a caller that wants none."""


@attrs.define
class _Rebuild:
    """A rebuild in progress; the store is locked."""

    directory: store_directory.StoreDirectory
    opening: Opening
    progress: Progress
    records: int = 0
    bytes: int = 0
    damage: list[Damage] = attrs.field(factory=list)

    @property
    def temporary(self) -> Path:
        return self.directory.path / OWN_DIR / TMP_DIR / REBUILD_DIR

    def clear(self) -> None:
        """Remove the temporary folder, also one from an interrupted rebuild."""
        remove_tree(self.directory.files, self.temporary)

    def run(self, *, queues: bool, index: bool, keep_tombstones: bool) -> RebuildReport:
        begun = time.monotonic()
        self.clear()
        self._prepare()
        if keep_tombstones:
            self._copy_tombstones()
        named = self._dispatchers(queues=queues, index=index)
        self._check_places(name for each in named for name in each.dispatcher.directories)
        self._build(named)
        with self._marked():
            if queues:
                queue_ends.forget_ends(self.directory.files, self.directory.path)
            swapped = tuple(name for each in named for name in self._swap(each.dispatcher))
            if queues and not keep_tombstones:
                clear_tombstones(self.directory.files, self.directory.path)
            if queues:
                self._take_over_ends()
        return RebuildReport(
            self.records, self.bytes, tuple(self.damage), swapped, time.monotonic() - begun
        )

    def _prepare(self) -> None:
        """Create the files of a store directory that dispatchers need in the temporary folder."""
        files = self.directory.files
        files.make_dir(self.temporary / _OLD)
        files.make_dir(self.temporary / CONFIG_DIR)
        files.make_dir(self.temporary / OWN_DIR)  # required for recording the ends of queues
        for name in _TOPICS:
            content = read_file(files, self.directory.path / CONFIG_DIR / name)
            if content is not None:
                overwrite_file(files, self.temporary / CONFIG_DIR / name, content)

    def _take_over_ends(self) -> None:
        """Copy the new queues' ends; without them the next open dispatches the whole log.

        A queue without records in the log has no files any more, and continues at its former end.
        """
        files, path = self.directory.files, self.directory.path
        kept = queue_ends.read_kept(files, self.temporary)
        if kept.marks:
            former = queue_ends.read_kept(files, path).former
            queue_ends.write_kept(files, path, kept._replace(former=former))

    def _copy_tombstones(self) -> None:
        """Copy the tombstones, so that dispatchers leave out removed topics."""
        files = self.directory.files
        for topic, end_offset in read_tombstones(files, self.directory.path).items():
            add_tombstone(files, self.temporary, topic, end_offset)

    def _dispatchers(self, *, queues: bool, index: bool) -> tuple[NamedDispatcher, ...]:
        files = self.directory.files
        keeper = checkpoint.CheckpointKeeper(files, self.temporary)
        settings = self.opening.settings
        context = Context(self.temporary, settings.core, files, keeper)
        made = make_dispatchers(self.opening.registry, settings, context)
        chosen = tuple(each for each in made if is_asked_for(each, queues=queues, index=index))
        for each in made:
            if each not in chosen:
                each.dispatcher.close()
        return chosen

    def _check_places(self, folders: Iterable[str]) -> None:
        """Refuse a folder that a rename cannot replace: a link, or on another file system."""
        device = self.temporary.stat().st_dev
        for name in folders:
            target = self.directory.path / name
            if target.is_symlink() or (target.exists() and target.stat().st_dev != device):
                raise StoreError(
                    "it is a link, or on another file system, so that no new folder can take its "
                    "place; remove it, and open the store to have it made again",
                    path=target,
                )

    def _build(self, named: Sequence[NamedDispatcher]) -> None:
        """Dispatch the whole log, and make the results durable."""
        with ExitStack() as opened:
            for each in named:
                opened.callback(each.dispatcher.close)
            source = sources.FileSource(
                self.directory.files,
                self.directory.commitlog,
                self.opening.settings.core.segment_size_bytes,
                sources.read_damage(self.directory.files, self.directory.path),
            )
            segments = source.segments()
            if segments:
                first, last = segments[0], segments[-1]
                end = last.start_offset + last.length
                for each in named:
                    each.dispatcher.resume(first.start_offset, end)
                cursor = DispatchCursor(self.directory.path, named, first.start_offset)
                cursor.run(self._pieces(source, first.start_offset, end))
            for each in named:
                each.dispatcher.flush()

    def _pieces(self, source: sources.FileSource, first: int, end: int) -> Iterator[Piece]:
        """Yield the pieces of the log, and count them."""
        for piece in scan(source, first):
            yield piece
            if isinstance(piece, Damage):
                self.damage.append(piece)
            elif isinstance(piece, Blank):
                self.bytes += piece.size
            else:
                self.records += len(piece)
                self.bytes += int(piece.sizes.sum())
            self.progress(piece.end_offset - first, end - first)
        self.progress(end - first, end - first)

    def _swap(self, dispatcher: Dispatcher) -> list[str]:
        """Replace the old folders of a dispatcher by the new ones; returns their names."""
        path = self.directory.path
        due = [
            each
            for each in dispatcher.directories
            if any((at / each).is_dir() for at in (self.temporary, path))
        ]
        if len(due) > 1:
            # One rename is atomic, several are not. All old folders go first, so that no crash
            # leaves folders of two builds side by side.
            for name in reversed(due):
                self._replace(self.temporary / _NO_FOLDER, name)
        for name in due:
            self._replace(self.temporary / name, name)
        return due

    def _replace(self, new: Path, name: str) -> None:
        target = self.directory.path / name
        swap_in(self.directory.files, new, target, self.temporary / _OLD / name)

    @contextmanager
    def _marked(self) -> Iterator[None]:
        """Mark the store as not closed cleanly, so that an open after a crash recovers."""
        files, path = self.directory.files, self.directory.path
        crashed = (path / ABORT_FILE).exists()
        if not crashed:
            ownership.write_abort(files, path)
        yield
        if not crashed:
            ownership.remove_abort(files, path)


def swap_in(files: FileSystem, new: Path, target: Path, old: Path) -> None:
    """Replace the folder ``target`` by ``new``; a former ``target`` is moved to ``old``.

    ``new`` may be missing: ``target`` is then only moved. All three are on one file system; the
    names are durable on return. ``OSError`` leaves ``target`` unchanged.
    """
    if not new.is_dir():
        _move(files, target, old)
    elif not target.exists():
        _move(files, new, target)
    elif files.exchange(new, target):
        _move(files, new, old)
    else:
        _in_two_steps(files, new, target, old)
    files.sync_dir(target.parent)


def _move(files: FileSystem, source: Path, target: Path) -> None:
    if source.is_dir():
        files.rename(source, target)


def _in_two_steps(files: FileSystem, new: Path, target: Path, old: Path) -> None:
    """Replace without an atomic exchange: a crash in between leaves both folders in tmp."""
    files.rename(target, old)
    try:
        files.rename(new, target)
    except OSError:
        files.rename(old, target)
        raise
