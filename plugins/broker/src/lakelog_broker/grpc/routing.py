"""Routes and assignments; each names this broker, which distributes the queues itself."""

from __future__ import annotations

from typing import Any, Final

from lakelog_broker.broker import Broker
from lakelog_broker.codes import Refused
from lakelog_broker.grpc.mapping import DELAY, FIFO, NORMAL, TRANSACTION, name_of
from lakelog_broker.grpc.protos import proto
from lakelog_broker.grpc.statuses import IllegalRequest, status
from lakelog_rocketmq.config.topics import TopicConfig

ANY_QUEUE: Final = -1
_PERMISSIONS: Final = {2: 3, 4: 2, 6: 4}
"""Numbers of ``Permission`` by RocketMQ's permission bits."""
_TYPES: Final = {"NORMAL": NORMAL, "FIFO": FIFO, "DELAY": DELAY, "TRANSACTION": TRANSACTION}


def accepted_types(topic: TopicConfig) -> list[int]:
    """Numbers of the message types that a topic accepts, by its attribute ``message.type``.

    A topic without the attribute accepts all types here; RocketMQ's proxy accepts only ``NORMAL``.
    """
    found = _TYPES.get(topic.attributes.get("message.type", "MIXED").upper())
    return sorted(_TYPES.values()) if found is None else [found]


class Routing:
    """Answers requests about topics and their queues.

    :ivar port: the gRPC port, set once it is bound
    """

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.port = 0

    def topic(self, name: str) -> TopicConfig:
        """Find a topic, or create it if a send would; raises :class:`IllegalRequest`."""
        if not name:
            raise IllegalRequest("ILLEGAL_TOPIC", "the topic has no name")
        try:
            return self._broker.topics.created_by_sending(name)
        except Refused as error:
            found = "must have" in error.remark
            raise IllegalRequest(
                "ILLEGAL_TOPIC" if found else "TOPIC_NOT_FOUND", error.remark
            ) from None

    async def query_route(self, request: Any, _context: Any) -> Any:
        """Serve ``QueryRoute``: the queues of a topic; raises :class:`IllegalRequest`."""
        topic = self.topic(name_of(request.topic))
        queues = range(max(topic.read_queues, topic.write_queues))
        found = [self._queue(request, topic, each) for each in queues]
        return proto("QueryRouteResponse")(status=status(), message_queues=found)

    async def query_assignment(self, request: Any, _context: Any) -> Any:
        """Serve ``QueryAssignment``: one assignment, to any queue of this broker.

        Raises :class:`IllegalRequest`.
        """
        topic = self.topic(name_of(request.topic))
        queue = self._queue(request, topic, ANY_QUEUE)
        one = proto("Assignment")(message_queue=queue)
        return proto("QueryAssignmentResponse")(status=status(), assignments=[one])

    def _queue(self, request: Any, topic: TopicConfig, queue_id: int) -> Any:
        address = proto("Address")(host=self._broker.settings.host, port=self.port)
        scheme = 2 if ":" in address.host else 1 if address.host.replace(".", "").isdigit() else 3
        endpoints = proto("Endpoints")(scheme=scheme, addresses=[address])
        broker = proto("Broker")(name=self._broker.settings.name, id=0, endpoints=endpoints)
        return proto("MessageQueue")(
            topic=request.topic,
            id=queue_id,
            permission=_PERMISSIONS.get(topic.permission & 6, 1),
            broker=broker,
            accept_message_types=accepted_types(topic),
        )
