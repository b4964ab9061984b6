"""Appends each staged row to the log exactly once, also if the driver is stopped and restarted.

Before each append the journal durably stores the offset, and the append is durable before the next
journal entry. So after a stop the journal is uncertain about at most one batch, and the log is
searched for its messages. A batch is appended in order, from that offset on. An interruption leaves
a part of the batch: its first messages or, after a power cut, whole records with damage between
them. There may be messages of other producers between and behind them.

Other processes may have the store open, too. Jobs of several drivers wait for each other: each
first updates the journals of stopped jobs.
"""

from __future__ import annotations

import logging
import os
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Final, TypeAlias

import attrs

import lakelog
from lakelog.errors import LakelogError, NotAStore
from lakelog.files.filesystem import FileSystem, RealFileSystem
from lakelog.format import layout, properties
from lakelog.message import Message, StoredMessage
from lakelog_lake.landing.committing import CommitLock
from lakelog_spark.writing import staging

_HOSTS: Final = layout.BORN_HOST_V6 | layout.STORE_HOST_V6
_BY_STORE: Final = (layout.RECORD_CRC_NAME.decode(), properties.INNER_MULTI_QUEUE_OFFSET)
"""Properties that the store writes."""
_Waiting: TypeAlias = "defaultdict[tuple[object, ...], deque[int]]"
_log = logging.getLogger(__name__)
_READABLE_SECONDS: Final = 30.0
_LOOK_SECONDS: Final = 0.01
At = Callable[[str], None]
"""Called after each step; tests end the process there."""
LOCK_FILE: Final = "lock"
LONGEST_WAIT_SECONDS: Final = 300.0


def finish_write(store: str | os.PathLike[str], job_id: str, *, settings: str | None = None) -> int:
    """Append the missing rows of a write that was stopped while appending.

    Needs no Spark. Nothing is appended twice.

    :returns: the number of rows appended

    Raises :class:`~lakelog_spark.writing.staging.StagingLost` if there are no such rows.
    """
    path = Path(store).absolute()
    with handing_over(path, settings) as found:
        return Handover(RealFileSystem.of_store(path), found, staging.checked_job(job_id)).run()


@contextmanager
def handing_over(
    path: Path, settings: str | None = None, *, wait_seconds: float = LONGEST_WAIT_SECONDS
) -> Iterator[lakelog.Store]:
    """Open the store at ``path`` exclusively for one job; wait for other jobs.

    Raises the errors of :func:`open_to_append`, and :class:`~lakelog.errors.LakelogError` if
    another job takes longer than ``wait_seconds``.
    """
    with _turn(path, wait_seconds), open_to_append(path, settings) as store:
        yield store


def _turn(path: Path, wait_seconds: float) -> AbstractContextManager[None]:
    folder = staging.folder_of(path, "any").parent
    if not (path / layout.OWN_DIR).is_dir():  # not a store of lakelog: opening raises
        return nullcontext()
    files = RealFileSystem.of_store(path)
    files.make_dir(folder)
    place, deadline = folder / LOCK_FILE, time.monotonic() + wait_seconds

    def waits(_: str) -> None:
        if time.monotonic() > deadline:
            raise LakelogError(
                f"{place}: another job is still appending to this store; check that job, and try "
                "again"
            )

    files.open(place, write=True, create=True).close()  # with the permissions of a store's file
    return CommitLock(place, waits).taken()


def open_to_append(
    path: Path, settings: str | None = None, *, create: bool = False
) -> lakelog.Store:
    """Open a store to append to it; other processes may have it open, too.

    :param settings: path of a settings file, besides the store's own
    :param create: whether to create a missing store

    Raises :class:`.NoSuchStore` if the store is missing and ``create`` is false, and
    :class:`~lakelog.errors.StoreLocked` if its owner admits no other process, such as RocketMQ.
    """
    if not create:
        try:
            lakelog.open(path, mode="read", settings=settings).close()
        except NotAStore as error:
            is_other = path.exists() and (not path.is_dir() or any(path.iterdir()))
            raise (error if is_other else staging.NoSuchStore(path)) from None
    return lakelog.open(path, settings=settings, on_late="return")  # a flush follows each batch


