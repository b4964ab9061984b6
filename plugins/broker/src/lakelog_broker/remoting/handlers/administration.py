"""Requests of administration tools."""

from __future__ import annotations

import json
from collections.abc import Mapping

import attrs

from lakelog_broker.bodies import object_keys, queue_object
from lakelog_broker.broker import Broker
from lakelog_broker.codes import RequestCode
from lakelog_broker.remoting.connection import Connection, Handler
from lakelog_broker.remoting.frame import RemotingCommand
from lakelog_rocketmq.config.topics import TopicConfig


class TopicRequests:
    """Creates, describes and removes topics."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def handlers(self) -> Mapping[int, Handler]:
        """The requests that are served."""
        return {
            RequestCode.UPDATE_AND_CREATE_TOPIC: self.create_topic,
            RequestCode.GET_TOPIC_CONFIG: self.topic_config,
            RequestCode.GET_TOPIC_STATS_INFO: self.topic_stats,
            RequestCode.DELETE_TOPIC_IN_BROKER: self.delete_topic,
            RequestCode.DELETE_TOPIC_IN_NAMESRV: self.delete_route,
        }

    def create_topic(self, _connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Create a topic, or change its queues and permission."""
        fields, topics = request.fields, self._broker.topics
        name = fields["topic"]
        topics.set(
            attrs.evolve(
                topics.find(name) or TopicConfig(name),
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
        """The offsets of each queue; keys of this object are objects, as fastjson writes them."""
        topic = self._broker.topics.require(request.fields["topic"])
        rows = []
        for queue_id in range(max(topic.read_queues, topic.write_queues)):
            low, high = self._broker.store.queue_bounds(topic.topic, queue_id) or (0, 0)
            queue = queue_object(self._broker.settings.name, topic.topic, queue_id)
            rows.append((queue, {"lastUpdateTimestamp": 0, "maxOffset": high, "minOffset": low}))
        return request.response(body=f'{{"offsetTable":{object_keys(rows)}}}'.encode())

    def delete_topic(self, _connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Remove a topic from the configuration; its queues stay until they are unused."""
        self._broker.topics.remove(request.fields["topic"])
        return request.response()

    def delete_route(self, _connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Nothing: routes follow from the topics."""
        return request.response()
