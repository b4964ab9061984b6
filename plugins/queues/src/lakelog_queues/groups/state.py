"""The state of a group: its members, its queues, and its committed offsets.

The committed offsets in RocketMQ's file are compared with those noted here. Offsets that a member
writes are noted as intended before, so that after a kill between the write and the second note they
do not look like those of another program.
"""

from __future__ import annotations

import logging
import os
from array import array
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import ExitStack
from hashlib import sha256
from pathlib import Path

import attrs

from lakelog.errors import SettingsError
from lakelog.files.filesystem import FileSystem
from lakelog.format.queue_offsets import Queue
from lakelog.hooks import DispatchedLog
from lakelog_queues.consumers.offsettable import CurrentOffsets
from lakelog_queues.groups.leases import Leases
from lakelog_queues.groups.state_file import (
    CLEAN,
    GENERATION,
    MEMBERS,
    NEXT_MEMBER,
    NONE,
    QUEUE_COUNT,
    QUEUES,
    SLOT,
    SUBSCRIPTION,
    StateFile,
    StateOpening,
    existing,
)
from lakelog_queues.groups.state_words import (
    AFTER,
    CHAIN,
    COUNTS,
    DUE,
    HEAD,
    INTENDED,
    LEASE,
    NAME_AT,
    NAME_BYTES,
    NEXT,
    NUMBER,
    RESERVES,
    SEEN,
    START,
    STORED,
    chain,
    is_whole,
    open_bits,
    queue_at,
    run_start,
    slots_of,
)

_log = logging.getLogger("lakelog")


