"""Requests of tools about topics.

Requests of tools to a name server: its settings, and lists of topics.

Source: RocketMQ 5.3.3, ``DefaultRequestProcessor`` and ``KVConfigManager``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

import attrs

from lakelog_broker.appending import SYSTEM_TOPICS
from lakelog_broker.broker import Broker
from lakelog_broker.codes import Refused, RequestCode, ResponseCode, object_keys, queue_object
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


class NameRequests:
    """Stores key-value pairs by namespace, in memory only, and lists topics."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._texts: dict[str, dict[str, str]] = {}

    def handlers(self) -> Mapping[int, Handler]:
        """The handlers by request code."""
        return {
            RequestCode.PUT_KV_CONFIG: self.put,
            RequestCode.GET_KV_CONFIG: self.get,
            RequestCode.DELETE_KV_CONFIG: self.delete,
            RequestCode.GET_KVLIST_BY_NAMESPACE: self.all_of,
            RequestCode.GET_NAMESRV_CONFIG: self.config,
            RequestCode.GET_TOPICS_BY_CLUSTER: self.topics_of_cluster,
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS: self.system_names,
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: self.system_topics,
        }

    def put(self, _connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Set the value of a key, until the broker ends."""
        fields = request.fields
        self._texts.setdefault(fields["namespace"], {})[fields["key"]] = fields["value"]
        return request.response()

    def get(self, _connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """The value of a key."""
        namespace, key = request.fields["namespace"], request.fields["key"]
        found = self._texts.get(namespace, {}).get(key)
        if found is None:
            remark = f"No config item, Namespace: {namespace} Key: {key}"
            return request.response(ResponseCode.QUERY_NOT_FOUND, remark)
        return request.response(value=found)

    def delete(self, _connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Remove a key, if it exists."""
        self._texts.get(request.fields["namespace"], {}).pop(request.fields["key"], None)
        return request.response()

    def all_of(self, _connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """All keys and values of a namespace."""
        namespace = request.fields["namespace"]
        found = self._texts.get(namespace)
        if found is None:
            remark = f"No config item, Namespace: {namespace}"
            return request.response(ResponseCode.QUERY_NOT_FOUND, remark)
        return request.response(body=json.dumps({"table": found}).encode())

    def config(self, _connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """The settings of this broker's name server, as a properties file."""
        host, _, port = self._broker.address.rpartition(":")
        text = f"bindAddress={host}\nlistenPort={port}\nenableTopicList=true\n"
        return request.response(body=text.encode())

    def topics_of_cluster(
        self, _connection: Connection, request: RemotingCommand
    ) -> RemotingCommand:
        """The names of all topics, if the cluster is this one."""
        is_ours = request.fields["cluster"] == self._broker.settings.cluster
        names = [each.topic for each in self._broker.topics] if is_ours else []
        return request.response(body=json.dumps({"topicList": names}).encode())

    def system_names(self, _connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """The topics by which tools find the cluster and the broker."""
        settings = self._broker.settings
        content = {
            "brokerAddr": self._broker.address,
            "topicList": [settings.cluster, settings.name],
        }
        return request.response(body=json.dumps(content).encode())

    def system_topics(self, _connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """The names of RocketMQ's own topics, whether they exist here or not."""
        return request.response(body=json.dumps({"topicList": sorted(SYSTEM_TOPICS)}).encode())
