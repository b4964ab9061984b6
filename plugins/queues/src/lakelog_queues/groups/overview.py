"""What an operator sees of a group: its members, and the messages that are with them.

The file of the group is read once, without its lock and without changing it, so that a member that
hangs can be seen.
"""

from __future__ import annotations

import fcntl
from array import array
from contextlib import closing
from pathlib import Path
from typing import Final
from urllib.parse import unquote

import attrs

from lakelog.files.filesystem import File, FileSystem
from lakelog.format.layout import OWN_DIR
from lakelog.format.queue_offsets import Queue
from lakelog.processes.locks import is_locked
from lakelog_queues.groups.state_file import (
    GROUPS_DIR,
    MEMBERS_BYTE,
    SUFFIX,
    is_of_boot,
    redo,
    state_path,
)
from lakelog_queues.groups.state_words import members_in, queues_in

_TRIES: Final = 20


@attrs.frozen
class MemberStatus:
    """A member of a group.

    :ivar number: its number
    :ivar pid: its process
    :ivar state: ``active``, ``idle`` (it has not polled for 60 s) or ``dead``
    :ivar idle_ms: time since it last checked the group, which it does once a second while it polls
    """

    number: int
    pid: int
    state: str
    idle_ms: int


@attrs.frozen
class InFlight:
    """A message that was handed out, and is not acknowledged.

    :ivar attempt: number of hand-outs from this queue
    :ivar member: the number of the member that has it; ``None`` if it was returned and waits
    :ivar age_ms: time since it was handed out; ``None`` without a member
    :ivar visible_in_ms: time until it is handed out again; 0 if that may happen now
    :ivar is_returned: whether a member returned it, or its copy could not be put
    """

    topic: str
    queue_id: int
    queue_offset: int
    attempt: int
    member: int | None
    age_ms: int | None
    visible_in_ms: int
    is_returned: bool


@attrs.frozen
class GroupStatus:
    """The state of a group; empty if it had no members since the boot.

    :ivar members: by number
    :ivar in_flight: by queue and offset
    :ivar next_offsets: by topic and queue id, the first offset that was never handed out
    """

    members: list[MemberStatus] = attrs.field(factory=list)
    in_flight: list[InFlight] = attrs.field(factory=list)
    next_offsets: dict[Queue, int] = attrs.field(factory=dict)


def groups_with_state(files: FileSystem, path: Path) -> list[str]:
    """The groups with a file of their state; of broadcasting consumers ``GROUP@NAME``."""
    names = (name for name, _ in files.list(path / OWN_DIR / GROUPS_DIR))
    return [unquote(name.removesuffix(SUFFIX)) for name in names if name.endswith(SUFFIX)]


def group_status(files: FileSystem, path: Path, scope: str, now_ms: int) -> GroupStatus:
    """Read the state of a group in the store directory ``path``.

    :param scope: its name, or ``GROUP@NAME`` of a broadcasting consumer
    :param now_ms: the time since boot
    """
    try:
        file = files.open(state_path(path, scope))
    except FileNotFoundError:
        return GroupStatus()
    with closing(file):
        for _ in range(_TRIES):  # members may change it meanwhile
            words = memoryview(array("Q", file.read_at(0, file.size() & ~7))).cast("B").cast("Q")
            try:
                if not is_of_boot(file, words):
                    break
                redo(words)
                return _status(file, words, now_ms)
            except (IndexError, UnicodeDecodeError):
                continue
    return GroupStatus()


def _status(file: File, words: memoryview, now_ms: int) -> GroupStatus:
    found = GroupStatus()
    for number, pid, seen_ms in members_in(words):
        idle_ms = max(now_ms - seen_ms, 0)
        alive = is_locked(file, MEMBERS_BYTE + number, fcntl.F_RDLCK)
        what = ("idle" if idle_ms >= _IDLE_MS else "active") if alive else "dead"
        found.members.append(MemberStatus(number, pid, what, idle_ms))
    living = {each.number for each in found.members if each.state != "dead"}
    for queue, next_offset, leases in queues_in(words):
        found.next_offsets[queue] = next_offset
        for lease in leases:
            is_free = lease.member not in living
            visible_ms = 0 if lease.member and is_free else max(lease.deadline_ms - now_ms, 0)
            found.in_flight.extend(
                InFlight(
                    *(*queue, offset, lease.attempt, lease.member or None),
                    None if lease.taken_ms is None else max(now_ms - lease.taken_ms, 0),
                    *(visible_ms, lease.returned),
                )
                for offset in lease.offsets
            )
    found.members.sort(key=lambda each: each.number)
    found.in_flight.sort(key=lambda each: (each.topic, each.queue_id, each.queue_offset))
    return found


_IDLE_MS: Final = 60_000
