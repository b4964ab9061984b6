"""Remaining files of removed queues, which a crash or an error left behind.

They are not read any more. They are removed before a queue with the same name is created.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from lakelog.files.filesystem import FileSystem
from lakelog.format.layout import OWN_DIR
from lakelog.format.queue_offsets import Queue
from lakelog_queues.dispatching.making import AnyQueue, QueueMaker

_LOG: Final = logging.getLogger("lakelog")
_NOWHERE: Final = 1 << 63


class RemovedQueues:
    """The removed queues with remaining files.

    :ivar again: physical offset from which records for such queues must be dispatched again
    """

    def __init__(
        self,
        files: FileSystem,
        path: Path,
        maker: QueueMaker,
        tombstones: Mapping[str, int],
        *,
        read_only: bool,
    ) -> None:
        self.again = _NOWHERE
        self._files = files
        self._path = path
        self._maker = maker
        self._tombstones = tombstones
        self._read_only = read_only
        self._left: set[Queue] = set()

    def owns(self, queue: AnyQueue) -> bool:
        """Whether the files of a queue that was just loaded belong to a removed topic."""
        end = self._tombstones.get(queue.queue[0], 0)
        if not end:
            return False
        oldest = queue.oldest()
        return oldest < end if oldest is not None else queue.is_empty()

    def take(self, queue: AnyQueue) -> None:
        """Hide a queue; :meth:`remove` removes its files."""
        queue.close()
        self.again = min(self.again, self._tombstones[queue.queue[0]])
        if self._read_only:
            self._maker.leave_out(queue.queue)  # its owner removes the files
        else:
            self._left.add(queue.queue)

    def remove(self, only: Queue | None = None) -> None:
        """Remove the files; after an ``OSError`` the next call continues.

        :param only: a queue, which need not have remaining files; ``None`` is all
        """
        for name in sorted(self._left if only is None else self._left & {only}):
            self._maker.remove_folders(name)
            self._left.discard(name)

    def finish(self) -> None:
        """Remove the files that an earlier process left; after an error they stay hidden."""
        if self._read_only or not self._tombstones:
            return
        try:
            if self._left:
                self._files.sync_dir(self._path / OWN_DIR)  # tombstones first, then removals
                self.remove()
            for topic in self._tombstones:
                self._maker.remove_topic(topic)
        except OSError as error:
            _LOG.warning(
                "%s: files of removed topics could not be removed; they are not read, and the next "
                "open tries again: %s",
                *(self._path, error),
            )
