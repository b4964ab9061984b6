"""``rocketmq-ha`` as slave: connects to the master, compares, appends, and reports its end.

Each connection begins with bytes that the replica already has, from the start of the last whole
record on. They are compared before any byte is appended. This detects a master that lost the end of
its log, by a power cut or by an older disk; the protocol itself does not report it.

The protocol has no field for the end of the master's log either, which the status has. It follows
from a heartbeat, which a master sends only if there are no other bytes to send. The master's port
for clients, if known, also reports it.

The state of the master's broker that is not in its log is copied as well (:class:`GroupCopier`):
consumer offsets, topics, subscription groups and delay offsets. A RocketMQ slave copies them, too;
a broker that opens a promoted replica then has them. The source is RocketMQ 5.3.3,
``SlaveSynchronize``. Here each file is replaced if its content differs. Request modes (request 402)
and the timer wheel (requests 60 and 61) are not copied.
"""

from __future__ import annotations

import logging
import os
import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Any, Final

import attrs

from lakelog import errors
from lakelog.files.filesystem import FileSystem
from lakelog.files.identity import ReplicaState, read_replica, write_replica
from lakelog.format import layout
from lakelog.hooks import Context, Outcome, ReplicaLog, ReplicatedLog
from lakelog.message import Body
from lakelog.results import PutStatus
from lakelog.runtime.locks import LockFreeEvent
from lakelog.runtime.threads import started
from lakelog_daemon.replication_status import ReplicaStatus, write_status
from lakelog_queues.consumers.offsettable import OffsetTable
from lakelog_replication import remoting, wire
from lakelog_replication.replica.connection import Dialer, DivergenceSearch
from lakelog_replication.replica.receivable import Receivable, Voucher, make_voucher
from lakelog_replication.settings import Address, RocketmqHaSettings, SlaveSettings, tls_context
from lakelog_rocketmq import config as tables
from lakelog_rocketmq.fastjson import parse_object

_LOG: Final = logging.getLogger("lakelog")

_INTERVAL_S: Final = 1.0

_IDLE_S: Final = 0.5
"""Longest wait for bytes of the master, and so the longest delay of a stop."""

_QUIET_S: Final = 0.005
"""Pause of the master after which the durable end is stored; no put waits for it then."""

_FIRST: Final = b"\x00"
"""The first byte of a log: the highest byte of the length of a record below 16 MiB."""


