"""Builds the parts of a process without the services: it reads the files, and may append too."""

from __future__ import annotations

from pathlib import Path

from lakelog.dispatch.runner import Lag
from lakelog.files.pages.page_reader import PageReader, ReaderDurableEnd
from lakelog.files.shared.ownership import is_owned
from lakelog.files.state.body_note import warn_of_others
from lakelog.files.state.clean_stop import CleanEnd
from lakelog.log.appender import Appender
from lakelog.log.reading.bounds import ReaderBounds
from lakelog.log.reading.damage import read_damage
from lakelog.log.reading.flush_wait import FlushWait
from lakelog.log.reading.log_reader import LogReader
from lakelog.log.reading.sources import FileSource
from lakelog.log.store_directory import StoreDirectory
from lakelog.store.roles.parts import Manager, RefusingWriter, RoleParts
from lakelog.store.roles.prepared import OpenRequest
from lakelog.store.strategies import (
    make_archive,
    make_chosen,
    make_decoder,
    make_dispatchers,
)
from lakelog_interfaces.strategies import Kind, MaintainedLog


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
    maintained = MaintainedLog(
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
    refused = f"{prepared.path} is open for reading; open it with mode='write' to write"
    return RoleParts(
        prepared,
        "read" if appender is None else "attach",
        reader,
        appender or RefusingWriter(prepared.path, refused),
        Undispatched() if extension is None else extension.waits,
        prepared.maintenance.view(maintained),
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
