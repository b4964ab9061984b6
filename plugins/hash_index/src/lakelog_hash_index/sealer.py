"""Syncs full index files in a thread, and then advances the checkpoint."""

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
    """Uses a single thread, so that the checkpoint never covers a file before an older one."""

    def __init__(self, context: Context) -> None:
        self._checkpoint = context.checkpoint
        self._thread = ThreadPoolExecutor(1, _THREAD)
        self._pending: list[Future[None]] = []
        self._lock = RLock()

    def submit(self, file: IndexFileWriter) -> None:
        """Seal ``file`` in the thread; it is closed afterwards.

        If no thread can be started, it is sealed before this returns; no other sealing is pending
        then.
        """
        with self._lock:
            seal = partial(self._seal, file)
            self._pending.append(soon_done(self._thread.submit, _THREAD, seal))

    def _seal(self, file: IndexFileWriter) -> None:
        try:
            file.sync()
        finally:
            file.close()
        # After a failure the checkpoint stays, for all later files as well.
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
        """Wait until all files are sealed; raises the first ``OSError``.

        It is raised in each call: data that was not durable never counts as durable again.
        """
        known = self._known()
        for each in known:
            each.result()
        with self._lock:
            self._pending = [each for each in self._pending if each not in known]

    def close(self) -> None:
        """End the thread."""
        self._thread.shutdown()
