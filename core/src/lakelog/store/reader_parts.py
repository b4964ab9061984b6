"""The parts of a process without the services: it reads the files, and may append too."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from lakelog.dispatch import Lag
from lakelog.files.filesystem import FileSystem
from lakelog.files.identity import warn_of_others
from lakelog.hooks import Clock, Kind
from lakelog.log.appender import Appender
from lakelog.log.damage import read_damage
from lakelog.log.log_reader import LogReader
from lakelog.log.sources import FileSource, ReaderBounds
from lakelog.log.store_directory import StoreDirectory
from lakelog.processes.ownership import is_owned
from lakelog.processes.shared_page import PageReader, PageView, ReaderDurableEnd
from lakelog.processes.wake_page import PageWaiter, WakePage
from lakelog.recovery.clean_stop import CleanEnd
from lakelog.settings.catalog import MAINTENANCE
from lakelog.store.parts import Manager, OpenRequest, RefusingWriter, RoleParts
from lakelog.store.strategies import make_archive, make_chosen, make_decoder, make_dispatchers

if TYPE_CHECKING:
    from lakelog.maintenance.rounds import RemoteMaintenance

LONGEST_SLEEP_S: Final = 0.5
"""The longest sleep, which bounds the delay after a lost wake-up."""
_FIRST_NAP_S: Final = 0.005
_LONGEST_NAP_S: Final = 0.1
_NOBODY: Final = -1


class FlushWait:
    """Waits for the syncs of a living owner, which wakes the waiters; does not read the log.

    :param page: returns the current shared page, if any
    """

    def __init__(self, files: FileSystem, path: Path, page: Callable[[], PageView | None]) -> None:
        self._page = page
        self._page_waiter = PageWaiter(files, path)

    def wait(self, offset: int, timeout_s: float) -> bool:
        """Wait until the log is durable up to ``offset``; ``False`` on timeout.

        Also ``False``, at once, if no living owner publishes its positions. A waiter that was woken
        for another position sleeps briefly before it waits again.
        """
        end, nap = time.monotonic() + timeout_s, _FIRST_NAP_S
        while True:
            asked = self._page_waiter.ask()
            found, left = self._look(), end - time.monotonic()
            if found >= offset or found == _NOBODY or left <= 0:
                return found >= offset
            if asked is not None and self._slept(asked, min(left, LONGEST_SLEEP_S)):
                nap = _FIRST_NAP_S
            else:
                time.sleep(min(nap, left))
                nap = min(2 * nap, _LONGEST_NAP_S)

    def _slept(self, asked: tuple[WakePage, int], seconds: float) -> bool:
        """Whether the full time passed; ``False`` if woken early, or if it cannot sleep."""
        begun = time.monotonic()
        slept = self._page_waiter.sleep(asked, seconds, LONGEST_SLEEP_S)
        return slept and time.monotonic() - begun >= seconds

    def _look(self) -> int:
        page = self._page()
        return _NOBODY if page is None else page.flushed


def reader_parts(
    prepared: OpenRequest, appender: Appender | None = None, asking: Manager | None = None
) -> RoleParts:
    """Open the files for reading; a store extension dispatches records that queues and index lack.

    :param appender: appends in this process; without it, the role is ``read``
    :param asking: sends requests to the process with the services; given with ``appender``

    Raises :class:`~lakelog.errors.NotAStore`, and the errors of the strategies.
    """
    core = prepared.settings.core
    directory = StoreDirectory.of(prepared.files, prepared.path, core)
    if appender is None:
        directory.check_readable()
    prepared.registry.events.store_opening(prepared.path, read_only=appender is None)
    source = FileSource(
        prepared.files,
        directory.commitlog,
        core.segment_size_bytes,
        read_damage(prepared.files, prepared.path),
    )
    reader = _reader(prepared, source, directory.commitlog)
    made = prepared.registry, prepared.settings, prepared.context(read_only=True)
    dispatchers = () if prepared.extension is None else make_dispatchers(*made)
    extension = prepared.extended(reader, dispatchers, read_only=appender is None)

    def maintain() -> RemoteMaintenance:
        from lakelog.maintenance.planning import MaintainedLog
        from lakelog.maintenance.rounds import RemoteMaintenance

        log = MaintainedLog(
            directory=directory,
            reader=reader,
            starts=source.starts,
            segment_size_bytes=core.segment_size_bytes,
            cleaner=lambda: make_chosen(*made, Kind.CLEANER, core.cleaner),
            disk_watcher=lambda: make_chosen(*made, Kind.DISK_WATCHER, core.disk_watcher),
            events=prepared.registry.events,
            clock=prepared.clock,
            ask=asking,
        )
        section = prepared.settings.section(MAINTENANCE)
        return RemoteMaintenance(log, section, prepared.clock or Clock())

    refused = f"{prepared.path} is open for reading; open it with mode='write' to write"
    return RoleParts(
        prepared,
        "read" if appender is None else "attach",
        reader,
        appender or RefusingWriter(prepared.path, refused),
        Undispatched() if extension is None else extension.waits,
        maintain,
        extension,
        asking,
    )


class Undispatched:
    """The dispatch state without a store extension: queues and index are not used."""

    offset = 0
    lag = Lag(0, 0)
    failure = None

    def wait(self, offset: int, _timeout_s: float) -> bool:
        """Whether ``offset`` is the start of the log: nothing is ever dispatched."""
        return offset <= 0


def _reader(prepared: OpenRequest, source: FileSource, commitlog: Path) -> LogReader:
    context = prepared.context(read_only=True)
    warn_of_others(prepared.files, prepared.path, prepared.settings.core.append)
    page_reader = PageReader(prepared.files, prepared.path)
    reader = LogReader(
        source,
        ReaderBounds(source, page_reader.page, CleanEnd(prepared.files, prepared.path, commitlog)),
        lambda: is_owned(prepared.files, prepared.path),
        ReaderDurableEnd(prepared.files, prepared.path, page_reader.page),
        FlushWait(prepared.files, prepared.path, page_reader.page).wait,
        make_decoder(prepared.registry, prepared.settings, context),
    )
    archive = make_archive(prepared.registry, prepared.settings, context)
    if archive is not None:
        reader.add_archive(archive, prepared.settings.core.segment_size_bytes)
    return reader
