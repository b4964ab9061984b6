"""Chooses how a store is opened: alone if no process has it open, else beside the others.

Only locks decide. The loser of a race joins the winner after the winner's recovery.
"""

from __future__ import annotations

import errno
import time
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, Literal, Protocol, TypeAlias, get_args

import attrs

from lakelog.errors import AttachRefused, StoreLocked, StoreReadOnly
from lakelog.files.filesystem import FileSystem
from lakelog.files.shared.ownership import is_owned
from lakelog.runtime.arguments import WrongValue
from lakelog.store.roles.parts import RoleParts

Mode: TypeAlias = Literal["write", "read", "exclusive", "replica"]
MODES: Final[tuple[Mode, ...]] = get_args(Mode)
Former: TypeAlias = Literal["auto", "owner", "attach"]
FORMER: Final[Mapping[str, str]] = {
    "auto": "give mode='write', or none",
    "owner": "give mode='write', or mode='exclusive' to have the store for this process alone",
    "attach": "give mode='write', and attach={'take_over': False} to leave the services to others",
}
"""Deprecated modes, which act as ``write``, and the mode to use instead."""

_LOOK_S: Final = 0.01
_NO_WRITING: Final = (errno.EACCES, errno.EPERM, errno.EROFS)


def known_mode(mode: str, stacklevel: int = 3) -> Mode:
    """Return ``mode`` by its current name.

    :param stacklevel: of the warning; 3 is the caller of this function's caller

    Raises ``ValueError`` for an unknown mode.
    """
    for each in MODES:
        if mode == each:
            return each
    if mode not in tuple(FORMER):
        raise WrongValue(f"mode {mode!r} is unknown; give one of {', '.join(map(repr, MODES))}")
    words = f"mode={mode!r} is deprecated, and does what mode='write' does: {FORMER[mode]}"
    warnings.warn(words, DeprecationWarning, stacklevel=stacklevel)
    return "write"


class RoleMaker(Protocol):
    """The available roles; each method builds a store's parts."""

    def own(self) -> RoleParts:
        """Take over the directory; raises :class:`~lakelog.errors.StoreLocked`."""

    def join(self) -> RoleParts | None:
        """Join the processes that have it open; ``None`` if there are none."""


@attrs.frozen
class Chooser:
    """Chooses the role for one directory.

    :ivar patience_ms: how long to retry while other processes open or close the store
    """

    files: FileSystem
    path: Path
    patience_ms: int

    def write(self, ways: RoleMaker) -> RoleParts:
        """Join the processes that have the store open, or take it over if there are none."""
        end = time.monotonic() + self.patience_ms / 1000
        while True:
            last = time.monotonic() >= end
            found = self._joined(ways) if is_owned(self.files, self.path) else None
            if found is None:  # no process has it open, or the last one has just left
                found = self._owned(ways, last=last)
            if found is not None:
                return found
            time.sleep(_LOOK_S)

    def _owned(self, ways: RoleMaker, *, last: bool) -> RoleParts | None:
        """Take over; ``None`` if another process was faster."""
        try:
            return self.alone(ways.own)
        except StoreLocked:
            if last:
                raise
            return None

    def alone(self, own: Callable[[], RoleParts]) -> RoleParts:
        """Take over the store exclusively, once no process has it open."""
        try:
            return own()
        except OSError as error:
            if error.errno in _NO_WRITING:
                raise self._unwritable(error) from error
            raise

    def _joined(self, ways: RoleMaker) -> RoleParts | None:
        try:
            return ways.join()
        except OSError as error:
            if error.errno in _NO_WRITING:
                raise self._not_ours() from error
            raise

    def _not_ours(self) -> AttachRefused:
        return AttachRefused(
            "its files belong to another user; open it as that user, or give the store a group "
            "with the setting group",
            path=self.path,
        )

    def _unwritable(self, error: OSError) -> StoreReadOnly:
        return StoreReadOnly(
            f"{error.strerror or error}; check permissions of it and of the folders above, or open "
            "the store with mode='read'",
            path=error.filename or self.path,
        )
