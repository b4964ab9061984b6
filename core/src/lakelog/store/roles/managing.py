"""What is done to a store by the one process that has its services, whoever asks for it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import attrs

from lakelog.dispatch.topic_removal import delete_topic, forgetter
from lakelog.errors import StoreLocked
from lakelog.housekeeping.maintenance import Maintenance
from lakelog.housekeeping.report import CleaningReport
from lakelog.store.house import forget_unused
from lakelog.store.owner import OwnedLog


class Manager(Protocol):
    """Does it, or has it done; :class:`~lakelog.Store` says what may be raised."""

    def resume_dispatch(self) -> None:
        """Go on after a dispatcher failed."""

    def delete_topic(self, topic: str) -> None:
        """Remove the queues of a topic, which is known."""

    def delete_unused_topics(self) -> list[str]:
        """Remove the queues of topics of which nothing is left; their names."""

    def delete_expired(self) -> CleaningReport | None:
        """Delete what may go; ``None`` without a cleaner."""

    def hand_over(self) -> None:
        """Begin to give up the services, for another process to have them."""


@attrs.define(eq=False)
class Managing:
    """Does it here; any of it may be done twice.

    :ivar gives_up: begins to give up the services; ``None`` where this process keeps them
    """

    owned: OwnedLog
    house: Maintenance
    path: Path
    gives_up: Callable[[], None] | None = attrs.field(default=None, init=False)

    def resume_dispatch(self) -> None:
        """Try again."""
        self.owned.reput.resume()

    def delete_topic(self, topic: str) -> None:
        """Tombstone first, then files; nothing is dispatched meanwhile."""
        owned = self.owned
        with owned.reput.paused() as dispatchers:
            end = owned.log.sync()  # a tombstone must not reach beyond what a power cut leaves
            delete_topic(owned.directory.files, self.path, topic, end, forgetter(dispatchers))

    def delete_unused_topics(self) -> list[str]:
        """The same for each of them."""
        with self.owned.reput.paused() as dispatchers:
            return forget_unused(self.owned, dispatchers)

    def delete_expired(self) -> CleaningReport | None:
        """Rounds until nothing more may go."""
        return self.house.clean()

    def hand_over(self) -> None:
        """Another thread does it, since what closes waits for who has asked."""
        if self.gives_up is None:
            raise StoreLocked(
                f"process {os.getpid()} has the services of this store, and keeps them; end it, "
                "as by SIGTERM",
                path=self.path,
                owner_pid=os.getpid(),
            )
        self.gives_up()
