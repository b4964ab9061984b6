"""Chooses how a store is opened: alone where nobody has it open, and beside the others else.

The locks alone decide; who loses a race joins the winner, once that has recovered the store.
"""

from __future__ import annotations

import errno
import time
from pathlib import Path
from typing import Final, Literal, Protocol, TypeAlias

import attrs

from lakelog.errors import AttachRefused, NoOwner, StoreLocked, StoreReadOnly
from lakelog.files import FileSystem
from lakelog.layout import LOCK_FILE
from lakelog.ownership import is_owned
from lakelog.roles.parts import Parts

Mode: TypeAlias = Literal["auto", "owner", "attach", "read"]
MODES: Final[tuple[Mode, ...]] = ("auto", "owner", "attach", "read")

_LOOK_S: Final = 0.01
_NO_WRITING: Final = (errno.EACCES, errno.EPERM, errno.EROFS)


class Ways(Protocol):
    """The roles that can be had; each makes a store's parts."""

    def own(self) -> Parts:
        """Take the directory; raises :class:`~lakelog.errors.StoreLocked`."""

    def attach(self) -> Parts:
        """Join those who have it open; raises :class:`~lakelog.errors.NoOwner`."""


@attrs.frozen
class Chooser:
    """Finds the role for one directory.

    :ivar patience_ms: how long others may be in between
    """

    files: FileSystem
    path: Path
    patience_ms: int

    def auto(self, ways: Ways) -> Parts:
        """Join those who have the store open, or take it if nobody has."""
        end = time.monotonic() + self.patience_ms / 1000
        while True:
            try:
                if is_owned(self.files, self.path):
                    return self._attached(ways)
                found = self._owned(ways, last=time.monotonic() >= end)
                if found is not None:
                    return found
            except NoOwner:  # they went meanwhile
                if time.monotonic() >= end:
                    raise
            time.sleep(_LOOK_S)

    def _owned(self, ways: Ways, *, last: bool) -> Parts | None:
        """``None`` where somebody else was quicker."""
        try:
            return ways.own()
        except StoreLocked:
            if last:
                raise
            return None
        except OSError as error:
            if error.errno in _NO_WRITING:
                raise self._unwritable(error) from error
            raise

    def attach(self, ways: Ways) -> Parts:
        """Join those who have the store open."""
        if not is_owned(self.files, self.path):
            self._check_rights()
            raise no_owner(self.path)
        return self._attached(ways)

    def _attached(self, ways: Ways) -> Parts:
        try:
            return ways.attach()
        except OSError as error:
            if error.errno in _NO_WRITING:
                raise self._not_ours() from error
            raise

    def _check_rights(self) -> None:
        """Whether anybody has it open can be seen only by a user who may read ``lock``."""
        try:
            self.files.open(self.path / LOCK_FILE).close()
        except PermissionError as error:
            raise self._not_ours() from error
        except OSError:
            return  # no store, or none that lakelog has opened

    def _not_ours(self) -> AttachRefused:
        return AttachRefused(
            "its files are another user's; open it as that user, or give the store a group by the "
            "setting group",
            path=self.path,
        )

    def _unwritable(self, error: OSError) -> StoreReadOnly:
        return StoreReadOnly(
            f"{error.strerror or error}; check permissions of it and of the folders above, or open "
            "the store with mode='read'",
            path=error.filename or self.path,
        )


def no_owner(path: Path) -> NoOwner:
    """The error for who wants to append beside others where nobody is."""
    return NoOwner(
        "nobody has the store open, so there is nothing to attach to; open it with mode='auto', or "
        "in another process first",
        path=path,
    )
