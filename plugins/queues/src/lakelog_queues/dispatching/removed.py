"""Queues of topics that were removed, and of which files are left: a stop or an error came between.

Nobody reads them any more, and they are removed before a queue of that name is made again.
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
    """What is left of them.

    :ivar again: physical offset from which such queues are dispatched again
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
        """Whether the files of a queue that was just loaded are of a topic that was removed."""
        end = self._tombstones.get(queue.queue[0], 0)
        if not end:
            return False
        oldest = queue.oldest()
        return oldest < end if oldest is not None else queue.is_empty()

    def take(self, queue: AnyQueue) -> None:
        """Never show it again, whether its files can be removed now or not."""
        queue.close()
        self.again = min(self.again, self._tombstones[queue.queue[0]])
        if self._read_only:
            self._maker.leave_out(queue.queue)  # its owner removes the files
        else:
            self._left.add(queue.queue)

    def remove(self, only: Queue | None = None) -> None:
        """Remove the files; raises ``OSError``, and goes on there at the next call.

        :param only: one queue, whether any is left of it or not; ``None`` is all
        """
        for name in sorted(self._left if only is None else self._left & {only}):
            self._maker.remove_folders(name)
            self._left.discard(name)

    def finish(self) -> None:
        """Remove what an earlier process left; what cannot be removed now stays hidden."""
        if self._read_only or not self._tombstones:
            return
        try:
            if self._left:
                self._files.sync_dir(self._path / OWN_DIR)  # the tombstones, before anything goes
                self.remove()
            for topic in self._tombstones:
                self._maker.remove_topic(topic)
        except OSError as error:
            _LOG.warning(
                "%s: files of removed topics are left; nobody reads them, and the next open tries "
                "again: %s",
                *(self._path, error),
            )