@attrs.frozen
class Handover:
    """Appends the rows of one job.

    :ivar store: the store, open for appends
    :ivar job: id of the job
    :ivar named: whether a user gave this id
    :ivar at: called after each step; for tests
    """

    files: FileSystem
    store: lakelog.Store
    job: str
    named: bool = False
    at: At = lambda _step: None

    @property
    def folder(self) -> Path:
        """The folder of the job's files."""
        return staging.folder_of(self.store.path, self.job)

    def run(self, parts: Sequence[staging.StagedPart] | None = None) -> int:
        """Append the missing rows of the job; return their number.

        :param parts: the staged files; ignored if an earlier call has stored the manifest

        Raises :class:`.StagingLost`, :class:`.BadJournal`, and :class:`.HandoverStopped` if part of
        the job may be in the log.
        """
        settle_others(self.files, self.store, self.job)
        journal = staging.read_journal(self.files, self.folder)
        if journal is not None and journal.done:
            _log.warning("job %s is in the log already: nothing is appended", self.job)
            self._clean()
            return 0
        settled = staging.read_manifest(self.files, self.folder)
        if settled is None:
            settled = self._settle(parts)
        try:
            return self._append_all(settled, journal or staging.Journal(named=self.named))
        except (LakelogError, OSError) as error:
            raise staging.HandoverStopped(self.store.path, self.job, error) from error

    def _settle(self, parts: Sequence[staging.StagedPart] | None) -> list[staging.StagedPart]:
        if parts is None:
            raise staging.StagingLost(self.folder, f"the staged rows of job {self.job}", "none")
        ordered = sorted(parts, key=lambda each: each.partition)
        for part in ordered:
            staging.verify(self.files, self.folder, part)
        self.files.make_dir(self.folder)
        staging.write_manifest(self.files, self.folder, ordered)
        self.at("settled")
        return ordered

    def _append_all(self, parts: Sequence[staging.StagedPart], journal: staging.Journal) -> int:
        journal = looked_up(self.files, self.store, self.folder, parts, journal)
        before = journal.rows
        while journal.part < len(parts):
            journal = self._append_part(parts[journal.part], journal)
        staging.write_journal(self.files, self.folder, attrs.evolve(journal, done=True))
        self.at("done")
        self._clean()
        return journal.rows - before

    def _append_part(self, part: staging.StagedPart, journal: staging.Journal) -> staging.Journal:
        if part.file is not None:
            staging.verify(self.files, self.folder, part)
            with staging.opened(self.folder, part) as staged:
                while journal.batch < part.batches:
                    journal = self._append_batch(
                        staging.messages_of(staged, journal.batch), journal
                    )
        return attrs.evolve(journal, part=journal.part + 1, batch=0)

    def _append_batch(self, messages: list[Message], journal: staging.Journal) -> staging.Journal:
        """Append a batch, or the rest of it; return the journal for the next one."""
        if journal.left is not None:
            messages = [messages[at] for at in journal.left]
        if messages:
            journal = attrs.evolve(journal, offset=self.store.flush())
            staging.write_journal(self.files, self.folder, journal)
            self.at("intended")
            end = self.store.put_batch(messages)[-1].end_offset
            flushed = self.store.flush()
            if flushed < end:
                raise LakelogError(f"{self.store.path}: {flushed} of {end} bytes are durable")
            self.at("appended")
        rows = journal.rows + len(messages)
        return attrs.evolve(journal, batch=journal.batch + 1, left=None, offset=None, rows=rows)

    def _clean(self) -> None:
        staging.remove_staged(self.files, self.folder)
        staging.remove(self.files, self.folder, [staging.MANIFEST])
        self.at("cleaned")


