"""The log of a store shared with other processes, and the take-over of its services.

The services are dispatching, retention, disk watching and the checkpoint. One process at a time
has them and holds a byte lock, which the system releases when the process ends.
"""

from __future__ import annotations

import logging
import time
from contextlib import suppress
from threading import Thread
from typing import Any, Final

import attrs

from lakelog.errors import LakelogError, NoOwner, StoreError, ThreadNotStarted
from lakelog.files.pages.shared_page import SharedPage
from lakelog.files.shared.membership import Membership
from lakelog.files.shared.ownership import locked
from lakelog.log.health import Health
from lakelog.log.store_directory import StoreDirectory
from lakelog.runtime.threads import started
from lakelog.settings.catalog import ATTACH
from lakelog.settings.model import AttachSettings
from lakelog.store.open_log import OpenLog, join_log
from lakelog.store.owner import OwnedStore
from lakelog.store.roles.agreeing import agreed
from lakelog.store.roles.asking import Asking
from lakelog.store.roles.managing import Managing
from lakelog.store.roles.ownerparts import serving_parts, staging
from lakelog.store.roles.parts import PartsHolder, RoleParts
from lakelog.store.roles.prepared import OpenRequest
from lakelog.store.roles.readerparts import reader_parts
from lakelog.store.strategies import Strategies, make_strategies

_LOG: Final = logging.getLogger("lakelog")
_LOOK_S: Final = 0.005
_SOON_S: Final = 5.0
"""Seconds to release the services (queues are synced) before they are requested again."""


class JoinedLog:
    """The log of a store that other processes may have open, and the state of its services.

    :ivar prepared: with the settings shared by all processes of the store
    :ivar log: the open log of this process
    :ivar health: whether puts are accepted
    """

    log: OpenLog
    health: Health
    _strategies: Strategies

    def __init__(self, prepared: OpenRequest) -> None:
        """Prepare only; :meth:`join` or :meth:`of_first` opens it."""
        self.prepared = prepared
        self._store: PartsHolder | None = None
        self._thread: Thread | None = None
        self._serving: RoleParts | None = None
        self._is_closing = False
        self._has_left = False
        self._failed = ""

    @classmethod
    def join(cls, prepared: OpenRequest, lock: Membership) -> JoinedLog:
        """Open the log, and let other processes join.

        :param lock: a membership that keeps others from joining; released on failure
        """
        made = cls(prepared)
        try:
            page = SharedPage.join(prepared.files, prepared.path)
            said = made._said(page, prepared)
            settings = agreed(prepared.registry, prepared.settings, said, prepared.path)
            prepared = made.prepared = attrs.evolve(prepared, settings=settings)
            made._strategies = made._made()
            directory = StoreDirectory.of(prepared.files, prepared.path, settings.core)
            made.health = Health(prepared.path, made._fail)
            made.log = join_log(
                directory, settings.core, made._strategies, made.health, lock, page, made._turn
            )
        except BaseException:  # Ctrl-C too
            lock.leave()
            raise
        return made

    @classmethod
    def of_first(cls, prepared: OpenRequest, parts: RoleParts, owned: OwnedStore) -> None:
        """Allow ``parts`` of the first process to release their services later."""
        made = cls(prepared)
        made.log, made.health, made._strategies = owned, owned.health, owned.strategies
        parts.tell_store = made._tell_store
        made._has(parts)

    @staticmethod
    def _said(page: SharedPage, prepared: OpenRequest) -> dict[str, Any]:
        said = page.settings
        if not said:  # with its own settings it could write another log
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

    def parts(self) -> RoleParts:
        """Build the parts for a store."""
        parts = reader_parts(self.prepared, self.log.appender, self._asking())
        parts.joined, parts.tell_store = self, self._tell_store
        return parts

    def _asking(self) -> Asking:
        return Asking(self.prepared.files, self.log, self._attach.reconnect_timeout_ms)

    @property
    def _attach(self) -> AttachSettings:
        section: AttachSettings = self.prepared.settings.section(ATTACH)
        return section

    def _tell_store(self, store: PartsHolder) -> None:
        self._store = store

    # --- services ---

    def serve(self) -> RoleParts:
        """Take the services and keep them; raises ``StoreLocked`` if another process keeps them.

        On an error the store is left.
        """
        try:
            self._take_services()
            try:
                return serving_parts(self.prepared, self.log, self._strategies)
            except BaseException:  # Ctrl-C too
                self.log.lock.drop_services()
                raise
        except BaseException:
            self.close()
            raise

    def _take_services(self) -> None:
        """Request the services from their owner; repeat if a third process was faster."""
        lock, seconds = self.log.lock, self._attach.reconnect_timeout_ms / 1000
        end = time.monotonic() + seconds
        while not lock.take_services():
            if time.monotonic() >= end:
                raise locked(self.prepared.files, self.prepared.path)
            with suppress(NoOwner):  # already free
                self._asking().hand_over()
            soon = time.monotonic() + _SOON_S
            while not lock.take_services() and time.monotonic() < min(soon, end):
                time.sleep(_LOOK_S)

    def _turn(self) -> None:
        """Take free services, in a new thread, since queues may have to be completed first."""
        if not self._attach.take_over or self._store is None or self._is_closing:
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
            if self._failed != str(error):  # log each error once: the take-over is retried soon
                self._failed = str(error)
                _LOG.warning("%s: taking its services over failed: %s", self.prepared.path, error)
            return
        assert store is not None  # for the type checker: see _turn
        self._has(parts)
        store.adopt(parts)
        store.swap(parts)
        _LOG.info("%s: this process dispatches and cleans for the others now", self.prepared.path)

    def _has(self, parts: RoleParts) -> None:
        """Run with the services until another process requests them."""
        self._serving = parts
        if isinstance(parts.manager, Managing):
            parts.manager.gives_up = self._begin_to_give_up

    def _begin_to_give_up(self) -> None:
        if self._thread is not None and self._thread.is_alive():
            return
        self._thread = started(Thread(target=self._give_up, name="lakelog-services", daemon=True))

    def _give_up(self) -> None:
        parts = self._serving
        try:
            others = self.parts()
        except (LakelogError, OSError) as error:  # it keeps the services; a request may come again
            _LOG.warning("%s: its services cannot be given up: %s", self.prepared.path, error)
            return
        if parts is None or self._store is None or not self._store.give_up(parts, others):
            return  # the store is being closed
        try:
            parts.give_up()
        except (LakelogError, OSError) as error:
            _LOG.warning("%s: giving up its services failed: %s", self.prepared.path, error)
        finally:
            self._serving, self.log.watch.on_turn = None, self._turn
        _LOG.info("%s: another process dispatches and cleans now", self.prepared.path)

    # --- end ---

    def close(self) -> None:
        """Leave the store; the last process closes it as its owner does.

        If this process has the services, its other parts do that.
        """
        self._is_closing = True
        if self._thread is not None:
            self._thread.join()
        if self._serving is not None or self._has_left:
            return  # the parts before and after a hand-over are all closed with the store
        self._has_left = True
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
