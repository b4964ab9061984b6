"""Committed offsets of all groups, in ``config/consumerOffset.json``, shared by all processes.

Each write first reads the file again if another process has replaced it, and changes only offsets
committed here since the last write. So no process overwrites another's offsets. A lock on a byte of
``lock`` is held meanwhile. A commit returns when its offsets are durable. Commits during a write
share the next one.

Before a write, the log is made durable: no durable offset may count messages, or pass over
messages with a copy in a retry topic, that a power cut can take away.

Names of groups and topics are those that RocketMQ accepts; source: RocketMQ 5.3.3, ``Validators``
and ``TopicValidator``.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

import attrs

from lakelog.arguments import listed, text, whole, wrong_type
from lakelog.errors import IllegalMessage, SettingsError, StoreClosed, StoreError, StoreReadOnly
from lakelog.files.filesystem import FileSystem, identity_at
from lakelog.format.encoder import encode_topic
from lakelog.format.layout import CONFIG_DIR
from lakelog.runtime.locks import Mutex
from lakelog_queues.configs import config_lock
from lakelog_rocketmq import config

Commit: TypeAlias = tuple[str, str, Mapping[int, int]]
"""Group, topic, and the next offset of some queues."""
MAX_GROUP_CHARACTERS: Final = 255
MAX_TOPIC_CHARACTERS: Final = 127
_NAME: Final = re.compile(r"[%|a-zA-Z0-9_-]+")
_MOST_QUEUE: Final = (1 << 31) - 1
_MOST_OFFSET: Final = (1 << 63) - 1


_Changes: TypeAlias = dict[str, dict[int, int | None]]
"""Next offsets to write, by ``TOPIC@GROUP`` and queue id; ``None`` removes one."""


class _State(NamedTuple):
    """The content of the file.

    :ivar identity: identifies this version of the file
    """

    offsets: config.Offsets
    content: Mapping[str, Any]
    identity: object


class OffsetTable:
    """All committed offsets of a store; thread-safe.

    The file is read again at each use if it was replaced.
    """

    def __init__(
        self, files: FileSystem, path: Path, sync: Callable[[], bool] | None = None
    ) -> None:
        """Create the table; touches no file yet.

        :param path: the store directory
        :param sync: makes the log durable as it is at the call, and returns whether it could; see
            ``Appender.sync``. ``None`` in a store that is open for reading, which refuses commits
        """
        self._files = files
        self._path = path
        self._sync = sync
        self._loaded: _State | None = None
        self._pending: _Changes = {}
        self._changes = 0
        self._written = 0
        self._closed = False
        self._lock = Mutex()
        self._writing = Mutex()

    @property
    def read_only(self) -> bool:
        """Whether commits are refused."""
        return self._sync is None

    # --- reading ---

    def committed(self, group: str, topic: str) -> dict[int, int]:
        """The committed next offset of ``group``, by queue id; raises ``CorruptConfig``."""
        name = offsets_name(topic, group)
        with self._lock:
            return _served(self._merged().get(name, {}))

    def groups(self, *, stored: bool = False) -> dict[str, dict[str, dict[int, int]]]:
        """The next offset to read, by group, topic and queue id.

        :param stored: without commits of this process that are not in the file
        """
        found: dict[str, dict[str, dict[int, int]]] = {}
        with self._lock:
            offsets = self._state().offsets if stored else self._merged()
            for name, table in offsets.items():
                split = config.split_name(name)
                if split is not None and (served := _served(table)):
                    found.setdefault(split[1], {})[split[0]] = served
        return found

    # --- committing ---

    def commit(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        """Commit the next offset of some queues.

        Raises ``StoreReadOnly``, ``StoreClosed`` and ``CorruptConfig``. Raises ``StoreError`` if
        the file cannot be written; the offsets then stay in memory for the next attempt.
        """
        self.commit_all([(group, topic, offsets)])

    def commit_all(self, commits: Iterable[Commit], *, as_broker: bool = False) -> None:
        """Write several commits at once, all or none of them; raises like :meth:`commit`.

        :param as_broker: keep what RocketMQ's brokers accept from any client: names of groups that
            its own clients refuse, and negative offsets, which stand for none
        """
        named = _named(commits, as_broker=as_broker)
        with self._lock:
            self._check_open()
            self._state()  # fail before changing anything if the file cannot be read
            for name, offsets in named:
                self._pending.setdefault(name, {}).update(offsets)
            change = self._changed()
        self._write(change)

    def commit_or_drop(self, commits: Iterable[Commit]) -> None:
        """As :meth:`commit_all`; after an error or another exception nothing is left to be written.

        For those who compare offsets before they commit: a later write of what they compared with
        older offsets would set back what others have committed meanwhile.
        """
        changes: _Changes = {name: dict(offsets) for name, offsets in _named(commits)}
        with self._lock:
            self._check_open()
        self._check_not_in_write()
        with self._writing:
            self._save(changes)

    def forget(self, group: str, topic: str | None = None) -> None:
        """Remove the committed offsets of ``group``, for one topic or for all."""
        with self._lock:
            self._check_open()
            for name, table in self._merged().items():
                split = config.split_name(name)
                if split is not None and split[1] == group and topic in (None, split[0]):
                    self._pending[name] = dict.fromkeys(table)
            change = self._changed()
        self._write(change)

    def flush(self) -> None:
        """Write pending commits."""
        with self._lock:
            change = self._changes
        self._write(change)

    def close(self) -> None:
        """Write pending commits; later commits raise ``StoreClosed``."""
        with self._lock:
            self._closed = True
        self.flush()

    def _check_open(self) -> None:
        if self._sync is None:
            raise StoreReadOnly(
                "offsets cannot be committed in a store that is open for reading; open it with "
                "mode='write'",
                path=self._path,
            )
        if self._closed:
            raise StoreClosed("the store is closed", path=self._path)

    def _state(self) -> _State:
        """The current content of the file."""
        identity = self._identity()
        if self._loaded is None or self._loaded.identity != identity:
            loaded = config.load_offsets(self._files, self._path)
            self._loaded = _State(loaded.value, loaded.content, identity)
        return self._loaded

    def _identity(self) -> object:
        return identity_at(self._path / CONFIG_DIR / config.CONSUMER_OFFSETS_FILE)

    def _merged(self) -> config.Offsets:
        """The file's content with the pending commits applied."""
        return _with_changes(self._state().offsets, self._pending)

    def _changed(self) -> int:
        self._changes += 1
        return self._changes

    # --- writing ---

    def _write(self, change: int) -> None:
        """Return once a write that began after ``change`` is durable."""
        self._check_not_in_write()
        with self._writing:
            if self._written >= change:
                return
            # Pending commits stay until they are written: an error or a signal handler's exception
            # at any place leaves them to the next write.
            with self._lock:
                reached = self._changes
                changes = {name: dict(each) for name, each in list(self._pending.items())}
            self._save(changes)
            with self._lock:
                self._drop(changes)
                self._written = reached

    def _check_not_in_write(self) -> None:
        if self._writing.is_mine():
            raise StoreError(
                "this signal handler interrupted a commit of its own thread, which it cannot wait "
                "for; commit again after it",
                path=self._path,
            )

    def _save(self, changes: _Changes) -> None:
        """Write changes into the file as it is now, once the log before them is durable."""
        try:
            self._check_durable()
            with config_lock(self._files, self._path):
                self._replace(changes)
        except OSError as error:
            raise StoreError(
                f"consumer offsets could not be written ({error}); check permissions and free "
                "space, then commit again",
                path=error.filename or self._path,
            ) from error

    def _check_durable(self) -> None:
        if self._sync is not None and not self._sync():
            raise StoreError(
                "this signal handler interrupted a sync of its own thread, so that the messages "
                "before the offsets are not durable; commit again after it",
                path=self._path,
            )

    def _replace(self, changes: _Changes) -> None:
        with self._lock:
            former = self._state()
        offsets, now_ms = _with_changes(former.offsets, changes), time.time_ns() // 1_000_000
        content = config.save_offsets(self._files, self._path, former.content, offsets, now_ms)
        with self._lock:
            self._loaded = _State(offsets, content, self._identity())

    def _drop(self, written: _Changes) -> None:
        """Forget the pending commits that were written, except of queues committed again since."""
        for name, changes in written.items():
            pending = self._pending.get(name, {})
            for queue, offset in changes.items():
                if pending.get(queue, offset) == offset:
                    pending.pop(queue, None)
            if not pending:
                self._pending.pop(name, None)


