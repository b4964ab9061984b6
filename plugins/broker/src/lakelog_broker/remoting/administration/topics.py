"""Requests of tools about topics."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

import attrs

from lakelog_broker.bodies import object_keys, queue_object
from lakelog_broker.broker import Broker
from lakelog_broker.codes import Refused, RequestCode, ResponseCode
from lakelog_broker.remoting.connection import Connection, Handler
from lakelog_broker.remoting.frame import RemotingCommand
from lakelog_broker.state.traffic import MINUTE, TOPIC_PUT
from lakelog_rocketmq.config.topics import TopicConfig


class TopicRequests:
    """Creates, describes and removes topics."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def handlers(self) -> Mapping[int, Handler]:
        """The handlers by request code."""
        return {
            RequestCode.UPDATE_AND_CREATE_TOPIC: self.create_topic,
            RequestCode.GET_TOPIC_CONFIG: self.topic_config,
            RequestCode.GET_TOPIC_STATS_INFO: self.topic_stats,
            RequestCode.DELETE_TOPIC_IN_BROKER: self.delete_topic,
            RequestCode.DELETE_TOPIC_IN_NAMESRV: self.delete_route,
        }

    def create_topic(self, _connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Create a topic, or change its queues, permission and attributes."""
        fields, topics = request.fields, self._broker.topics
        name = fields["topic"]
        known = topics.find(name) or TopicConfig(name)
        topics.set(
            attrs.evolve(
                known,
                attributes=_attributes(known.attributes, fields.get("attributes") or ""),
                read_queues=int(fields["readQueueNums"]),
                write_queues=int(fields["writeQueueNums"]),
                permission=int(fields["perm"]),
            )
        )
        return request.response()

    def topic_config(self, _connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """The configuration of a topic, as in ``topics.json``."""
        found = self._broker.topics.require(request.fields["topic"])
        content = {
            "attributes": dict(found.attributes),
            "order": False,
            "perm": found.permission,
            "readQueueNums": found.read_queues,
            "topicFilterType": "SINGLE_TAG",
            "topicName": found.topic,
            "topicSysFlag": 0,
            "writeQueueNums": found.write_queues,
        }
        return request.response(body=json.dumps(content).encode())

    def topic_stats(self, _connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """The bounds of each queue; the object's keys are objects, as fastjson writes them."""
        topic = self._broker.topics.require(request.fields["topic"])
        rows = []
        for queue_id in range(max(topic.read_queues, topic.write_queues)):
            low, high = self._broker.bounds(topic.topic, queue_id)
            last_ms = self._broker.time_of(topic.topic, queue_id, high - 1)
            queue = queue_object(self._broker.settings.name, topic.topic, queue_id)
            row = {"lastUpdateTimestamp": last_ms, "maxOffset": high, "minOffset": low}
            rows.append((queue, row))
        rates = self._broker.traffic.rates(TOPIC_PUT, topic.topic)
        per_second = rates[MINUTE].per_second if rates else 0.0
        body = f'{{"offsetTable":{object_keys(rows)},"topicPutTps":{per_second}}}'
        return request.response(body=body.encode())

    def delete_topic(self, _connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Remove a topic from the configuration; its ConsumeQueues stay until they are unused."""
        self._broker.topics.remove(request.fields["topic"])
        return request.response()

    def delete_route(self, _connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Do nothing: routes are computed from the topics."""
        return request.response()


_ATTRIBUTES: Final = {
    "cleanup.policy": ("DELETE", "COMPACTION"),
    "message.type": ("UNSPECIFIED", "NORMAL", "FIFO", "DELAY", "TRANSACTION", "MIXED"),
    "queue.type": ("SimpleCQ",),
}
"""Accepted attributes of topics, with their values. ``queue.type=BatchCQ`` is refused: this broker
has only queues of single messages."""


def _attributes(known: Mapping[str, str], changes: str) -> dict[str, str]:
    """Apply changes such as ``+message.type=FIFO,-cleanup.policy``; raises :class:`Refused`."""
    changed = dict(known)
    for change in filter(None, changes.split(",")):
        name, _, value = change[1:].partition("=")
        if change[0] == "-":
            changed.pop(name, None)
        elif change[0] == "+" and value in _ATTRIBUTES.get(name, ()):
            changed[name] = value
        else:
            known_names = ", ".join(f"{key}={'|'.join(all_)}" for key, all_ in _ATTRIBUTES.items())
            remark = f"the attribute {change!r} is not served; give +NAME=VALUE of {known_names}"
            raise Refused(ResponseCode.INVALID_PARAMETER, remark)
    return changed
