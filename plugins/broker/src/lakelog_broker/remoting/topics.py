"""Requests about topics, and those to a name server: routes, lists of topics, key-value pairs.

Source: RocketMQ 5.3.3, ``AdminBrokerProcessor``, ``DefaultRequestProcessor``, ``KVConfigManager``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import attrs

from lakelog_broker.appending import SYSTEM_TOPICS
from lakelog_broker.broker import Broker
from lakelog_broker.codes import Refused, ResponseCode
from lakelog_broker.remoting.frame import RemotingCommand, object_keys, queue_object
from lakelog_broker.remoting.server import Connection
from lakelog_broker.state.traffic import MINUTE, TOPIC_PUT
from lakelog_rocketmq.config import TopicConfig


def create_topic(connection: Connection, request: RemotingCommand) -> RemotingCommand:
    """Create a topic, or change its queues, permission and attributes."""
    fields, topics = request.fields, connection.broker.topics
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


def topic_config(connection: Connection, request: RemotingCommand) -> RemotingCommand:
    """The configuration of a topic, as in ``topics.json``."""
    found = connection.broker.topics.require(request.fields["topic"])
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
    return request.json(content)


def topic_stats(connection: Connection, request: RemotingCommand) -> RemotingCommand:
    """The bounds of each queue; the object's keys are objects, as fastjson writes them."""
    broker = connection.broker
    topic = broker.topics.require(request.fields["topic"])
    rows = []
    for queue_id in range(topic.queue_count):
        low, high = broker.bounds(topic.topic, queue_id)
        last_ms = broker.time_of(topic.topic, queue_id, high - 1)
        queue = queue_object(broker.settings.name, topic.topic, queue_id)
        row = {"lastUpdateTimestamp": last_ms, "maxOffset": high, "minOffset": low}
        rows.append((queue, row))
    rates = broker.traffic.rates(TOPIC_PUT, topic.topic)
    per_second = rates[MINUTE].per_second if rates else 0.0
    body = f'{{"offsetTable":{object_keys(rows)},"topicPutTps":{per_second}}}'
    return request.response(body=body.encode())


def delete_topic(connection: Connection, request: RemotingCommand) -> RemotingCommand:
    """Remove a topic from the configuration; its ConsumeQueues stay until they are unused."""
    connection.broker.topics.remove(request.fields["topic"])
    return request.response()


def delete_route(_connection: Connection, request: RemotingCommand) -> RemotingCommand:
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


def route(connection: Connection, request: RemotingCommand) -> RemotingCommand:
    """The route of a topic: its number of queues, and this broker's address."""
    broker, topic = connection.broker, request.fields["topic"]
    found = broker.topics.find(topic)
    if found is None:
        remark = f"No topic route info in name server for the topic: {topic}"
        return request.response(ResponseCode.TOPIC_NOT_EXIST, remark)
    queues = {
        "brokerName": broker.settings.name,
        "perm": found.permission,
        "readQueueNums": found.read_queues,
        "topicSysFlag": 0,
        "writeQueueNums": found.write_queues,
    }
    brokers = [_broker_data(broker)]
    return request.json({"brokerDatas": brokers, "filterServerTable": {}, "queueDatas": [queues]})


def cluster(connection: Connection, request: RemotingCommand) -> RemotingCommand:
    """The cluster, with this broker as its only one."""
    settings = connection.broker.settings
    content = {
        "brokerAddrTable": {settings.name: _broker_data(connection.broker)},
        "clusterAddrTable": {settings.cluster: [settings.name]},
    }
    return request.json(content)


def all_names(connection: Connection, request: RemotingCommand) -> RemotingCommand:
    """The names of all topics."""
    names = [each.topic for each in connection.broker.topics]
    return request.json({"topicList": names})


def _broker_data(broker: Broker) -> dict[str, Any]:
    settings = broker.settings
    return {
        "brokerAddrs": {"0": broker.address},
        "brokerName": settings.name,
        "cluster": settings.cluster,
        "enableActingMaster": False,
    }


def set_value(connection: Connection, request: RemotingCommand) -> RemotingCommand:
    """Set the value of a key, until the broker ends."""
    fields = request.fields
    connection.server.names.setdefault(fields["namespace"], {})[fields["key"]] = fields["value"]
    return request.response()


def get_value(connection: Connection, request: RemotingCommand) -> RemotingCommand:
    """The value of a key."""
    namespace, key = request.fields["namespace"], request.fields["key"]
    found = connection.server.names.get(namespace, {}).get(key)
    if found is None:
        remark = f"No config item, Namespace: {namespace} Key: {key}"
        return request.response(ResponseCode.QUERY_NOT_FOUND, remark)
    return request.response(value=found)


def delete_value(connection: Connection, request: RemotingCommand) -> RemotingCommand:
    """Remove a key, if it exists."""
    connection.server.names.get(request.fields["namespace"], {}).pop(request.fields["key"], None)
    return request.response()


def values_of_namespace(connection: Connection, request: RemotingCommand) -> RemotingCommand:
    """All keys and values of a namespace."""
    namespace = request.fields["namespace"]
    found = connection.server.names.get(namespace)
    if found is None:
        remark = f"No config item, Namespace: {namespace}"
        return request.response(ResponseCode.QUERY_NOT_FOUND, remark)
    return request.json({"table": found})


def name_server_config(connection: Connection, request: RemotingCommand) -> RemotingCommand:
    """The settings of this broker's name server, as a properties file."""
    host, _, port = connection.broker.address.rpartition(":")
    text = f"bindAddress={host}\nlistenPort={port}\nenableTopicList=true\n"
    return request.response(body=text.encode())


def topics_of_cluster(connection: Connection, request: RemotingCommand) -> RemotingCommand:
    """The names of all topics, if the cluster is this one."""
    is_ours = request.fields["cluster"] == connection.broker.settings.cluster
    names = [each.topic for each in connection.broker.topics] if is_ours else []
    return request.json({"topicList": names})


def system_names(connection: Connection, request: RemotingCommand) -> RemotingCommand:
    """The topics by which tools find the cluster and the broker."""
    settings, address = connection.broker.settings, connection.broker.address
    return request.json({"brokerAddr": address, "topicList": [settings.cluster, settings.name]})


def system_topics(_connection: Connection, request: RemotingCommand) -> RemotingCommand:
    """The names of RocketMQ's own topics, whether they exist here or not."""
    return request.json({"topicList": sorted(SYSTEM_TOPICS)})
