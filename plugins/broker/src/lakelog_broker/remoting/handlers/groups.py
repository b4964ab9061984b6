"""Requests of tools about consumer groups and producers.

Source: RocketMQ 5.3.3, ``AdminBrokerProcessor`` and ``Broker2Client``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from lakelog.files.filesystem import RealFileSystem
from lakelog_broker.bodies import body_of, object_keys, queue_object
from lakelog_broker.broker import Broker
from lakelog_broker.codes import Refused, RequestCode, ResponseCode
from lakelog_broker.remoting.connection import Connection, Handler
from lakelog_broker.remoting.frame import RemotingCommand
from lakelog_broker.state.members import Member
from lakelog_queues.configs import DEFAULT_RETRIES


class GroupRequests:
    """Describes groups and changes their offsets."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._files, self._path = RealFileSystem(), Path(broker.store.path)

    def handlers(self) -> Mapping[int, Handler]:
        """The requests that are served."""
        return {
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: self.update,
            RequestCode.DELETE_SUBSCRIPTIONGROUP: self.delete,
            RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: self.config,
            RequestCode.GET_CONSUMER_CONNECTION_LIST: self.consumers,
            RequestCode.GET_PRODUCER_CONNECTION_LIST: self.producers,
            RequestCode.GET_CONSUME_STATS: self.stats,
            RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: self.groups_of_topic,
            RequestCode.QUERY_TOPICS_BY_CONSUMER: self.topics_of_group,
            RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: self.reset,
            RequestCode.CLONE_GROUP_OFFSET: self.clone,
        }

    def update(self, _connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Create a group or change its limit of retries; other settings have no effect here."""
        content = body_of(request)
        limit = int(content.get("retryMaxTimes", DEFAULT_RETRIES))
        self._broker.topics.set_retry_limit(str(content["groupName"]), limit)
        return request.response()

    def delete(self, _connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Remove a group from the configuration, and its offsets if the request says so."""
        group = request.fields["groupName"]
        self._broker.topics.remove_group(group)
        if request.fields.get("cleanOffset", request.fields.get("removeOffset")) == "true":
            self._broker.offsets.forget(group)
        return request.response()

    def config(self, _connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """The configuration of a group; one that was not configured has the default."""
        group = request.fields["group"]
        limit = self._broker.topics.retry_limit(group)
        content = {"consumeEnable": True, "groupName": group, "retryMaxTimes": limit}
        return request.response(body=json.dumps(content).encode())

    def consumers(self, _connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """The members of a group and its subscriptions."""
        name = request.fields["consumerGroup"]
        group = self._broker.members.group(name)
        if group is None or not group.members:
            remark = f"the consumer group[{name}] not online"
            raise Refused(ResponseCode.CONSUMER_NOT_ONLINE, remark)
        content = {
            "connectionSet": _connections(group.members.values()),
            "consumeFromWhere": group.consume_from_where,
            "consumeType": group.consume_type,
            "messageModel": group.message_model,
            "subscriptionTable": dict(group.subscriptions),
        }
        return request.response(body=json.dumps(content).encode())

    def producers(self, _connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """The members of a producer group."""
        name = request.fields["producerGroup"]
        members = self._broker.members.producers(name)
        if not members:
            remark = f"the producer group[{name}] not exist"
            raise Refused(ResponseCode.SYSTEM_ERROR, remark)
        content = {"connectionSet": _connections(members)}
        return request.response(body=json.dumps(content).encode())

    def stats(self, _connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """The offsets of a group beside those of the queues."""
        group, only = request.fields["consumerGroup"], request.fields.get("topic")
        topics = [only] if only else self._topics(group)
        rows = []
        for topic in topics:
            committed = self._broker.offsets.of_group(group).get(topic, {})
            for queue_id in self._queues(topic):
                end = self._bounds(topic, queue_id)[1]
                offset = committed.get(queue_id, 0)
                numbers = {"brokerOffset": end, "consumerOffset": offset, "lastTimestamp": 0}
                queue = queue_object(self._broker.settings.name, topic, queue_id)
                rows.append((queue, {**numbers, "pullOffset": offset}))
        return request.response(
            body=f'{{"consumeTps":0.0,"offsetTable":{object_keys(rows)}}}'.encode()
        )

    def groups_of_topic(self, _connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """The groups that subscribe to a topic, or have an offset in it."""
        topic = request.fields["topic"]
        known = {*self._broker.members.groups(), *self._broker.offsets.groups()}
        groups = sorted(group for group in known if topic in self._topics(group))
        return request.response(body=json.dumps({"groupList": groups}).encode())

    def topics_of_group(self, _connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """The topics in which a group has an offset."""
        topics = sorted(self._broker.offsets.of_group(request.fields["group"]))
        return request.response(body=json.dumps({"topicList": topics}).encode())

    def reset(self, _connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Move a group to a time, or to the end for -1, and tell its members.

        Without ``isForce``, no offset is moved forward.
        """
        fields = request.fields
        topic, group, time_ms = fields["topic"], fields["group"], int(fields["timestamp"])
        self._broker.topics.require(topic)
        rows = []
        for queue_id in self._queues(topic):
            found = self._offset_at(topic, queue_id, time_ms)
            known = self._broker.offsets.get(group, topic, queue_id)
            if known is not None and found > known and fields.get("isForce") != "true":
                found = known
            self._broker.offsets.set(group, topic, queue_id, found)
            rows.append((queue_object(self._broker.settings.name, topic, queue_id), found))
        body = f'{{"offsetTable":{object_keys(rows)}}}'.encode()
        members = self._broker.members.group(group)
        told = {"topic": topic, "group": group, "timestamp": str(time_ms)}
        for member in members.members.values() if members else ():
            if isinstance(member.peer, Connection):
                member.peer.notify(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, told, body)
        return request.response(body=body)

    def clone(self, _connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Give a group the offsets of another, in one topic or in all."""
        fields, offsets = request.fields, self._broker.offsets
        for topic, queues in offsets.of_group(fields["srcGroup"]).items():
            if fields.get("topic") in (None, "", topic):
                for queue_id, offset in queues.items():
                    offsets.set(fields["destGroup"], topic, queue_id, offset)
        return request.response()

    def _topics(self, group: str) -> list[str]:
        members = self._broker.members.group(group)
        subscribed = members.subscriptions if members else ()
        return sorted({*self._broker.offsets.of_group(group), *subscribed})

    def _queues(self, topic: str) -> range:
        found = self._broker.topics.find(topic)
        return range(max(found.read_queues, found.write_queues) if found else 0)

    def _bounds(self, topic: str, queue_id: int) -> tuple[int, int]:
        return self._broker.store.queue_bounds(topic, queue_id) or (0, 0)

    def _offset_at(self, topic: str, queue_id: int, time_ms: int) -> int:
        low, high = self._bounds(topic, queue_id)
        if time_ms == -1 or low == high:
            return high
        return self._broker.store.offset_by_time(topic, queue_id, time_ms)


def _connections(members: Iterable[Member]) -> list[dict[str, Any]]:
    return [
        {
            "clientAddr": getattr(each.peer, "peer", ""),
            "clientId": each.client_id,
            "language": each.language,
            "version": each.version,
        }
        for each in members
    ]
