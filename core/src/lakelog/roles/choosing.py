"""Chooses the role of a store that is being opened, and lets an attached one become the owner.

The lock alone decides who owns: ``auto`` attaches where somebody holds it, and tries to take it
where nobody does; who loses that race attaches to the winner, once it has recovered and listens.
"""

from __future__ import annotations

import errno
import logging
import time
from collections.abc import Callable
from pathlib import Path
from socket import socket
from typing import Final, Literal, Protocol, TypeAlias

import attrs

from lakelog.appender import Appender
from lakelog.consumers.offsets import Offsets
from lakelog.errors import AttachRefused, LakelogError, NoOwner, StoreLocked, StoreReadOnly
from lakelog.files import FileSystem
from lakelog.layout import LOCK_FILE
from lakelog.ownership import is_attended, is_owned, locked
from lakelog.roles.parts import Parts, Swapping

Mode: TypeAlias = Literal["auto", "owner", "attach", "read"]
MODES: Final[tuple[Mode, ...]] = ("auto", "owner", "attach", "read")

_LOG: Final = logging.getLogger("lakelog")
_GRACE_S: Final = 0.25
"""How long an owner may have the lock and not have said yet whether others can attach."""
_LOOK_S: Final = 0.01
_NO_WRITING: Final = (errno.EACCES, errno.EPERM, errno.EROFS)


class Ways(Protocol):
    """The roles that can be had; each makes a store's parts."""

    def own(self) -> Parts:
        """Take the directory; raises :class:`~lakelog.errors.StoreLocked`."""

    def attach(self) -> Parts:
        """Attach to who listens; raises :class:`~lakelog.errors.NoOwner`."""


@attrs.frozen
class Chooser:
    """Finds the role for one directory.

    :ivar patience_ms: how long an owner may take to recover before it listens
    """

    files: FileSystem
    path: Path
    patience_ms: int

    def auto(self, ways: Ways) -> Parts:
        """Attach if an owner lives, own if none does."""
        patience = self._patience()
        while True:
            if is_owned(self.files, self.path):
                found = self._attached(ways, patience)
            else:
                found = self._owned(ways, patience)
            if found is not None:
                return found
            patience.pause()

    def attach(self, ways: Ways) -> Parts:
        """Attach to the owner; one that recovers is waited for."""
        patience = self._patience()
        while True:
            if not is_owned(self.files, self.path):
                self._check_rights()
                raise NoOwner(
                    "nobody owns the store, so there is nothing to attach to; open it with "
                    "mode='auto', or start its owner first",
                    path=self.path,
                )
            found = self._attached(ways, patience)
            if found is not None:
                return found
            patience.pause()

    def _check_rights(self) -> None:
        """Whether there is an owner can be seen only by a user who may read ``lock``."""
        try:
            self.files.open(self.path / LOCK_FILE).close()
        except PermissionError as error:
            raise AttachRefused(
                "its files are another user's; attach as that user, or give the store a group by "
                "the setting 'group'",
                path=self.path,
            ) from error
        except OSError:
            return  # no store, or none that an owner has opened

    def _patience(self) -> _Patience:
        return _Patience(time.monotonic(), self.patience_ms / 1000)

    def _owned(self, ways: Ways, patience: _Patience) -> Parts | None:
        """``None`` where somebody else was quicker."""
        try:
            return ways.own()
        except StoreLocked:
            if patience.is_over():
                raise
            patience.is_out(unattended=False)  # another owner: it may take its time, too
            return None
        except OSError as error:
            if error.errno in _NO_WRITING:
                raise self._unwritable(error) from error
            raise

    def _unwritable(self, error: OSError) -> StoreReadOnly:
        return StoreReadOnly(
            f"{error.strerror or error}; check permissions of it and of the folders above, or open "
            "the store with mode='read'",
            path=error.filename or self.path,
        )

    def _attached(self, ways: Ways, patience: _Patience) -> Parts | None:
        """``None`` where the owner does not listen yet, or is gone by now."""
        try:
            return ways.attach()
        except NoOwner as error:
            attended = is_attended(self.files, self.path)
            owned = is_owned(self.files, self.path)
            if patience.is_out(unattended=owned and not attended):
                raise self._unattended() from error
            if not owned:
                return None
            if patience.is_over():
                raise self._silent() from error
            return None

    def _unattended(self) -> StoreLocked:
        return locked(
            self.files,
            self.path,
            ", and nobody can attach to it: it is RocketMQ, or was opened with attach.listen = "
            "false, or its folder takes no socket; close it there, or open the store here with "
            "mode='read'",
        )

    def _silent(self) -> StoreLocked:
        return locked(
            self.files,
            self.path,
            f", and did not listen within {self.patience_ms} ms: it recovers, or hangs; "
            "wait, raise attach.reconnect_timeout_ms, or open the store here with mode='read'",
        )


@attrs.define
class _Patience:
    """How long somebody has waited."""

    begun: float
    timeout_s: float
    _unattended_since: float | None = attrs.field(default=None, init=False)

    def is_over(self) -> bool:
        """Whether it has been too long."""
        return time.monotonic() - self.begun >= self.timeout_s

    def is_out(self, *, unattended: bool) -> bool:
        """Whether nobody could attach to an owner for too long, without a break.

        Owners may come and go in the meantime, and each needs a moment to say that one can.
        """
        now = time.monotonic()
        if not unattended:
            self._unattended_since = None
        elif self._unattended_since is None:
            self._unattended_since = now
        return self._unattended_since is not None and now - self._unattended_since > _GRACE_S

    def pause(self) -> None:
        """Let others get on."""
        time.sleep(_LOOK_S)


@attrs.frozen
class Heir:
    """The owner that this process became, for the producer whose owner is gone.

    :ivar link: a connection to it, over which the producer settles what is open
    :ivar appender: where puts go from then on
    :ivar offsets: where commits go from then on
    :ivar settled: to be called once nothing of before is waiting any more
    """

    link: socket
    appender: Appender
    offsets: Offsets
    settled: Callable[[], None]


class Succession:
    """Lets one attached store take over when its owner is gone."""

    def __init__(self, files: FileSystem, path: Path, own: Callable[[], Parts]) -> None:
        """Remember what to do.

        :param own: takes the directory
        """
        self._files = files
        self._path = path
        self._own = own
        self._store: Swapping | None = None
        self._failed: str | None = None

    def tell_store(self, store: Swapping) -> None:
        """Whose parts are to be swapped; until that is said, nobody takes over."""
        self._store = store

    def __call__(self) -> Heir | None:
        """Try to own; ``None`` where somebody else does, or it cannot be done.

        Called by one thread at a time, and no more once it came true.
        """
        if self._store is None or is_owned(self._files, self._path):
            return None
        try:
            return self._taken_over(self._store)
        except StoreLocked:
            return None
        except (LakelogError, OSError) as error:
            if self._failed != str(error):  # it will be tried again soon
                self._failed = str(error)
                _LOG.warning("%s: taking over failed: %s", self._path, error)
            return None

    def _taken_over(self, store: Swapping) -> Heir:
        parts = self._own()
        _LOG.info("%s: the owner is gone; this process took over", self._path)
        store.adopt(parts)
        assert parts.owned is not None  # for the type checker: an owner has both
        assert parts.hub is not None
        link, appender = parts.hub.in_process(), parts.owned.appender
        return Heir(link, appender, parts.offsets, lambda: store.swap(parts))