def looked_up(
    files: FileSystem,
    store: lakelog.Store,
    folder: Path,
    parts: Sequence[staging.StagedPart],
    journal: staging.Journal,
) -> staging.Journal:
    """Return the journal, updated from the log if an append may have begun.

    Raises :class:`.StagingLost`, and :class:`.LogLost` if the log was cut.
    """
    if journal.offset is None:
        return journal
    part = parts[journal.part]
    staging.verify(files, folder, part)
    _settled(store)
    with staging.opened(folder, part) as staged:
        messages = staging.messages_of(staged, journal.batch)
    left = range(len(messages)) if journal.left is None else journal.left
    still = missing(store, folder.name, journal.offset, [messages[at] for at in left])
    rows = journal.rows + len(left) - len(still)
    return attrs.evolve(journal, left=tuple(left[at] for at in still), offset=None, rows=rows)


def _settled(store: lakelog.Store) -> None:
    """Wait until all appended records are readable, including those of a driver that was killed."""
    end, deadline = store.flush(), time.monotonic() + _READABLE_SECONDS
    while store.max_offset < end:
        if time.monotonic() > deadline:
            raise LakelogError(f"{store.path}: only {store.max_offset} of {end} bytes are readable")
        time.sleep(_LOOK_SECONDS)


def settle_others(files: FileSystem, store: lakelog.Store, job: str) -> None:
    """Update the journals of other stopped jobs from the log, before this job appends any row."""
    jobs = staging.folder_of(store.path, job).parent
    for folder in sorted(jobs.iterdir()) if jobs.is_dir() else ():
        if folder.name == job or not (folder / staging.MANIFEST).exists():
            continue
        try:
            journal = staging.read_journal(files, folder)
            if journal is None or journal.done or journal.offset is None:
                continue
            parts = staging.read_manifest(files, folder) or []
            journal = looked_up(files, store, folder, parts, journal)
            staging.write_journal(files, folder, journal)
        except (LakelogError, OSError) as error:
            _log.warning("job %s cannot be examined: %s", folder.name, error)
            continue
        _log.warning(
            "job %s was stopped and %d of its rows are in the log; finish_write(%r, %r) appends "
            "the others",
            *(folder.name, journal.rows, str(store.path), folder.name),
        )


def missing(store: lakelog.Store, job: str, offset: int, messages: Sequence[Message]) -> list[int]:
    """Find the messages of a batch that are not in the log.

    :param offset: physical offset from which on the messages were appended, if at all
    :returns: their indices in ``messages``

    Raises :class:`.LogLost` if the log no longer contains ``offset``.
    """
    if not store.min_offset <= offset <= store.max_offset:
        raise staging.LogLost(job, offset, store.min_offset, store.max_offset)
    waiting: _Waiting = defaultdict(deque)
    for number, message in enumerate(messages):
        waiting[_traits(message)].append(number)
    left = set(range(len(messages)))
    for record in store.scan(offset):
        if not left:
            break
        numbers = waiting.get(_traits(record))
        if numbers is None:  # a record of another producer
            continue
        found = next((each for each in numbers if _same(messages[each], record)), None)
        if found is not None:
            numbers.remove(found)
            left.remove(found)
    return sorted(left)


def _traits(message: Message | StoredMessage) -> tuple[object, ...]:
    """Cheap attributes that few other messages share."""
    return message.topic, message.queue_id, message.born_timestamp_ms, bytes(message.body)


def _same(message: Message, record: StoredMessage) -> bool:
    return (
        message.flag == record.flag
        and message.sys_flag & ~_HOSTS == record.sys_flag & ~_HOSTS
        and message.reconsume_times == record.reconsume_times
        and message.born_host in (None, record.born_host)
        and _properties(message.properties) == _properties(record.properties_bytes)
    )


def _properties(given: object) -> dict[str, str]:
    found = properties.decode_properties(given) if isinstance(given, bytes) else {}
    return {name: value for name, value in found.items() if name not in _BY_STORE}
