"""Syncs index files that are full, in a thread of its own, then moves the checkpoint over them."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from threading import RLock
from typing import Final

import attrs

from lakelog.interfaces import Context
from lakelog.runtime.threads import soon_done
from lakelog_hash_index.filewriter import IndexFileWriter

_THREAD: Final = "lakelog-hash-index"


class Sealer:
    """One thread, so that the checkpoint never claims a file before an older one."""

    def __init__(self, context: Context) -> None:
        self._checkpoint = context.checkpoint
        self._thread = ThreadPoolExecutor(1, _THREAD)
        self._pending: list[Future[None]] = []
        self._lock = RLock()

    def submit(self, file: IndexFileWriter) -> None:
        """Seal ``file``, soon; it is closed after that.

        Where no thread can be had, it is sealed before this returns: none is under way then.
        """
        with self._lock:
            seal = partial(self._seal, file)
            self._pending.append(soon_done(self._thread.submit, _THREAD, seal))

    def _seal(self, file: IndexFileWriter) -> None:
        try:
            file.sync()
        finally:
            file.close()
        # The last file's failure keeps the checkpoint where it is, for all that come later.
        if not any(each.done() and each.exception() for each in self._known()):
            self._checkpoint.advance(
                attrs.evolve(
                    self._checkpoint.read(), index_timestamp_ms=file.header.end_timestamp_ms
                )
            )

    def _known(self) -> list[Future[None]]:
        with self._lock:
            return list(self._pending)

    def wait(self) -> None:
        """Until all files are sealed; raises the ``OSError`` of the first that could not be.

        It is raised each time: what was not durable then never counts as durable again.
        """
        known = self._known()
        for each in known:
            each.result()
        with self._lock:
            self._pending = [each for each in self._pending if each not in known]

    def close(self) -> None:
        """End the thread."""
        self._thread.shutdown()
