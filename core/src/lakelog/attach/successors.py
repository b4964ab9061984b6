"""Finds the next owner of a store when the one before is gone."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import attrs

from lakelog.attach.heir import Heir, OnLost
from lakelog.attach.hello import Hello, Welcome
from lakelog.attach.link import Link
from lakelog.errors import NoOwner

_FIRST_NAP_SECONDS: Final = 0.002
_LAST_NAP_SECONDS: Final = 0.05


@attrs.frozen
class Successors:
    """Connects one producer to owners.

    :ivar producer: its id, the same for all of them
    :ivar timeout_ms: how long to look for a successor
    :ivar on_welcome: told what the new owner said, before anything is offered to it
    """

    path: Path
    producer: str
    timeout_ms: int
    on_lost: OnLost | None
    on_welcome: Callable[[Welcome], None]

    def first(self) -> Link:
        """The owner that lives now; raises what :meth:`Link.to` raises."""
        return Link.to(self.path, self._hello())

    def next(self) -> tuple[Link, Heir | None]:
        """The next owner; with an heir if it is this process itself.

        Raises :class:`~lakelog.errors.NoOwner` when none came in time, and
        :class:`~lakelog.errors.AttachRefused`.
        """
        until, nap = time.monotonic() + self.timeout_ms / 1000, _FIRST_NAP_SECONDS
        while True:
            try:
                return self._try()
            except NoOwner as error:
                if time.monotonic() >= until:
                    raise NoOwner(
                        f"its owner is gone, and no other one came in {self.timeout_ms} ms "
                        f"(attach.reconnect_timeout_ms): {error}"
                    ) from error
            time.sleep(nap)
            nap = min(2 * nap, _LAST_NAP_SECONDS)

    def _try(self) -> tuple[Link, Heir | None]:
        heir = self.on_lost() if self.on_lost is not None else None
        if heir is not None:
            link = Link.over(heir.link, self.path, self._hello())
        else:
            link = Link.to(self.path, self._hello())
        self.on_welcome(link.welcome)
        return link, heir

    def _hello(self) -> Hello:
        return Hello(pid=os.getpid(), producer=self.producer)
