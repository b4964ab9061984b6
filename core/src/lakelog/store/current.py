"""The current parts of an open store: replaced at a take-over, rebuilt after a fork."""

from __future__ import annotations

from collections.abc import Callable
from threading import RLock
from typing import Final

import attrs

from lakelog.errors import StoreClosed, StoreReadOnly
from lakelog.log.store_directory import readable
from lakelog.runtime.forks import register_forked
from lakelog.store.parts import Manager, RefusingWriter, RoleParts

FORKED: Final = (
    "this process was forked from the one that opened the store, and cannot use it; open the store "
    "in each process, or open it with attach={'on_fork': 'attach'}"
)
_READING: Final = "the store is open for reading; open it with mode='write'"


class RoleState:
    """Holds the current parts of a :class:`~lakelog.Store`; thread-safe.

    :ivar path: the store directory
    :ivar parts: the parts of the current role
    :ivar closed: whether the store was closed
    :ivar on_swap: called with the parts after they were replaced, and at the close
    """

    def __init__(self, parts: RoleParts, again: Callable[[], RoleParts] | None) -> None:
        """Store the parts that opening has built.

        :param again: builds parts in a forked child; ``None`` forbids it
        """
        self.path = parts.request.path
        self.parts = parts
        self.closed = False
        self.on_swap: Callable[[RoleParts], None] = _nobody
        self._events = parts.request.registry.events
        self._again = again
        self._open = list[RoleParts]()
        self._refused = False
        self._stale = False
        self._lock = RLock()
        self.adopt(parts)
        register_forked(self)

    # --- access ---

    def now(self) -> RoleParts:
        """The current parts; raises :class:`~lakelog.errors.StoreClosed` if there are none."""
        if self._stale:
            self._renew()
        if self._refused:
            raise StoreClosed(FORKED)
        if self.closed:
            raise StoreClosed("the store is closed")
        return self.parts

    def last(self) -> RoleParts:
        """The current parts, even of a closed store, whose puts then refuse."""
        if self._stale:
            self._renew()
        return self.parts

    def manager(self) -> Manager:
        """The manager; raises :class:`~lakelog.errors.StoreReadOnly` in a reader."""
        manager = self.now().manager
        if manager is None:
            raise StoreReadOnly(_READING, path=self.path)
        return manager

    # --- changes ---

    def adopt(self, parts: RoleParts) -> None:
        """Register ``parts`` to be closed with the store."""
        with self._lock:
            self._open.append(parts)
        if parts.joined is not None:
            parts.joined.store = self

    def swap(self, parts: RoleParts) -> None:
        """Replace the parts; the former ones stay open for reads in progress."""
        with self._lock:
            self.parts = parts
        self.on_swap(parts)

    def give_up(self, parts: RoleParts, others: RoleParts) -> bool:
        """Replace ``parts`` by ``others``, unless the store is being closed.

        ``parts`` stay open and are no longer closed with the store.
        """
        with self._lock:
            if self.closed or parts not in self._open:
                return False
            self._open = [each for each in self._open if each not in (parts, others)] + [others]
        self.swap(others)
        return True

    def close(self) -> None:
        """Flush and close; a second call does nothing."""
        with self._lock:
            if self.closed:
                return
            self.closed = True
        self.on_swap(self.parts)  # bound methods must not use parts that are being closed
        if self._refused or self._stale:
            return
        try:
            self._close_parts()
        except OSError as error:
            raise readable(error, self.path) from error
        finally:
            self._events.store_closed(self.path)

    def _close_parts(self) -> None:
        """Close all parts, also those added meanwhile: a put that settles may cause a take-over."""
        try:
            while self._open:
                self._open.pop(0).close()
        finally:
            for each in self._open:  # the first error is raised
                each.close()

    def forked(self) -> None:
        """Disable, in a forked child, the parts of the parent, whose threads do not exist here."""
        self._lock = RLock()  # the parent's may be held by a thread that does not exist here
        parts, self._open = self._open, []
        self._stale = self._again is not None and not self.closed
        self._refused = not self._stale
        self._refuse_all()
        for each in parts:
            each.forked(FORKED)

    def _refuse_all(self) -> None:
        """Replace the parts by refusing ones, so that no bound put uses the parent's."""
        self.parts = attrs.evolve(
            self.parts,
            puts=RefusingWriter(self.path, FORKED),
            manager=None,
            answering=None,
            owned=None,
            joined=None,
        )
        self.on_swap(self.parts)

    def _renew(self) -> None:
        """Open new parts in a forked child, once."""
        with self._lock:
            if not self._stale or self._again is None:
                return
            parts = self._again()
            self._stale = False
            self.adopt(parts)
            self.swap(parts)


def _nobody(_parts: RoleParts) -> None:
    """Ignore the change: no listener is set."""