def _named(
    commits: Iterable[Commit], *, as_broker: bool = False
) -> list[tuple[str, Mapping[int, int]]]:
    """The key in the table, and the offsets, of each commit; raises for wrong ones."""
    wanted = "a list of (group, topic, {queue_id: offset})"
    tables = listed("commits", commits, wanted)
    if not all(isinstance(each, Sequence) and len(each) == 3 for each in tables):
        raise wrong_type("commits", tables, wanted)
    return [
        (f"{topic}{config.SEPARATOR}{group}", offsets)
        if as_broker
        else (_checked(group, topic, offsets), offsets)
        for group, topic, offsets in tables
    ]


def _served(table: Mapping[int, int]) -> dict[int, int]:
    """The offsets without negative ones, which stand for none, as in RocketMQ."""
    return {queue: offset for queue, offset in table.items() if offset >= 0}


def _with_changes(offsets: config.Offsets, changes: _Changes) -> config.Offsets:
    """A copy of ``offsets`` with the changes applied; tables that become empty are left out."""
    found = {name: dict(table) for name, table in offsets.items()}
    for name, changed in list(changes.items()):
        table = {**found.get(name, {}), **changed}
        found[name] = {queue: at for queue, at in table.items() if at is not None}
        if not found[name]:
            del found[name]
    return found