class HaReceiver:
    """The slave's role of ``rocketmq-ha``; a :class:`~lakelog.hooks.Receiver`.

    :ivar source: the master, as ``HOST:PORT``
    """

    def __init__(self, settings: RocketmqHaSettings, context: Context) -> None:
        """Check the settings; raises :class:`~lakelog.errors.SettingsError`."""
        if not settings.master:
            what = "a slave needs its master: give --from HOST:PORT to lakelog replicate, or set it"
            if settings.masters or settings.name_servers:
                what = "this is a folder for copies of several masters; open one of the copies"
            raise errors.SettingsError(what, key="rocketmq-ha.master")
        if settings.vouch == "flushed" and not settings.broker:
            what = "vouch = 'flushed' asks the master's broker port; give its HOST:PORT"
            raise errors.SettingsError(what, key="rocketmq-ha.broker")
        self.source = settings.master
        self._settings = settings
        self._context = context
        self._over = LockFreeEvent()
        tls = tls_context(settings, ssl.Purpose.SERVER_AUTH)
        self._dialer = Dialer(settings, self._over.is_set, tls)
        self._thread: Thread | None = None
        self._progress = MasterProgress()

    # --- as a replicator ---

    def start(self, log: ReplicatedLog) -> None:
        """Do nothing: :meth:`receive_into` starts the thread."""

    def submit(self, end_offset: int, wait: bool) -> Outcome:  # noqa: ARG002  # declared by Receiver
        """Refuse: a replica takes no puts."""
        return PutStatus.SERVICE_NOT_AVAILABLE

    def close(self) -> None:
        """Stop receiving."""
        self._over.set()
        if self._thread is not None:
            self._thread.join()

    # --- as a receiver ---

    def first_offset(self, segment_size_bytes: int) -> int:
        """Return the start offset of the master's log, or of its last segment.

        Raises :class:`~lakelog.errors.StoreError`.
        """
        try:
            offset = self._first_offset()
        except OSError as error:
            raise errors.StoreError(
                f"the master {self.source} cannot be asked where to begin: {error}; check host, "
                "port (haListenPort), and that it runs as ASYNC_MASTER or SYNC_MASTER"
            ) from error
        if offset % segment_size_bytes:
            raise errors.StoreError(
                f"the master {self.source} has a segment at {offset}, and here segments have "
                f"{segment_size_bytes} bytes; set segment_size_bytes to its mappedFileSizeCommitLog"
            )
        return offset

    def _first_offset(self) -> int:
        settings, dialer = self._settings, self._dialer
        has_all = settings.history == "all"
        if has_all and settings.broker:
            with suppress(remoting.BrokerRefused):
                return remoting.runtime_info(Address.parse(settings.broker)).minimum
        last = dialer.last_segment()
        if not has_all or not last:
            return last
        if dialer.has_bytes_at(len(_FIRST)):
            return 0
        _LOG.warning(
            "%s: the master has deleted the start of its log, so this replica begins at its "
            "last segment, %d; set rocketmq-ha.broker to begin at its first one",
            *(self.source, last),
        )
        return last

    def begin(self, commitlog: Path) -> None:
        """Store the master's name, and create the first segment of a new log.

        The caller must hold the store's exclusive lock. The log starts where one of the master's
        segments does, often not at 0. Raises :class:`~lakelog.errors.StoreError` and ``OSError``.
        """
        context, files, source = self._context, self._context.files, self.source
        state = read_replica(files, context.path)
        if state is None or state.source != source:
            if state is not None:
                _LOG.warning("%s: replica of %s, before of %s", context.path, source, state.source)
            cut = None if state is None else state.cut
            write_replica(files, context.path, ReplicaState(source, cut))
        files.make_dir(commitlog)
        if any(layout.is_segment_name(name) for name, _ in files.list(commitlog)):
            return
        size_bytes = context.core.segment_size_bytes
        path = commitlog / layout.segment_name(self.first_offset(size_bytes))
        with closing(files.open(path, write=True, create=True)) as file:
            file.truncate(size_bytes)
            file.sync()
        files.sync_dir(commitlog)

    def receive_into(self, log: ReplicaLog) -> None:
        """Start the receiving thread; raises :class:`~lakelog.errors.ThreadNotStarted`."""
        received = Receivable(log, self.source, self._context)
        thread = Thread(target=self._run, args=(received,), name="lakelog-replica", daemon=True)
        self._thread = started(thread)

    def _run(self, log: Receivable) -> None:
        """Receive; log why receiving ended, and fail the store if it was an error of ours."""
        with closing(ReplicaReporter(self._settings, self._context, self._progress)):
            try:
                self._receive(log)
            except (errors.ReplicaStopped, errors.StoreFailed) as error:
                self._progress.message = f"has stopped: {error}"
                is_said = isinstance(error, errors.ReplicaStopped)
                _LOG.critical("%s%s", error, "" if is_said else ": nothing more is received")
            except Exception as error:  # noqa: BLE001  # the thread ends, and its error is reported
                _LOG.critical("%s: the replica stops", self.source, exc_info=error)
                log.stop(f"receiving failed: {type(error).__name__}: {error}")
            self._progress.is_connected = False

    def _receive(self, log: Receivable) -> None:
        """Receive until the store is closed."""
        settings = self._settings
        with ExitStack() as stack:
            voucher = stack.enter_context(closing(make_voucher(settings)))
            if settings.broker:
                interval_s = settings.groups_interval_ms / 1000
                broker = Address.parse(settings.broker)
                copier = GroupCopier(broker, self._context, interval_s, log)
                stack.enter_context(closing(copier))
            while not self._over.is_set():
                self._once(log, voucher)
                self._over.wait(settings.reconnect_interval_ms / 1000)

    def _once(self, log: Receivable, voucher: Voucher) -> None:
        """Receive over one connection; return when it is lost."""
        try:
            try:
                Following(self._dialer, log, voucher, self._log_change).run(self._progress)
            except Differs as error:
                self._log_change(f"compares its log with that of {self.source}: {error}")
                self._compare(log)
        except (OSError, wire.WireError, errors.PutRefused) as error:
            self._progress.is_connected = False
            if not self._over.is_set():
                self._log_change(f"receives nothing from {self.source}: {error}")

    def _compare(self, log: Receivable) -> None:
        """Find out whether the logs differ; raises ``ReplicaStopped`` if they do."""
        search = DivergenceSearch(log, self._dialer, self._dialer.last_segment())
        offset = search.first_difference()
        if offset is None:
            self._log_change(f"has the same log as {self.source}")
        elif search.is_cleaned:
            raise log.stop(
                f"the log of {self.source} has its last segment at {search.last_segment}, and has "
                f"deleted what follows {log.appended}, where this copy ends; begin a new replica"
            )
        else:
            raise log.differs(offset)

    def _log_change(self, what: str) -> None:
        """Log a change of the state once."""
        if what != self._progress.message:
            self._progress.message = what
            _LOG.info("the replica %s", what)


