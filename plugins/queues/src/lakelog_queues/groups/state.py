"""The state of one group: its members, its progress in each queue, and its hand-outs.

Each method is one transaction. Times are in ms since 1970.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from sqlite3 import Cursor

import attrs

from lakelog.errors import SettingsError
from lakelog.format.queue_offsets import Queue
from lakelog_queues.groups.database import GroupDatabase
from lakelog_queues.groups.delivery import Handle
from lakelog_queues.groups.members import MemberLocks

_THIS = "scope = ? AND topic = ? AND queue = ?"


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
