"""A store that other processes have open, too: append to it, and have its services when nobody has.

The services are dispatching, retention, disk watching and the checkpoint. They are one process's at
a time, which holds a lock on a byte; the lock ends with the process.
"""

from __future__ import annotations

import logging
from threading import Thread
from typing import Any, Final

import attrs

from lakelog.directory import StoreDirectory
from lakelog.errors import LakelogError, StoreError, ThreadNotStarted
from lakelog.health import Health
from lakelog.openlog import join_log
from lakelog.ownership import locked
from lakelog.pages.sharedpage import SharedPage
from lakelog.roles.agreeing import agreed
from lakelog.roles.asking import Asking
from lakelog.roles.ownerparts import serving_parts, staging
from lakelog.roles.parts import Parts, Swapping
from lakelog.roles.prepared import Prepared
from lakelog.roles.readerparts import reader_parts
from lakelog.settings.catalog import ATTACH
from lakelog.settings.model import AttachSettings
from lakelog.shared.membership import Membership
from lakelog.strategies import Strategies, make_strategies
from lakelog.threads import started

_LOG: Final = logging.getLogger("lakelog")


class Joined:
    """The log of a store in a process that has none of its services.

    :ivar prepared: with the settings that all processes of the store have
    """

    def __init__(self, prepared: Prepared, lock: Membership) -> None:
        """Open the log, and let others join.

        :param lock: a share that nobody else joins beside; given back where this fails
        """
        self._store: Swapping | None = None
        self._thread: Thread | None = None
        self._has_services = False
        self._is_closing = False
        self._failed = ""
        try:
            page = SharedPage.join(prepared.files, prepared.path)
            said = self._said(page, prepared)
            settings = agreed(prepared.registry, prepared.settings, said, prepared.path)
            self.prepared = attrs.evolve(prepared, settings=settings)
            self._may_take_over = settings.section(ATTACH).take_over
            self._strategies = self._made()
            directory = StoreDirectory.of(prepared.files, prepared.path, settings.core)
            self.health = Health(prepared.path, self._fail)
            self.log = join_log(
                directory, settings.core, self._strategies, self.health, lock, page, self._turn
            )
        except BaseException:  # Ctrl-C too
            lock.leave()
            raise

    @staticmethod
    def _said(page: SharedPage, prepared: Prepared) -> dict[str, Any]:
        said = page.settings
        if not said:  # by its own settings it could write another log
            raise StoreError(
                "the settings in its shared page are damaged; close the store in all processes, "
                "then open it again",
                path=prepared.path,
            )
        return said

    def _made(self) -> Strategies:
        prepared = self.prepared
        context = prepared.context(read_only=False)
        made = make_strategies(prepared.registry, prepared.settings, context, services=False)
        if made.writer.traits.staged:
            why = staging(prepared.settings.core.writer)
            advice = f", and {why}; choose another writer, or close the store there"
            raise locked(prepared.files, prepared.path, advice)
        return made

    def _fail(self, cause: BaseException) -> None:
        self.prepared.registry.events.store_failed(self.prepared.path, cause)

    def parts(self) -> Parts:
        """What a store works with."""
        parts = reader_parts(self.prepared, self.log.appender)
        parts.joined, parts.tell_store = self, self._tell_store
        settings: AttachSettings = self.prepared.settings.section(ATTACH)
        parts.manager = Asking(self.prepared.files, self.log, settings.reconnect_timeout_ms)
        return parts

    def _tell_store(self, store: Swapping) -> None:
        self._store = store

    # --- services ---

    def serve(self) -> Parts | None:
        """Have the services now; ``None`` where somebody else has, and the store is left then."""
        if self.log.lock.take_services():
            try:
                return serving_parts(self.prepared, self.log, self._strategies)
            except BaseException:  # Ctrl-C too
                self.log.lock.drop_services()
                self.close()
                raise
        self.close()
        return None

    def _turn(self) -> None:
        """Have the services, if nobody has; in a thread, since queues may have to be completed."""
        if not self._may_take_over or self._store is None or self._is_closing:
            return
        if self._thread is not None and self._thread.is_alive():
            return
        if self.health.failure is None and self.log.lock.take_services():
            thread = Thread(target=self._take_over, name="lakelog-services", daemon=True)
            try:
                self._thread = started(thread)
            except ThreadNotStarted:
                self.log.lock.drop_services()
                raise

    def _take_over(self) -> None:
        store = self._store
        try:
            parts = serving_parts(self.prepared, self.log, self._strategies)
        except (LakelogError, OSError) as error:
            self.log.lock.drop_services()
            if self._failed != str(error):  # it will be tried again soon
                self._failed = str(error)
                _LOG.warning("%s: taking its services over failed: %s", self.prepared.path, error)
            return
        self._has_services = True
        assert store is not None  # for the type checker: see _turn
        store.adopt(parts)
        store.swap(parts)
        _LOG.info("%s: this process dispatches and cleans for all now", self.prepared.path)

    # --- end ---

    def close(self) -> None:
        """Leave; who is the last closes the store as its owner does.

        Where this process has the services, its other parts do that.
        """
        self._is_closing = True
        if self._thread is not None:
            self._thread.join()
        if self._has_services:
            return
        log = self.log
        if not log.part():
            log.leave()
            return
        try:
            log.lock.take_services()
            parts = serving_parts(self.prepared, log, self._strategies)
        except BaseException:
            log.leave()  # the next open recovers what is missing
            raise
        parts.close()