@attrs.define(eq=False)
class Following:
    """One connection of a replica to its master."""

    _dialer: Dialer
    _log: Receivable
    _voucher: Voucher
    _log_change: Callable[[str], None]
    _rest: bytes = b""  # the start of a record, behind the end of the log
    _at: int = 0  # where the next frame must start
    _vouched_s: float = 0.0

    @property
    def _counts_synced(self) -> bool:
        settings = self._dialer.settings
        return settings.vouch == "received" and not settings.learner

    def run(self, progress: MasterProgress) -> None:
        """Receive until the store is closed.

        Raises ``OSError``, :class:`Differs`, :class:`~lakelog_replication.wire.WireError`, and the
        errors of :meth:`Receivable.receive`.
        """
        log, settings = self._log, self._dialer.settings
        asked = self._at = self._start()
        with closing(self._dialer.dial(asked)) as connection:
            self._voucher.connected(log.appended, connection.received_s)
            progress.is_connected = True
            while not self._dialer.is_over():
                try:
                    frames = connection.receive(self._patience_s())
                except ConnectionError as error:
                    if connection.has_answered or self._at >= log.appended:
                        raise
                    # A lakelog master closes a connection that asks for bytes beyond its log.
                    raise Differs(f"{error} when it was asked for {self._at}") from error
                if frames:
                    progress.note_frames(frames)
                    self._take(frames)
                    self._log_change(f"receives from {settings.master}")
                connection.report(asked if settings.learner else self._mark(asked))
                if self._at >= log.appended:
                    self._vouch(connection.received_s, is_quiet=not frames)

    def _start(self) -> int:
        """The offset to ask for: within the replica's log, if it has any bytes."""
        log = self._log
        if log.appended == log.minimum:
            self._rest = b"" if log.minimum else _FIRST
            return log.minimum or len(_FIRST)
        if log.last_record >= log.minimum:
            return max(log.last_record, len(_FIRST))
        last = log.appended - 1
        return max(log.minimum, last - last % log.segment_size_bytes, len(_FIRST))

    def _patience_s(self) -> float:
        if self._log.flushed >= self._log.appended:
            return _IDLE_S
        interval_s = self._dialer.settings.sync_interval_ms / 1000
        return min(_QUIET_S if self._counts_synced else _IDLE_S, interval_s)

    def _take(self, frames: list[wire.HaFrame]) -> None:
        """Compare the bytes that the replica already has, and append the rest."""
        log = self._log
        bodies: list[Body] = [self._rest]
        end = log.appended
        for frame in frames:
            if frame.offset != self._at:
                raise wire.WireError(f"a frame at {frame.offset}, where {self._at} was due")
            body = frame.body
            if self._at < end:
                if not len(body):
                    raise Differs(f"it has nothing at {self._at}, and {end} is the end here")
                self._check_same(body[: end - self._at])
                body = body[end - self._at :]
            bodies.append(body)
            self._at = frame.end_offset
        data = b"".join(bodies)
        taken = log.receive(data) if data else 0
        self._rest = data[taken:]

    def _check_same(self, body: memoryview) -> None:
        """Compare received bytes with those of the replica; raises :class:`Differs`."""
        at = self._at
        while len(body):
            mine = self._log.view(at, len(body))
            if mine != body[: len(mine)]:
                raise Differs(f"it has other bytes behind {at}")
            at += len(mine)
            body = body[len(mine) :]

    def _vouch(self, received_s: float, *, is_quiet: bool) -> None:
        """Sync the bytes that the master cannot lose, and store the durable end, at an interval.

        If the bytes are already synced, this is also done as soon as the master pauses.
        """
        log, now = self._log, time.monotonic()
        end = self._voucher.offset(log.appended, received_s)
        is_due = now - self._vouched_s >= self._dialer.settings.sync_interval_ms / 1000
        if end > log.flushed and (is_due or (is_quiet and self._counts_synced)):
            log.vouch(end)
            self._vouched_s = now

    def _mark(self, asked: int) -> int:
        """The offset to report: the synced end, or the written end if only the master syncs.

        No put waits until the durable end is stored: it only limits landing, and a power cut loses
        no synced byte.
        """
        log = self._log
        if self._at < log.appended:
            return asked
        if not self._counts_synced:
            return log.appended
        log.sync()
        return log.synced


