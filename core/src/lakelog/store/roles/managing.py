"""Management calls, executed by the one process that has the services."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Protocol

import attrs

from lakelog.dispatch.topic_removal import delete_topic, forget_topic
from lakelog.errors import StoreLocked
from lakelog.store.owner import OwnedStore


class Manager(Protocol):
    """Executes or forwards management calls; :class:`~lakelog.Store` documents the errors."""

    def resume_dispatch(self) -> None:
        """Resume dispatching after a dispatcher failed."""

    def delete_topic(self, topic: str) -> None:
        """Remove the queues of a known topic."""

    def hand_over(self) -> None:
        """Begin to release the services to another process."""


@attrs.define(eq=False)
class Managing:
    """Executes the calls in this process; each may safely be repeated.

    :ivar gives_up: begins to release the services; ``None`` where this process keeps them
    """

    owned: OwnedStore
    path: Path
    gives_up: Callable[[], None] | None = attrs.field(default=None, init=False)

    def resume_dispatch(self) -> None:
        """Resume dispatching here."""
        self.owned.reput.resume()

    def delete_topic(self, topic: str) -> None:
        """Write the tombstone, then delete files; dispatching is paused meanwhile."""
        owned = self.owned
        with owned.reput.paused() as dispatchers:
            end = owned.log.sync()  # a tombstone must not reach beyond the durable end
            forget = partial(forget_topic, dispatchers)
            delete_topic(owned.directory.files, self.path, topic, end, forget)

    def hand_over(self) -> None:
        """Release in another thread, since closing waits for the request to be answered."""
        if self.gives_up is None:
            raise StoreLocked(
                f"process {os.getpid()} has the services of this store, and keeps them; end it, "
                "as by SIGTERM",
                path=self.path,
                owner_pid=os.getpid(),
            )
        self.gives_up()
