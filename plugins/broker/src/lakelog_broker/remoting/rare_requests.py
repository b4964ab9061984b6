"""Handlers of rare requests: of tools, of clients that pop, of transactions and recalls.

The first such request imports this module, so that the start of a broker takes less CPU time.
"""

from __future__ import annotations

from lakelog_broker.broker import Broker
from lakelog_broker.popping.service import Popping
from lakelog_broker.remoting.administration import groups, progress, status, topics
from lakelog_broker.remoting.connection import Handler
from lakelog_broker.remoting.handlers import popping, scheduling, sending
from lakelog_broker.state.topics import RequestModes


def rare_handlers(broker: Broker, pops: Popping, modes: RequestModes) -> dict[int, Handler]:
    """The handlers of rare requests, by request code."""
    return {
        code: handler
        for family in (
            popping.PopRequests(broker, pops, modes),
            scheduling.SchedulingRequests(broker),
            topics.TopicRequests(broker),
            groups.GroupRequests(broker),
            progress.ProgressRequests(broker),
            groups.ConsumerRequests(broker),
            status.StatisticsRequests(broker),
            topics.NameRequests(broker),
            sending.ReplyRequests(broker),
            status.StatusRequests(broker),
        )
        for code, handler in family.handlers().items()
    }