class Differs(Exception):
    """The master has other bytes than the copy, or none."""


@attrs.define
class MasterProgress:
    """The latest state of the connection to the master.

    :ivar is_connected: whether there is a connection
    :ivar end: end offset of the master's log, if the last frame was a heartbeat; otherwise -1
    :ivar received_ms: time of the last frames, in ms since 1970; 0 before the first
    :ivar message: a text that describes the state of the replica
    """

    is_connected: bool = False
    end: int = -1
    received_ms: int = 0
    message: str = ""

    def note_frames(self, frames: Sequence[wire.HaFrame]) -> None:
        """Note frames that were received together; ``frames`` is not empty."""
        last = frames[-1]
        self.end = -1 if len(last.body) else last.offset
        self.received_ms = time.time_ns() // 1_000_000


class ReplicaReporter:
    """Writes the status in a thread, about once a second while something changes."""

    def __init__(self, settings: SlaveSettings, context: Context, progress: MasterProgress) -> None:
        """Start the thread; raises :class:`~lakelog.errors.ThreadNotStarted`."""
        self._source = settings.master
        self._broker = Address.parse(settings.broker) if settings.broker else None
        self._context = context
        self._progress = progress
        self._former: ReplicaStatus | None = None
        self._why = ""
        self._over = LockFreeEvent()
        self._thread = started(Thread(target=self._run, name="lakelog-replica-status", daemon=True))

    def close(self) -> None:
        """Write the last status, and stop."""
        self._over.set()
        self._thread.join()
        self._write(self._progress.end)

    def _run(self) -> None:
        while True:
            self._write(self._end())
            if self._over.wait(_INTERVAL_S):
                return

    def _end(self) -> int:
        if self._broker is not None:
            with suppress(remoting.BrokerRefused):
                return remoting.runtime_info(self._broker).end
        return self._progress.end

    def _write(self, end: int) -> None:
        progress, context = self._progress, self._context
        status = ReplicaStatus(
            pid=os.getpid(),
            source=self._source,
            time_ms=0,
            heard_ms=progress.received_ms,
            is_connected=progress.is_connected,
            master_end=end,
            says=progress.message,
        )
        if status == self._former:
            return
        try:
            status_now = attrs.evolve(status, time_ms=time.time_ns() // 1_000_000)
            write_status(context.files, context.path, status_now)
            self._former, self._why = status, ""
        except OSError as error:  # tried again after a second: a full disk may have room by then
            if str(error) != self._why:
                self._why = str(error)
                _LOG.warning(
                    "%s: the replication status cannot be written: %s", context.path, error
                )


# --- what is not in the master's log ---


class GroupCopier(remoting.BrokerPoll):
    """Copies consumer offsets and settings of the master to a replica, in a thread, at an interval.

    Offsets of groups that the master does not have stay unchanged. Offsets of groups and of delay
    levels are written once the replica has the log that the master had when it sent them: they may
    pass over messages with a copy at the end of that log.
    """

    def __init__(
        self, broker: Address, context: Context, interval_s: float, log: Receivable
    ) -> None:
        """Start the thread; raises :class:`~lakelog.errors.ThreadNotStarted`.

        :param broker: the master's address for clients
        :param log: the log of the replica
        """
        self._files, self._path, self._log = context.files, context.path, log
        self._table = OffsetTable(context.files, context.path, self._sync)
        self._known: tables.Offsets = {}
        self._waiting: dict[Callable[[], object], tuple[int, Callable[[], object]]] = {}
        super().__init__(broker, interval_s, "lakelog-replica-groups", "groups and topics: ")

    def ask(self) -> None:
        """Copy all; what is refused, or cannot be written, stops nothing else."""
        failure: errors.LakelogError | None = None
        settings = partial(copy_configs, self._broker, self._files, self._path)
        steps = partial(self._copy, self._offsets), partial(self._copy, self._delays), settings
        for step in steps:
            try:
                step()
            except errors.LakelogError as error:
                failure = error
        if failure is not None:
            raise failure

    def _copy(self, ask: Callable[[], Callable[[], object] | None]) -> None:
        """Ask for progress, and write it once the replica has the log that the master has then."""
        if ask not in self._waiting:
            write = ask()
            if write is None:
                return
            self._waiting[ask] = remoting.runtime_info(self._broker).end, write
        end, write = self._waiting[ask]
        if self._log.appended >= end:
            write()
            del self._waiting[ask]

    def _offsets(self) -> Callable[[], object] | None:
        found = consumer_offsets(self._broker)
        changed = {name for name, offsets in found.items() if offsets != self._known.get(name)}
        splits = {name: split for name in changed if (split := tables.split_name(name))}
        commits = [(group, topic, found[name]) for name, (topic, group) in splits.items()]

        def write() -> None:
            self._table.commit_all(commits, as_broker=True)
            self._known = found

        return write if commits else None

    def _delays(self) -> Callable[[], object] | None:
        code, table = remoting.GET_ALL_DELAY_OFFSET, tables.DELAY_OFFSETS
        content = _asked(self._broker, code, table)
        if not content or content == _there(self._files, self._path, table):
            return None

        def write() -> None:
            self._log.sync_all()
            _replace(self._files, self._path, table, content)

        return write

    def _sync(self) -> bool:
        self._log.sync_all()
        return True


def consumer_offsets(broker: Address) -> tables.Offsets:
    """The next queue offset to consume, by ``TOPIC@GROUP`` and queue id (request 43).

    Raises :class:`~lakelog_replication.remoting.BrokerRefused`.
    """
    body = remoting.call(broker, remoting.GET_ALL_CONSUMER_OFFSET).body
    try:
        return tables.OFFSETS.read(parse_object(body))
    except ValueError as error:
        raise remoting.BrokerRefused(
            f"{broker} answers with no consumer offsets: {error}"
        ) from None


_CONFIGS: Final[Sequence[tuple[int, tables.Table[Any]]]] = (
    (remoting.GET_ALL_TOPIC_CONFIG, tables.TOPICS),
    (remoting.GET_ALL_SUBSCRIPTION_GROUPS, tables.GROUPS),
)
"""The code of the request for a table that the response must have."""


def copy_configs(broker: Address, files: FileSystem, path: Path) -> None:
    """Replace the files of the store directory ``path`` that differ from the master's.

    A response with invalid content changes nothing, and the other files are still copied.

    :param broker: the master's address for clients

    Raises :class:`~lakelog_replication.remoting.BrokerRefused`, and
    :class:`~lakelog.errors.StoreError` if a file cannot be written.
    """
    refused: remoting.BrokerRefused | None = None
    for code, table in _CONFIGS:
        try:
            content = _asked(broker, code, table)
            if content and content != _there(files, path, table):
                _replace(files, path, table, content)
        except remoting.BrokerRefused as error:
            refused = error
    if refused is not None:
        raise refused


def _replace(
    files: FileSystem, path: Path, table: tables.Table[Any], content: Mapping[str, Any]
) -> None:
    target = path / layout.CONFIG_DIR / table.file
    try:
        tables.save_config(files, target, content)
    except OSError as error:
        raise errors.StoreError(f"it cannot be written: {error}", path=target) from error


def _asked(broker: Address, code: int, table: tables.Table[Any]) -> dict[str, Any]:
    """The content of the master's file; empty if the master has no such file yet.

    Entries that cannot be read are copied as they are.
    """
    body = remoting.call(broker, code).body
    if not body:
        return {}
    try:
        found = parse_object(body)
        # The other keys of the response are not in the broker's own file.
        keys = (table.name, "forbiddenTable", "dataVersion")
        content = {key: found[key] for key in keys if found.get(key) is not None}
        if table.name not in content:
            raise ValueError(f"it has no {table.name}")
        table.read(content)
    except ValueError as error:
        raise remoting.BrokerRefused(f"{broker} answers with no {table.file}: {error}") from None
    return content


def _there(files: FileSystem, path: Path, table: tables.Table[Any]) -> dict[str, Any]:
    """The content of the replica's file; empty if it is damaged, so that it is replaced."""
    try:
        return tables.load_config(files, path / layout.CONFIG_DIR / table.file, table.read).content
    except errors.LakelogError:
        return {}