def _checked(group: str, topic: str, offsets: Mapping[int, int]) -> str:
    """The key in the table; raises ``StoreError`` or ``SettingsError`` for invalid values."""
    name = offsets_name(topic, group)
    if not isinstance(offsets, Mapping):
        raise wrong_type("offsets", offsets, "the next queue offset by queue id, such as {0: 5}")
    try:
        encode_topic(topic)
    except IllegalMessage as error:
        raise SettingsError(str(error), key="topic") from None
    for queue, offset in offsets.items():
        whole("queue_id", queue, None)
        whole("offset", offset, None)
        if not (0 <= queue <= _MOST_QUEUE and 0 <= offset <= _MOST_OFFSET):
            raise StoreError(f"queue {queue} cannot have offset {offset}; it is out of range")
    return name


@attrs.frozen
class CurrentOffsets:
    """The offsets of a store whose role may change under its consumers.

    :param now: returns the current role's offsets; raises if the store is closed
    :param last: the same, without raising
    """

    _now: Callable[[], OffsetTable]
    _last: Callable[[], OffsetTable]

    @property
    def read_only(self) -> bool:
        """Whether commits are refused."""
        return self._last().read_only

    def committed(self, group: str, topic: str) -> dict[int, int]:
        """The committed next offset of each queue for ``group``."""
        return self._now().committed(group, topic)

    def stored(self, group: str) -> dict[str, dict[int, int]]:
        """The offsets of a group that are in the file, by topic and queue id."""
        return self._now().groups(stored=True).get(group, {})

    def commit_all(self, commits: Iterable[Commit]) -> None:
        """Make several commits in one write."""
        self._now().commit_all(commits)

    def commit_or_drop(self, commits: Iterable[Commit]) -> None:
        """As :meth:`commit_all`; after an exception nothing is left to be written."""
        self._now().commit_or_drop(commits)


def check_group(group: str, name: str = "group") -> str:
    """The name of a group, if RocketMQ accepts it; raises ``SettingsError``.

    :param name: the argument, for the error
    """
    if not isinstance(group, str):
        raise wrong_type(name, group, "a str such as 'billing'")
    if not _NAME.fullmatch(group):
        raise SettingsError(
            f"a consumer group's name may contain a-z A-Z 0-9 _ - | % only, but is {group!r}",
            key=name,
        )
    if len(group) > MAX_GROUP_CHARACTERS:
        raise SettingsError(
            f"a consumer group's name has at most {MAX_GROUP_CHARACTERS} characters, "
            f"not {len(group)}",
            key=name,
        )
    return group


def check_topic(topic: str) -> str:
    """The name of a topic, if RocketMQ's clients accept it; raises ``SettingsError``."""
    if not _NAME.fullmatch(topic) or len(topic) > MAX_TOPIC_CHARACTERS:
        raise SettingsError(
            f"a topic's name has 1 to {MAX_TOPIC_CHARACTERS} characters of a-z A-Z 0-9 _ - | %, "
            f"but is {topic!r}",
            key="topic",
        )
    return topic


def offsets_name(topic: str, group: str) -> str:
    """The key of a topic and group in RocketMQ's table; raises ``SettingsError``."""
    if not topic or config.SEPARATOR in text("topic", topic, "orders"):
        raise SettingsError(
            f"offsets cannot be kept for topic {topic!r}: RocketMQ joins topic and group by "
            f"{config.SEPARATOR!r}",
            key="topic",
        )
    return f"{topic}{config.SEPARATOR}{check_group(group)}"
