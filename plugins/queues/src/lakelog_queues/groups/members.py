"""The members of a group: the locks that show that they live, and the queues of each.

The locks are on bytes of ``lakelog/groups.lock``; the kernel releases them at a member's end.
Byte 0 is held for the comparison and the change of committed offsets. Byte ``n`` is held by member
``n`` for as long as it lives.
"""

from __future__ import annotations

import fcntl
from collections.abc import Collection, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final
from weakref import finalize

from lakelog.files.filesystem import File, FileSystem
from lakelog.format.layout import OWN_DIR
from lakelog.format.queue_offsets import Queue
from lakelog.hooks import DispatchedLog
from lakelog.processes.locks import ProcessLock, is_locked, set_lock
from lakelog.processes.ownership import open_of_members

LOCKS_FILE: Final = "groups.lock"


class MemberLocks:
    """The locks of one member; a second object has its own, also in the same process.

    :ivar turn: a lock that one member of the store has at a time
    """

    def __init__(self, files: FileSystem, path: Path) -> None:
        """Open the file of the store directory ``path``; nothing is locked yet."""
        files.make_dir(path / OWN_DIR)
        self._file = _opened(files, path) or files.open(
            path / OWN_DIR / LOCKS_FILE, write=True, create=True
        )
        self._close = finalize(self, self._file.close)  # a consumer that was dropped is no member
        self.process_lock = ProcessLock(self._file, 0)

    def take(self, number: int) -> bool:
        """Become member ``number``; ``False`` if another one has that number."""
        return set_lock(self._file, number, fcntl.F_WRLCK)

    def is_taken(self, number: int) -> bool:
        """Whether another living member has ``number``."""
        return is_locked(self._file, number, fcntl.F_WRLCK)

    def close(self) -> None:
        """Release the locks; also called in a forked child, for its copy of the file."""
        self._close()


@contextmanager
def group_lock(log: DispatchedLog) -> Iterator[None]:
    """Keep the members of all groups from committing; does nothing if there never was a member."""
    file = None if log.read_only else _opened(log.files, log.path)
    if file is None:
        yield
        return
    with closing(file), ProcessLock(file, 0):
        yield


def _opened(files: FileSystem, path: Path) -> File | None:
    """The file, also if its name was removed while members live; ``None`` if there is none."""
    try:
        return files.open(path / OWN_DIR / LOCKS_FILE, write=True)
    except FileNotFoundError:
        return open_of_members(files, path, f"{OWN_DIR}/{LOCKS_FILE}", write=True)


def share_of(member: int, members: Collection[int], queues: Collection[Queue]) -> list[Queue]:
    """The queues of one member, sorted; empty if ``members`` does not contain it.

    As RocketMQ's ``AllocateMessageQueueAveragelyByCircle``, over the queues of all topics together.
    Every queue belongs to one member, and the shares differ by one queue at most. The result
    depends on the arguments only, not on their order.

    >>> share_of(7, {3, 7}, [("t", 0), ("t", 1), ("t", 2)])
    [('t', 1)]
    """
    in_turn = sorted(members)
    if member not in members:
        return []
    return sorted(queues)[in_turn.index(member) :: len(in_turn)]
