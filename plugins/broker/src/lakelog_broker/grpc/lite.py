"""The Lite topics to which clients subscribe.

A Lite topic is a light queue below a parent topic, which its first message makes: it feeds the
queue ``%LMQ%$PARENT$NAME`` beside a queue of its parent. A group is bound to one parent by its
attribute ``lite.bind.topic``; each of its clients gets messages only of the names to which it
subscribes, in the order of each name, and never from a retry topic. Source: RocketMQ 5.5.1,
``LiteSubscriptionRegistryImpl`` and ``SubscriptionGroupAttributes``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, Final

import attrs

from lakelog_broker.broker import Broker
from lakelog_broker.grpc.mapping import IllegalRequest, lite_queue

PARTIAL_ADD, PARTIAL_REMOVE, COMPLETE_ADD, COMPLETE_REMOVE = range(4)
"""Numbers of ``LiteSubscriptionAction``."""
_QUOTA: Final = 2_000
"""RocketMQ's default of ``lite.sub.client.quota``."""
_MOST: Final = (1 << 31) - 1
_MIN, _MAX = 1, 2  # OffsetOption.Policy


@attrs.define
class _Subscription:
    """The subscription of one client.

    :ivar names: the Lite topics, in the order of their subscription
    """

    group: str
    topic: str
    names: dict[str, None] = attrs.field(factory=dict)


class LiteSubscriptions:
    """The subscriptions of all clients; used from one event loop.

    :param evict: called with a client id and a Lite topic that another client has taken over
    """

    def __init__(self, broker: Broker, evict: Callable[[str, str], None]) -> None:
        self._broker, self._evict = broker, evict
        self._clients: dict[str, _Subscription] = {}

    def quota(self, group: str) -> int:
        """The most Lite topics of one client of a group."""
        given = int(self._broker.topics.group_attribute(group, "lite.sub.client.quota") or _QUOTA)
        return _MOST if given < 0 else given

    def bind(self, group: str, topic: str) -> None:
        """Check that a group is bound to a parent topic of Lite topics.

        A group without that attribute is bound now, if a send would create a topic. Raises
        :class:`IllegalRequest`.
        """
        topics = self._broker.topics
        if topics.require(topic).attributes.get("message.type") != "LITE":
            text = f"the topic {topic} has not the attribute message.type=LITE"
            raise IllegalRequest("ILLEGAL_TOPIC", text)
        bound = topics.group_attribute(group, "lite.bind.topic")
        if bound is None and self._broker.settings.auto_create_topics:
            attributes = topics.group_settings(group)["attributes"]
            topics.set_group(group, {"attributes": {**attributes, "lite.bind.topic": topic}})
        elif bound != topic:
            text = f"the group {group} is bound to {bound} by lite.bind.topic, not to {topic}"
            raise IllegalRequest("ILLEGAL_CONSUMER_GROUP", text)

    def change(
        self,
        client_id: str,
        group: str,
        topic: str,
        action: int,
        names: Collection[str],
        start: Any = None,
    ) -> None:
        """Change the subscription of a client.

        :param action: one of the four constants of this module
        :param start: an ``OffsetOption``: where the group begins in added Lite topics

        Raises :class:`IllegalRequest`.
        """
        self.bind(group, topic)
        known = self._clients.get(client_id)
        if known is None or (known.group, known.topic) != (group, topic):
            known = _Subscription(group, topic)
        given = dict.fromkeys(names)
        lights = {name: lite_queue(topic, name) for name in given}
        if action == COMPLETE_ADD:
            wanted = given
        elif action == PARTIAL_ADD:
            wanted = known.names | given
        else:
            gone = known.names if action == COMPLETE_REMOVE else given
            wanted = {name: None for name in known.names if name not in gone}
        if len(wanted) > self.quota(group):
            text = f"lite subscription quota exceeded {self.quota(group)}"
            raise IllegalRequest("LITE_SUBSCRIPTION_QUOTA_EXCEEDED", text)
        self._clients[client_id] = known
        if self._broker.topics.group_attribute(group, "lite.sub.model") == "Exclusive":
            self._exclude(client_id, known, wanted, action)
        for name in wanted.keys() - known.names.keys() if action == PARTIAL_ADD else ():
            self._begin(group, lights[name], start)
        known.names = wanted

    def _exclude(
        self, client_id: str, mine: _Subscription, wanted: dict[str, None], action: int
    ) -> None:
        """Leave each Lite topic to the client of the group that asked for it last.

        A client that lists its subscriptions again asks for nothing: it may not know yet that
        another one has taken them over.
        """
        for other_id, other in self._clients.items():
            if other is mine or (other.group, other.topic) != (mine.group, mine.topic):
                continue
            for name in wanted.keys() & other.names.keys():
                if action == PARTIAL_ADD and name not in mine.names:
                    del other.names[name]
                    self._evict(other_id, name)
                else:
                    del wanted[name]
                    self._evict(client_id, name)

    def _begin(self, group: str, light: str, start: Any) -> None:
        kind = start.WhichOneof("offset_type") if start is not None else None
        low, high = self._broker.bounds(light, 0)
        now = self._broker.offsets.get(group, light, 0)
        wanted: int | None = None
        if kind == "policy":
            wanted = {_MIN: low, _MAX: high}.get(start.policy)
        elif kind == "offset":
            wanted = start.offset
        elif kind == "tail_n" and now is not None:
            wanted = now - start.tail_n
        if wanted is not None:
            self._broker.offsets.set(group, light, 0, min(max(wanted, low), high))

    def light_queues(self, client_id: str, group: str, topic: str) -> list[str]:
        """The light queues to which a client subscribes."""
        known = self._clients.get(client_id)
        if known is None or (known.group, known.topic) != (group, topic):
            return []
        return [lite_queue(topic, name) for name in known.names]

    def remove(self, client_id: str) -> None:
        """Remove the subscription of a client that left."""
        self._clients.pop(client_id, None)
