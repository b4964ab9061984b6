"""The state of a group in ``lakelog/groups.sqlite``: members, progress in each queue, hand-outs.

With a write-ahead log and ``synchronous = NORMAL`` a kill loses nothing, and a power cut only the
newest transactions (sqlite.org/pragma.html). Each method of :class:`GroupState` is one transaction.
Times are in ms since 1970.

The state is compared with the group's committed offsets. Offsets that a member writes are noted as
intended before, so that after a kill between the write and the second note they do not look like
those of another program.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from sqlite3 import Cursor
from typing import Any, Final, TypeAlias

import attrs

from lakelog.errors import SettingsError, StoreClosed, StoreError
from lakelog.files.filesystem import FileSystem
from lakelog.format.layout import OWN_DIR
from lakelog.format.queue_offsets import Queue
from lakelog.message import StoredMessage
from lakelog.runtime.locks import Mutex
from lakelog_queues.consumers.offsettable import CurrentOffsets
from lakelog_queues.groups.members import MemberLocks
from lakelog_queues.groups.set_aside import RETRY_TOPIC

DATABASE_FILE: Final = "groups.sqlite"
_VERSION: Final = 1
_WAIT_S: Final = 60.0
"""Longest wait for transactions of other members."""
_SCHEMA: Final = (
    "CREATE TABLE home (inode INTEGER NOT NULL)",
    "CREATE TABLE members (number INTEGER PRIMARY KEY AUTOINCREMENT, scope TEXT NOT NULL, "
    "subscription TEXT NOT NULL, seen_ms INTEGER NOT NULL)",
    "CREATE TABLE queues (scope TEXT, topic TEXT, queue INTEGER, next INTEGER NOT NULL, "
    "stored INTEGER, intended INTEGER, PRIMARY KEY (scope, topic, queue)) WITHOUT ROWID",
    "CREATE TABLE handed (scope TEXT, topic TEXT, queue INTEGER, offset INTEGER, "
    "member INTEGER NOT NULL, lease INTEGER NOT NULL, attempt INTEGER NOT NULL, "
    "visible_ms INTEGER NOT NULL, returned INTEGER NOT NULL, "
    "PRIMARY KEY (scope, topic, queue, offset)) WITHOUT ROWID",
    "CREATE INDEX handed_visible ON handed (scope, visible_ms)",
)
_log = logging.getLogger("lakelog")
_creating = Mutex()
_FORKED: Final[list[sqlite3.Connection]] = []
"""Connections of the parent in a forked child, which must not even be closed there."""
_THIS = "scope = ? AND topic = ? AND queue = ?"


def _connect(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(path, timeout=_WAIT_S, isolation_level=None, check_same_thread=False)


def _version(connection: sqlite3.Connection) -> int:
    (found,) = connection.execute("PRAGMA user_version").fetchone()
    return int(found)


def _inode(path: Path) -> int:
    return path.stat().st_ino


class GroupDatabase:
    """One connection; thread-safe."""

    def __init__(self, files: FileSystem, path: Path, locks: MemberLocks) -> None:
        """Open the database of the store directory ``path``, or create it.

        Raises :class:`~lakelog.errors.StoreError` for a file that is no such database.
        """
        self.path = path / OWN_DIR / DATABASE_FILE
        self._lock = Mutex()
        self._closed = False
        with locks.process_lock, self._failing():
            with _creating:
                self._create(files)
            self._connection = _connect(self.path)
            try:
                self._prepare()
            except BaseException:  # Ctrl-C too
                self._connection.close()
                raise

    def _create(self, files: FileSystem) -> None:
        """Create an empty file, also in place of a copy.

        A copy of a file in use may lack a part of its transactions, so that messages would be lost.
        """
        if self.path.exists():
            with closing(_connect(self.path)) as connection:
                is_known = _version(connection) == _VERSION
                homes = connection.execute("SELECT inode FROM home") if is_known else ()
                is_copy = any(home != _inode(self.path) for (home,) in homes)
            if not is_copy:
                return
            _log.warning("%s: it is a copy; groups continue at their committed offsets", self.path)
            for suffix in ("-wal", "-shm", ""):
                with suppress(FileNotFoundError):
                    files.unlink(self.path.with_name(self.path.name + suffix))
        # Not if it exists: closing a descriptor drops the locks of SQLite in this process.
        files.open(self.path, write=True, create=True).close()

    def _prepare(self) -> None:
        run, version = self._connection.execute, _version(self._connection)
        if version not in (0, _VERSION):
            raise StoreError(
                f"it has version {version} and this lakelog knows {_VERSION}; use the lakelog that "
                "wrote it",
                path=self.path,
            )
        run("PRAGMA journal_mode = WAL")
        run("PRAGMA synchronous = NORMAL")
        if not version:
            run("BEGIN IMMEDIATE")
            for statement in _SCHEMA:
                run(statement)
            run("INSERT INTO home VALUES (?)", (_inode(self.path),))
            run(f"PRAGMA user_version = {_VERSION}")
            run("COMMIT")

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Cursor]:
        """Read and write; all or nothing."""
        with self._using() as cursor:
            cursor.execute("BEGIN IMMEDIATE")
            try:
                yield cursor
                cursor.execute("COMMIT")
            except BaseException:  # Ctrl-C too
                if self._connection.in_transaction:
                    cursor.execute("ROLLBACK")
                raise

    def rows(self, statement: str, arguments: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        """The rows of one SELECT."""
        with self._using() as cursor:
            return cursor.execute(statement, arguments).fetchall()

    @contextmanager
    def _using(self) -> Iterator[sqlite3.Cursor]:
        with self._lock:
            if self._closed:
                raise StoreClosed("the consumer is closed", path=self.path)
            with self._failing(), closing(self._connection.cursor()) as cursor:
                yield cursor

    @contextmanager
    def _failing(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise StoreError(
                f"the state of consumer groups cannot be used ({error}); check permissions and "
                "free space. If the file is damaged, delete it while no consumer is open: groups "
                "then continue at their committed offsets",
                path=self.path,
            ) from error

    def close(self) -> None:
        """Close the connection; a second call does nothing."""
        with self._lock:
            if not self._closed:
                self._closed = True
                self._connection.close()

    def forked(self) -> None:
        """Give up the parent's connection in a forked child; other threads' locks may be held."""
        if not self._closed:
            self._closed = True
            _FORKED.append(self._connection)
        self._lock = Mutex()


@attrs.frozen
class QueueProgress:
    """The progress of a group in one queue.

    :ivar next_offset: the first queue offset that was never handed out
    :ivar is_out: whether any of its messages is handed out, or waits for another hand-out
    """

    next_offset: int
    is_out: bool


@attrs.frozen
class Lease:
    """The right to handle messages for a time.

    :ivar number: identifies one hand-out
    :ivar member: the number of the member
    :ivar taken_ms: its start
    :ivar visible_ms: its end
    """

    number: int
    member: int
    taken_ms: int
    visible_ms: int


@attrs.frozen
class Claim:
    """A message whose invisible time was over, and that is handed out again.

    :ivar attempt: number of hand-outs from this queue, this one included
    :ivar returned: whether its last holder returned it
    """

    queue: Queue
    offset: int
    attempt: int
    returned: bool


@attrs.frozen
class FreshMessages:
    """Messages read from a queue, to be handed out.

    :ivar start: the offset from which they were read
    :ivar next_offset: where reading continues
    :ivar offsets: the queue offset of each message
    """

    queue: Queue
    start: int
    next_offset: int
    offsets: Sequence[int]


Handle: TypeAlias = tuple[str, int, int, int]
"""Topic, queue id, queue offset and lease of a message that was handed out."""


@attrs.frozen
class Delivery:
    """A message that was handed out; give it to ``ack``, ``nack`` or ``renew``.

    :ivar topic: the topic of the queue, also for a light queue or the retry topic
    :ivar queue_offset: the offset in that queue
    :ivar attempt: number of hand-outs of the message to this group, from 1
    :ivar taken_ms: time of the hand-out, in ms since 1970
    :ivar visible_ms: time in ms since 1970 at which it is handed out again, unless acknowledged or
        renewed
    """

    message: StoredMessage
    topic: str
    queue_id: int
    queue_offset: int
    attempt: int
    taken_ms: int
    visible_ms: int
    lease: int = attrs.field(repr=False)

    @property
    def origin_topic(self) -> str:
        """The topic to which the message was put, also if it comes from the retry topic."""
        return self.message.properties.get(RETRY_TOPIC) or self.topic

    @property
    def handle(self) -> Handle:
        """Identifies the message and this hand-out."""
        return self.topic, self.queue_id, self.queue_offset, self.lease


class GroupState:
    """The state of one group, or of one broadcasting consumer; thread-safe.

    :param scope: its name in the database
    """

    def __init__(self, database: GroupDatabase, scope: str) -> None:
        self._database = database
        self._scope = scope

    # --- members ---

    def join(self, locks: MemberLocks, subscription: str, now_ms: int, *, is_alone: bool) -> int:
        """Add a member and lock its byte; return its number.

        :param is_alone: whether it tolerates no other living member

        Raises :class:`~lakelog.errors.SettingsError` if a living member has another subscription.
        """
        with self._database.transaction() as cursor:
            query = "SELECT number, subscription FROM members WHERE scope = ?"
            for number, other in cursor.execute(query, (self._scope,)).fetchall():
                if (is_alone or other != subscription) and locks.is_taken(number):
                    raise _refused(self._scope, number, other, subscription, is_alone=is_alone)
            while True:
                cursor.execute(
                    "INSERT INTO members (scope, subscription, seen_ms) VALUES (?, ?, ?)",
                    (self._scope, subscription, now_ms),
                )
                added = int(cursor.lastrowid or 0)
                if locks.take(added):  # before others see the row
                    return added

    def members(self, number: int, locks: MemberLocks, now_ms: int, idle_ms: int) -> list[int]:
        """Note that ``number`` is active, remove dead members, and return the active ones."""
        with self._database.transaction() as cursor:
            cursor.execute("UPDATE members SET seen_ms = ? WHERE number = ?", (now_ms, number))
            query = "SELECT number, seen_ms FROM members WHERE scope = ?"
            found = dict(cursor.execute(query, (self._scope,)).fetchall())
            dead = [each for each in found if each != number and not locks.is_taken(each)]
            cursor.executemany("DELETE FROM members WHERE number = ?", [(each,) for each in dead])
        return [each for each in found if each not in dead and found[each] >= now_ms - idle_ms]

    def leave(self, number: int, now_ms: int) -> None:
        """Remove a member; its messages are visible at once."""
        with self._database.transaction() as cursor:
            cursor.execute(
                "UPDATE handed SET visible_ms = ?, lease = 0 WHERE scope = ? AND member = ? "
                "AND lease != 0",
                (now_ms, self._scope, number),
            )
            cursor.execute("DELETE FROM members WHERE number = ?", (number,))

    # --- queues ---

    def add_queues(self, queues: Iterable[tuple[Queue, int, int | None]]) -> None:
        """Add queues that are not known yet: the next offset, and the committed one of each."""
        rows = [(self._scope, *queue, at, stored, stored) for queue, at, stored in queues]
        with self._database.transaction() as cursor:
            cursor.executemany("INSERT OR IGNORE INTO queues VALUES (?, ?, ?, ?, ?, ?)", rows)

    def progress(self) -> dict[Queue, QueueProgress]:
        """The progress in each queue."""
        query = (
            "SELECT topic, queue, next, EXISTS (SELECT 1 FROM handed AS h WHERE h.scope = q.scope "
            "AND h.topic = q.topic AND h.queue = q.queue) FROM queues AS q WHERE scope = ?"
        )
        rows = self._database.rows(query, (self._scope,))
        return {(topic, queue): QueueProgress(at, bool(out)) for topic, queue, at, out in rows}

    def take(self, fresh: Sequence[FreshMessages], lease: Lease, *, orderly: bool) -> list[bool]:
        """Hand out messages; returns for each of ``fresh`` whether they were handed out.

        ``False`` if another member moved the offset meanwhile, and with ``orderly`` also if any
        message of the queue is handed out already.
        """
        with self._database.transaction() as cursor:
            return [self._take(cursor, each, lease, orderly=orderly) for each in fresh]

    def _take(self, cursor: Cursor, fresh: FreshMessages, lease: Lease, *, orderly: bool) -> bool:
        this = (self._scope, *fresh.queue)
        if orderly and cursor.execute(f"SELECT 1 FROM handed WHERE {_THIS}", this).fetchone():
            return False
        cursor.execute(
            f"UPDATE queues SET next = ? WHERE {_THIS} AND next = ?",
            (fresh.next_offset, *this, fresh.start),
        )
        if cursor.rowcount != 1:
            return False
        cursor.executemany(
            "INSERT OR REPLACE INTO handed VALUES (?, ?, ?, ?, ?, ?, 1, ?, 0)",
            [(*this, at, lease.member, lease.number, lease.visible_ms) for at in fresh.offsets],
        )
        return True

    # --- messages that are handed out ---

    def claim(
        self, queues: Collection[Queue], most: int, lease: Lease, *, orderly: bool
    ) -> list[Claim]:
        """Hand out messages of ``queues`` whose invisible time is over, in their order."""
        query = (
            "SELECT topic, queue, offset, attempt, returned FROM handed AS h "
            "WHERE scope = ? AND visible_ms <= ?"
        )
        arguments = [self._scope, lease.taken_ms]
        if orderly:  # only queues of which no message is handed out
            query += (
                " AND NOT EXISTS (SELECT 1 FROM handed AS o WHERE o.scope = h.scope AND o.topic = "
                "h.topic AND o.queue = h.queue AND o.visible_ms > ?)"
            )
            arguments.append(lease.taken_ms)
        query += " ORDER BY topic, queue, offset"
        if not any(row[:2] in queues for row in self._database.rows(query, tuple(arguments))):
            return []
        with self._database.transaction() as cursor:
            due = (
                Claim((topic, queue), offset, attempt + 1, bool(returned))
                for topic, queue, offset, attempt, returned in cursor.execute(query, arguments)
                if (topic, queue) in queues
            )
            claims = [each for each, _ in zip(due, range(most), strict=False)]
            for each in claims:
                values = lease.member, lease.number, each.attempt, lease.visible_ms
                cursor.execute(
                    "UPDATE handed SET member = ?, lease = ?, attempt = ?, visible_ms = ?, "
                    f"returned = 0 WHERE {_THIS} AND offset = ?",
                    (*values, self._scope, *each.queue, each.offset),
                )
        return claims

    def postpone(self, claim: Claim, lease: Lease) -> None:
        """Undo a claim; the message is visible again at the end of the lease."""
        with self._database.transaction() as cursor:
            cursor.execute(
                "UPDATE handed SET lease = 0, attempt = attempt - 1, returned = ? "
                f"WHERE {_THIS} AND offset = ? AND lease = ?",
                (claim.returned, self._scope, *claim.queue, claim.offset, lease.number),
            )

    def remove(self, handles: Sequence[Handle]) -> list[bool]:
        """Acknowledge; returns for each whether it was still handed out by that lease."""
        return self._each(f"DELETE FROM handed WHERE {_THIS} AND offset = ? AND lease = ?", handles)

    def renew(self, handles: Sequence[Handle], visible_ms: int) -> list[bool]:
        """Move the end of the invisible time; returns as :meth:`remove`."""
        statement = f"UPDATE handed SET visible_ms = ? WHERE {_THIS} AND offset = ? AND lease = ?"
        return self._each(statement, handles, visible_ms)

    def give_back(self, handle: Handle, visible_ms: int, *, orderly: bool) -> bool:
        """Return a message that failed; it is visible at ``visible_ms``.

        With ``orderly`` the later messages of its queue are returned too, as if never handed out.
        """
        topic, queue, offset, lease = handle
        this = (self._scope, topic, queue, offset)
        with self._database.transaction() as cursor:
            cursor.execute(
                f"UPDATE handed SET visible_ms = ?, lease = 0, returned = 1 WHERE {_THIS} "
                "AND offset = ? AND lease = ?",
                (visible_ms, *this, lease),
            )
            done = cursor.rowcount == 1
            if done and orderly:
                cursor.execute(
                    "UPDATE handed SET visible_ms = ?, lease = 0, attempt = attempt - 1 "
                    f"WHERE {_THIS} AND offset > ?",
                    (visible_ms, *this),
                )
        return done

    def _each(self, statement: str, handles: Sequence[Handle], *first: int) -> list[bool]:
        with self._database.transaction() as cursor:
            return [
                cursor.execute(statement, (*first, self._scope, *each)).rowcount == 1
                for each in handles
            ]

    def next_due_ms(self, now_ms: int) -> int | None:
        """The next time after ``now_ms`` at which a message is visible again; ``None`` without."""
        query = "SELECT MIN(visible_ms) FROM handed WHERE scope = ? AND visible_ms > ?"
        ((found,),) = self._database.rows(query, (self._scope, now_ms))
        return None if found is None else int(found)

    # --- committed offsets; the caller has the turn of the locks ---

    def intend(self) -> dict[Queue, int]:
        """The offsets to commit that are not committed yet, noted as intended."""
        query = (
            "SELECT topic, queue, stored, COALESCE((SELECT MIN(offset) FROM handed AS h WHERE "
            "h.scope = q.scope AND h.topic = q.topic AND h.queue = q.queue), next) "
            "FROM queues AS q WHERE scope = ?"
        )
        with self._database.transaction() as cursor:
            rows = cursor.execute(query, (self._scope,)).fetchall()
            found = {(topic, queue): at for topic, queue, stored, at in rows if at != stored}
            cursor.executemany(
                f"UPDATE queues SET intended = ? WHERE {_THIS}",
                [(at, self._scope, *queue) for queue, at in found.items()],
            )
        return found

    def stored(self, offsets: Mapping[Queue, int]) -> None:
        """Note that ``offsets`` are in the file."""
        with self._database.transaction() as cursor:
            cursor.executemany(
                f"UPDATE queues SET stored = ? WHERE {_THIS}",
                [(at, self._scope, *queue) for queue, at in offsets.items()],
            )

    def foreign(self, file: Mapping[Queue, int]) -> dict[Queue, int | None]:
        """Queues whose offset in the file no member of this group wrote, and that offset.

        ``None``: an offset that a member wrote was removed.
        """
        query = "SELECT topic, queue, stored, intended FROM queues WHERE scope = ?"
        found: dict[Queue, int | None] = {}
        for topic, queue, stored, intended in self._database.rows(query, (self._scope,)):
            at = file.get((topic, queue))
            if at not in (stored, intended):
                found[topic, queue] = at
        return found

    def restart(self, queues: Mapping[Queue, int | None]) -> None:
        """Continue ``queues`` at these offsets; forget a queue without one."""
        with self._database.transaction() as cursor:
            for queue, at in queues.items():
                this = (self._scope, *queue)
                cursor.execute(f"DELETE FROM handed WHERE {_THIS}", this)
                if at is None:
                    cursor.execute(f"DELETE FROM queues WHERE {_THIS}", this)
                else:
                    cursor.execute(
                        f"UPDATE queues SET next = ?, stored = ?, intended = ? WHERE {_THIS}",
                        (at, at, at, *this),
                    )


def _refused(
    scope: str, number: int, other: str, subscription: str, *, is_alone: bool
) -> SettingsError:
    if is_alone:
        text = f"the broadcasting consumer {scope!r} is member {number} already; give another name"
        return SettingsError(text, key="broadcast")
    return SettingsError(
        f"member {number} of {scope!r} subscribes {other}, and this one {subscription}; all "
        "members of a group need the same",
        key="topics",
    )


@attrs.frozen
class GroupCommits:
    """The committed offsets of one group."""

    group: str
    state: GroupState
    offsets: CurrentOffsets
    locks: MemberLocks

    def read(self) -> dict[Queue, int]:
        """The offsets in the file, of topics that are not subscribed any more as well."""
        tables = self.offsets.groups().get(self.group, {})
        return {(topic, queue): at for topic in tables for queue, at in tables[topic].items()}

    def adopt(self) -> dict[Queue, int | None]:
        """Continue at offsets that another program committed; returns them."""
        if not self.state.foreign(self.read()):
            return {}
        with self.locks.process_lock:  # a commit of another member is whole now
            return self._adopt()

    def _adopt(self) -> dict[Queue, int | None]:
        found = self.state.foreign(self.read())
        if found:
            self.state.restart(found)
        return found

    def commit(self) -> None:
        """Commit the first offset of each queue that is not acknowledged."""
        with self.locks.process_lock:
            self._adopt()
            changed = self.state.intend()
            if not changed:
                return
            tables: dict[str, dict[int, int]] = {}
            for (topic, queue), at in changed.items():
                tables.setdefault(topic, {})[queue] = at
            self.offsets.commit_all((self.group, each, table) for each, table in tables.items())
            self.state.stored(changed)
