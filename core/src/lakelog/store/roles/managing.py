"""Management calls, executed by the one process that has the services."""

from __future__ import annotations

from typing import Any, Final

import attrs

from lakelog.dispatch.run import forget_topic
from lakelog.store.owner import OwnedStore
from lakelog_interfaces.strategies import Maintenance

VERBS: Final = ("resume_dispatch", "delete_topic")
"""The management calls; :class:`~lakelog.Store` documents their errors."""
MAINTENANCE_VERBS: Final = ("delete_unused_topics", "delete_expired")
"""The management calls executed by the maintenance."""


@attrs.define(eq=False)
class Managing:
    """Executes :data:`VERBS` in this process; each may safely be repeated."""

    owned: OwnedStore
    maintenance: Maintenance

    def __call__(self, verb: str, *words: str) -> Any:
        """Execute one of the verbs; raises ``KeyError`` for another one."""
        calls = {each: getattr(self, each) for each in VERBS}
        calls |= {each: getattr(self.maintenance, each) for each in MAINTENANCE_VERBS}
        return calls[verb](*words)

    def resume_dispatch(self) -> None:
        """Resume dispatching in this process."""
        self.owned.reput.resume()

    def delete_topic(self, topic: str) -> None:
        """Have the dispatchers remove the topic; dispatching is paused meanwhile."""
        with self.owned.reput.paused() as dispatchers:
            end = self.owned.log.sync()  # a tombstone must not reach beyond the durable end
            forget_topic(dispatchers, topic, end)