class GroupState(Leases):
    """The state of one group, or of one broadcasting consumer; thread-safe."""

    def __init__(self, file: StateFile) -> None:
        super().__init__(file)
        self._entries: dict[Queue, int] = {}
        self._names: dict[int, Queue] = {}

    @classmethod
    def opened(
        cls, files: FileSystem, path: Path, scope: str, now_ms: Callable[[], int]
    ) -> GroupState:
        """Open the state ``scope`` of the store directory ``path``; raises ``OSError``."""

        def warn(where: Path, fault: str) -> None:
            _log.warning("%s: %s; its group continues at the committed offsets", where, fault)

        return cls(StateOpening(files, now_ms, is_whole, warn).opened(path, scope))

    # --- members ---

    def join(self, scope: str, subscription: str, now_ms: int, *, is_alone: bool) -> int:
        """Add a member and lock its byte; return its number.

        :param is_alone: whether it tolerates no other living member

        Raises :class:`~lakelog.errors.SettingsError` if a living member has another subscription.
        """
        return self.file.run(self._join, scope, subscription, now_ms, is_alone=is_alone)

    def _join(self, scope: str, subscription: str, now_ms: int, *, is_alone: bool) -> int:
        words = self.file.words
        digest = int.from_bytes(sha256(subscription.encode()).digest()[:8])
        for member in chain(words, MEMBERS):
            number = words[member + NUMBER]
            if (is_alone or words[SUBSCRIPTION] != digest) and self.file.is_member(number):
                raise _refused(scope, number, self.file.text, subscription, is_alone=is_alone)
        words[CLEAN] = 0
        if words[SUBSCRIPTION] != digest:
            self.file.set_text(subscription)
            words[SUBSCRIPTION] = digest
        number = words[NEXT_MEMBER]
        while not self.file.take_member(number):  # before others see the entry
            number += 1
        slot, changes = self.file.unused()
        content = [number, os.getpid(), now_ms, 0, 0]
        words[slot + NUMBER : slot + NUMBER + 5] = array("Q", content)
        after = slot + AFTER
        more = [slot, 0, after, words[MEMBERS], MEMBERS, slot, NEXT_MEMBER, number + 1]
        self.file.apply([*changes, *more, GENERATION, words[GENERATION] + 1])
        self.number, self._place = int(number), slot
        return self.number

    @property
    def generation(self) -> int:
        """A number that changes when a member joins, and when one is removed."""
        return int(self.file.words[GENERATION])

    def members(self, now_ms: int, idle_ms: int) -> list[int]:
        """Note that this member is active, remove dead members, and return the active ones."""
        self.file.check_length()
        return self.file.run(self._active, now_ms, idle_ms)

    def _active(self, now_ms: int, idle_ms: int) -> list[int]:
        words, found = self.file.words, list[int]()
        for member in list(chain(words, MEMBERS)):
            number = words[member + NUMBER]
            if number == self.number:
                words[member + SEEN] = now_ms
            elif not self.file.is_member(number):
                self._remove_member(member)
                continue
            if words[member + SEEN] + idle_ms >= now_ms:
                found.append(number)
        return found

    def _remove_member(self, member: int) -> None:
        for reserve in chain(self.file.words, member + RESERVES):
            if lease := self.file.words[reserve + LEASE]:
                self._withdraw(lease, is_dead=True)
        words = self.file.words
        for queue in self._queues().values():
            words[queue + DUE] = 0
        before = MEMBERS
        while words[before] != member:
            before = words[before] + AFTER
        link = [before, words[member + AFTER]]
        more = [GENERATION, words[GENERATION] + 1, member + AFTER, words[member + RESERVES]]
        self.file.drop(member, [*link, *more])

    def leave(self, now_ms: int) -> None:
        """Remove this member; its messages are visible at once."""
        self.file.run(self._leave, now_ms)

    def _leave(self, now_ms: int) -> None:
        words, others = self.file.words, 0
        for member in list(chain(words, MEMBERS)):
            number = words[member + NUMBER]
            if number == self.number or not self.file.is_member(number):
                self._remove_member(member)
            else:
                others += 1
        if not others:
            self.file.mark_clean(now_ms)

    # --- queues ---

    def queues(self) -> dict[Queue, int]:
        """The place of each queue that the group knows."""
        known = self.file.run(self._queues)
        words = self.file.words
        return {queue: at for queue, at in known.items() if words[at + COUNTS]}

    def _queues(self) -> dict[Queue, int]:
        words = self.file.words
        if words[QUEUE_COUNT] != len(self._entries):
            at = words[QUEUES]
            while at:
                if at not in self._names:
                    self._names[at] = queue_at(words, at)
                    self._entries[self._names[at]] = at
                at = words[at + CHAIN]
        return self._entries

    def name(self, at: int) -> Queue:
        """Topic and queue id of the queue at a place."""
        return self._names[at]

    def add_queues(self, queues: Iterable[tuple[Queue, int, int | None]]) -> None:
        """Add queues that are not known yet: the next offset, and the committed one of each."""
        for queue, at, stored in queues:
            self.file.run(self._add_queue, queue, at, stored)

    def _add_queue(self, queue: Queue, at: int, stored: int | None) -> None:
        words, note = self.file.words, NONE if stored is None else stored
        entry = self._queues().get(queue)
        if entry is not None:
            if not words[entry + COUNTS]:
                self._restart(entry, at, note)
            return
        name = queue[0].encode()
        slot, changes = self.file.unused(2 + slots_of(len(name)))
        words = self.file.words
        words[slot : slot + NAME_AT] = array(
            "Q", [0, queue[1] | len(name) << 32, at, note, note, 0, 0, NONE, 0, 0, 1, *[0] * 5]
        )
        for number in range(slots_of(len(name))):
            part = name[number * NAME_BYTES :][:NAME_BYTES].ljust(NAME_BYTES, b"\0")
            place = slot + NAME_AT + number * SLOT
            words[place : place + SLOT] = array("Q", bytes(8) + part)
        link = [slot + CHAIN, words[QUEUES], QUEUES, slot, QUEUE_COUNT, words[QUEUE_COUNT] + 1]
        self.file.apply(changes + link)

    def restart(self, queues: Mapping[Queue, int | None]) -> None:
        """Continue ``queues`` at these offsets; forget a queue without one."""
        for queue, at in queues.items():
            self.file.run(self._restart_known, queue, at)

    def _restart_known(self, queue: Queue, at: int | None) -> None:
        entry = self._queues().get(queue)
        if entry is not None:
            self._restart(entry, at, NONE if at is None else at)

    # --- committed offsets; the caller is in the turn of commits ---

    def intend(self) -> dict[Queue, int]:
        """The offsets to commit that are not committed yet, noted as intended."""
        return self.file.run(self._intend)

    def _intend(self) -> dict[Queue, int]:
        words, found = self.file.words, dict[Queue, int]()
        for queue, entry in self._queues().items():
            if words[entry + COUNTS]:
                at = self._committed(entry)
                if at != words[entry + STORED]:
                    words[entry + INTENDED] = at
                    found[queue] = at
        return found

    def _committed(self, queue: int) -> int:
        """The first offset that is not acknowledged."""
        words = self.file.words
        lease = words[queue + HEAD]
        if not lease:
            return int(words[queue + NEXT])
        key, found = run_start(words, lease), NONE
        while lease and (found == NONE or run_start(words, lease) == key):
            if bits := open_bits(words, lease):
                key = run_start(words, lease)
                found = min(found, words[lease + START] + (bits & -bits).bit_length() - 1)
            lease = words[lease + AFTER]
        return int(words[queue + NEXT] if found == NONE else found)

    def stored(self, offsets: Mapping[Queue, int]) -> None:
        """Note that ``offsets`` are in the file."""
        self.file.run(self._stored, offsets)

    def _stored(self, offsets: Mapping[Queue, int]) -> None:
        words, known = self.file.words, self._queues()
        for queue, at in offsets.items():
            words[known[queue] + STORED] = at

    def foreign(self, file: Mapping[Queue, int]) -> dict[Queue, int | None]:
        """Queues whose offset in the file no member of this group wrote, and that offset.

        ``None``: an offset that a member wrote was removed. An offset that was intended, and is in
        the file, is noted as committed.
        """
        return self.file.run(self._foreign, file)

    def _foreign(self, file: Mapping[Queue, int]) -> dict[Queue, int | None]:
        words, found = self.file.words, dict[Queue, int | None]()
        for queue, entry in self._queues().items():
            at = file.get(queue)
            value = NONE if at is None else at
            if not words[entry + COUNTS] or value == words[entry + STORED]:
                continue
            if value == words[entry + INTENDED]:
                words[entry + STORED] = value
            else:
                found[queue] = at
        return found


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

    def read(self) -> dict[Queue, int]:
        """The offsets in the file, of topics that are not subscribed any more as well."""
        tables = self.offsets.stored(self.group)
        return {(topic, queue): at for topic in tables for queue, at in tables[topic].items()}

    def adopt(self) -> dict[Queue, int | None]:
        """Continue at offsets that another program committed; returns them."""
        if not self.state.foreign(self.read()):
            return {}
        return self.state.file.commits.run(self._adopt)  # a commit of another member is whole now

    def _adopt(self) -> dict[Queue, int | None]:
        found = self.state.foreign(self.read())
        if found:
            self.state.restart(found)
        return found

    def commit(self) -> None:
        """Commit the first offset of each queue that is not acknowledged."""
        self.state.file.commits.run(self._commit)

    def _commit(self) -> None:
        self._adopt()
        changed = self.state.intend()
        if not changed:
            return
        tables: dict[str, dict[int, int]] = {}
        for (topic, queue), at in changed.items():
            tables.setdefault(topic, {})[queue] = at
        self.offsets.commit_or_drop((self.group, each, table) for each, table in tables.items())
        self.state.stored(changed)


def change_offsets(
    log: DispatchedLog,
    groups: Collection[str],
    write: Callable[[], None],
    offsets: Callable[[str, Collection[Queue]], Mapping[Queue, int | None]],
) -> None:
    """Write offsets of groups, and let their members continue there.

    :param offsets: returns the new offsets of a group, given its queues; ``None`` forgets a queue
    """
    with ExitStack() as opened:
        states = {}
        for group in (
            () if log.read_only else sorted(groups)
        ):  # in one order, so that two calls do not wait for each other
            file = existing(log.files, log.path, group)
            if file is not None:
                opened.callback(file.close)
                file.commits.hold()
                states[group] = GroupState(file)
        write()
        for group, state in states.items():
            state.restart(offsets(group, state.queues()))
